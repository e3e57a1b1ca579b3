"""Named entity recognition: one tag per word, scored by whole entities."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray
from seqeval.metrics import classification_report

from biosqueeze.data.blocks import Frame, Ids, room_within
from biosqueeze.data.masking import IGNORED
from biosqueeze.errors import SqueezeError
from biosqueeze.tasks import Dataset, Formulation
from biosqueeze.tasks._conll import Sentence, read

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["HEAD", "METRIC", "SPLITS", "Kind", "Sentence", "TagWindow", "decode", "encode", "read", "score"]

HEAD = "token-classification"
METRIC = "f1"
SPLITS = ("train", "dev", "test")
SENTENCES_AT_ONCE = 1024
NO_WORD = -1


@dataclass(frozen=True)
class TagWindow:
    """A stretch of one sentence. Every word is owned by exactly one window of its sentence."""

    example: int
    input_ids: Ids  # (length,) with special tokens
    labels: Ids  # (length,) label id on the first sub-word of an owned word, -100 elsewhere
    words: Ids  # (length,) word index on the first sub-word of an owned word, -1 elsewhere

    @property
    def features(self) -> dict[str, Ids]:
        """What `data.collate.pad` takes."""
        return {"input_ids": self.input_ids, "labels": self.labels, "words": self.words}


@dataclass(frozen=True)
class _Pieces:
    """A sentence in sub-words."""

    ids: Ids  # (pieces,)
    words: Ids  # (pieces,) the word each piece begins, or -1

    def __len__(self) -> int:
        return len(self.ids)


def encode(
    examples: Sequence[Sentence], labels: Sequence[str], tokenizer: "PreTrainedTokenizerBase", max_length: int
) -> list[TagWindow]:
    """Cut sentences into windows of at most max_length tokens, special ones included, in order.

    A long sentence becomes overlapping windows, and each word is owned by the window that shows most of its
    context: nothing is truncated, so no entity is lost.

    Args:
        examples: sentences.
        labels: label names by id.
        tokenizer: a fast tokenizer.
        max_length: tokens in a window.

    Raises:
        SqueezeError: a tag is none of the labels, or max_length leaves no room for text.
    """
    frame = Frame.of(tokenizer)
    room = room_within(max_length, frame)
    label_ids = {label: index for index, label in enumerate(labels)}
    return [
        window
        for number, (sentence, pieces) in enumerate(zip(examples, _pieces_of(examples, tokenizer), strict=True))
        for window in _windows(number, pieces, _tag_ids(sentence, label_ids), room, frame)
    ]


def decode(
    windows: Sequence[TagWindow],
    logits: Sequence[NDArray[np.float32]],
    examples: Sequence[Sentence],
    labels: Sequence[str],
) -> list[list[str]]:
    """The likeliest tag of every word.

    Args:
        windows: as `encode` gave them.
        logits: for each window (length or more, labels).
        examples: the sentences that were encoded.
        labels: label names by id.
    """
    tags = [[labels[0]] * len(sentence.words) for sentence in examples]
    for window, scores in zip(windows, logits, strict=True):
        places = np.flatnonzero(window.words != NO_WORD)
        for word, label in zip(window.words[places], scores[places].argmax(axis=-1), strict=True):
            tags[window.example][word] = labels[label]
    return tags


def score(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Precision, recall and F1 over whole entities, in all and by type (seqeval's default mode).

    Args:
        gold: for each sentence, the tag of every word.
        predicted: as gold.

    Returns:
        precision, recall, f1 (micro averages), support (gold entities), and for each type of entity f1-TYPE
        and support-TYPE.
    """
    if not any(tag != "O" for tags in [*gold, *predicted] for tag in tags):
        return {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0}
    lists = [list(tags) for tags in gold], [list(tags) for tags in predicted]
    report = classification_report(*lists, output_dict=True, zero_division=0)
    overall = report.pop("micro avg")
    kinds = {name: row for name, row in report.items() if not name.endswith(" avg")}
    return {
        "precision": float(overall["precision"]),
        "recall": float(overall["recall"]),
        "f1": float(overall["f1-score"]),
        "support": int(overall["support"]),
        **{f"f1-{name}": float(row["f1-score"]) for name, row in kinds.items()},
        **{f"support-{name}": int(row["support"]) for name, row in kinds.items()},
    }


def _tag_ids(sentence: Sentence, label_ids: dict[str, int]) -> Ids:
    """Label id of every word, (words,)."""
    try:
        return np.array([label_ids[tag] for tag in sentence.tags], dtype=np.int64)
    except KeyError as error:
        raise SqueezeError(
            f"the data have the label {error.args[0]}, the model has only {', '.join(label_ids)}; "
            "evaluate on the data that it was fine-tuned on, or fine-tune it on these"
        ) from error


def _pieces_of(examples: Sequence[Sentence], tokenizer: "PreTrainedTokenizerBase") -> Iterator[_Pieces]:
    space = _word_prefix(tokenizer)
    for start in range(0, len(examples), SENTENCES_AT_ONCE):
        batch = examples[start : start + SENTENCES_AT_ONCE]
        encoded = tokenizer(
            [[space + word for word in sentence.words] for sentence in batch],
            is_split_into_words=True,
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        for index, sentence in enumerate(batch):
            unknown = tokenizer.unk_token_id
            yield _pieces(encoded["input_ids"][index], encoded.word_ids(index), len(sentence.words), unknown)


def _word_prefix(tokenizer: "PreTrainedTokenizerBase") -> str:
    """What to put before each word: a byte-level tokenizer (RoBERTa's) reads bare words as glued together."""
    return " " if "ByteLevel" in repr(tokenizer.backend_tokenizer.pre_tokenizer) else ""


def _pieces(ids: list[int], word_ids: list[int | None], words: int, unknown: int | None) -> _Pieces:
    """Mark where words begin; a word that the tokenizer drops (a control character) stands as unknown."""
    owners = np.array(word_ids, dtype=np.int64)
    begins = np.diff(owners, prepend=NO_WORD) != 0
    marked = np.where(begins, owners, NO_WORD)
    dropped = np.setdiff1d(np.arange(words), owners)
    at = np.searchsorted(owners, dropped)
    filler = 0 if unknown is None else unknown
    return _Pieces(np.insert(np.array(ids, dtype=np.int64), at, filler), np.insert(marked, at, dropped))


def _windows(example: int, pieces: _Pieces, tags: Ids, room: int, frame: Frame) -> Iterator[TagWindow]:
    spans = _spans(pieces, room)
    owner = _owner(spans, len(pieces))
    for number, (start, end) in enumerate(spans):
        words = np.where(owner[start:end] == number, pieces.words[start:end], NO_WORD)
        if (words == NO_WORD).all():
            continue
        labels = np.where(words == NO_WORD, IGNORED, tags[words])
        yield TagWindow(
            example,
            frame.around(pieces.ids[start:end]),
            _framed(labels, frame, IGNORED),
            _framed(words, frame, NO_WORD),
        )


def _framed(values: Ids, frame: Frame, fill: int) -> Ids:
    return np.pad(values, (len(frame.before), len(frame.after)), constant_values=fill)


def _spans(pieces: _Pieces, room: int) -> list[tuple[int, int]]:
    """Stretches of at most `room` pieces, all covered, each about half over the last, begun at a word if near."""
    word_starts = np.flatnonzero(pieces.words != NO_WORD)
    spans = [(0, min(room, len(pieces)))]
    while spans[-1][1] < len(pieces):
        start = min(spans[-1][0] + (room + 1) // 2, len(pieces) - room)
        near = word_starts[(word_starts >= start) & (word_starts <= start + room // 4)]
        start = int(near[0]) if len(near) else start
        spans.append((start, min(start + room, len(pieces))))
    return spans


def _owner(spans: list[tuple[int, int]], length: int) -> Ids:
    """For each piece the span in which it lies farthest from an edge, (pieces,).

    At the ends of a sentence nothing is cut off, but there no other span comes farther from its edge either.
    """
    inward = np.full((len(spans), length), -1)  # (spans, pieces)
    for number, (start, end) in enumerate(spans):
        from_left = np.arange(end - start)
        inward[number, start:end] = np.minimum(from_left, from_left[::-1])
    owner: Ids = inward.argmax(axis=0)
    return owner


@dataclass(frozen=True)
class Kind:
    """Named entity recognition."""

    form: Formulation = field(default_factory=Formulation)

    HEAD: ClassVar[str] = HEAD
    METRIC: ClassVar[str] = METRIC
    SPLITS: ClassVar[tuple[str, ...]] = SPLITS
    USES: ClassVar[tuple[str, ...]] = ()

    def with_scheme(self, scheme: str) -> Self:
        """The kind for labels of this scheme."""
        return replace(self, form=replace(self.form, scheme=cast(Literal["BIO", "IO", "BIOUL"], scheme)))

    def read(self, source: str, splits: Sequence[str]) -> Dataset:
        """See `_conll.read`."""
        return read(source, splits)

    def encode(
        self,
        examples: Sequence[Sentence],
        labels: Sequence[str],
        tokenizer: "PreTrainedTokenizerBase",
        max_length: int,
    ) -> list[TagWindow]:
        """See `encode`."""
        return encode(examples, labels, tokenizer, max_length)

    def decode(
        self,
        windows: Sequence[TagWindow],
        logits: Sequence[NDArray[np.float32]],
        examples: Sequence[Sentence],
        labels: Sequence[str],
    ) -> list[list[str]]:
        """See `decode`."""
        return decode(windows, logits, examples, labels)

    def score(self, gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
        """See `score`."""
        return score(gold, predicted)

    def pose(self, record: Mapping[str, Any]) -> Sentence:
        """A sentence from a record's `tokens`."""
        words = tuple(map(str, record["tokens"]))
        return Sentence(words, ("O",) * len(words))

    def describe(
        self,
        windows: Sequence[TagWindow],
        logits: Sequence[NDArray[np.float32]],
        examples: Sequence[Sentence],
        labels: Sequence[str],
    ) -> list[dict[str, Any]]:
        """The tags of each sentence."""
        return [{"tags": tags} for tags in self.decode(windows, logits, examples, labels)]
