"""What the kinds with one answer per text share: a text or a pair as one window, and logits as classes and scores."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.blocks import Ids
from biosqueeze.data.feature_keys import LABELS
from biosqueeze.errors import SqueezeError
from biosqueeze.progress import CountedWarning, warn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Floats = NDArray[np.float32]
TEXTS_AT_ONCE = 1024


@dataclass(frozen=True)
class Labelled:
    """A text, or a pair of texts, and what holds of it."""

    texts: tuple[str, ...]  # one or two
    gold: Any  # None where it is not known
    id: str = ""
    where: str = ""  # file and line


@dataclass(frozen=True)
class SequenceWindow:
    """One example as a model sees it."""

    example: int
    features: Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class _Cut:
    """How an input was made to fit."""

    ids: Ids  # (length,) with special tokens
    types: Ids  # (length,) 0 and 1 for the texts of a pair, where the tokenizer tells them apart
    lost: int  # pieces that did not fit


@dataclass(frozen=True)
class SequenceFrame:
    """The special tokens around one text or a pair: BERT's [CLS] A [SEP] B [SEP], RoBERTa's <s> A </s></s> B </s>."""

    parts: tuple[Ids, ...]  # before, (between,) after; one more than there are texts
    types: tuple[Ids, ...]  # the token types of the parts
    text_types: tuple[int, ...]  # the token type of each text

    def __len__(self) -> int:
        """How many special tokens it has."""
        return sum(map(len, self.parts))

    @classmethod
    def of(cls, tokenizer: "PreTrainedTokenizerBase", texts: int) -> "SequenceFrame":
        """Ask the tokenizer by framing single letters."""
        encoded = tokenizer(*["a"] * texts, return_special_tokens_mask=True, return_token_type_ids=True)
        ids, types = (np.asarray(encoded[name], dtype=np.int64) for name in ("input_ids", "token_type_ids"))
        owners = np.array([-1 if owner is None else owner for owner in encoded.sequence_ids(0)])
        spans = [np.flatnonzero(owners == text)[[0, -1]] for text in range(texts)]
        starts, ends = [0, *(last + 1 for _, last in spans)], [*(first for first, _ in spans), len(ids)]
        gaps = [slice(start, end) for start, end in zip(starts, ends, strict=True)]
        return cls(
            tuple(ids[gap] for gap in gaps),
            tuple(types[gap] for gap in gaps),
            tuple(int(types[first]) for first, _ in spans),
        )

    def around(self, texts: Sequence[Ids]) -> tuple[Ids, Ids]:
        """Ids and token types of framed texts, each (length,)."""
        ids, types = [self.parts[0]], [self.types[0]]
        for number, pieces in enumerate(texts):
            ids += [pieces, self.parts[number + 1]]
            types += [np.full(len(pieces), self.text_types[number]), self.types[number + 1]]
        return np.concatenate(ids), np.concatenate(types).astype(np.int64)


def encode_sequences(
    inputs: Sequence[tuple[str, ...]], tokenizer: "PreTrainedTokenizerBase", max_length: int
) -> list[dict[str, Ids]]:
    """One window per input; what is longer than max_length loses its end, and how many do is said.

    Of a pair only the longer text is cut, down to the length of the shorter one; were that not enough, both
    would be cut to half of the room.

    Args:
        inputs: all of one text, or all pairs.
        tokenizer: a fast tokenizer.
        max_length: tokens in a window, special ones included.

    Returns:
        for each input `input_ids` (length,), and for pairs `token_type_ids` (length,).

    Raises:
        SqueezeError: max_length leaves no room for text.
    """
    if not inputs:
        return []
    texts = len(inputs[0])
    frame = SequenceFrame.of(tokenizer, texts)
    room = _room(max_length, frame, texts)
    cuts = [_framed(pieces, frame, room) for pieces in _pieces_of(inputs, tokenizer)]
    say_cut([len(cut.ids) + cut.lost for cut in cuts], max_length)
    return [{"input_ids": cut.ids} | ({"token_type_ids": cut.types} if texts > 1 else {}) for cut in cuts]


def windows_of(
    examples: Sequence[Labelled],
    truths: Sequence[Mapping[str, NDArray[Any]]],
    tokenizer: "PreTrainedTokenizerBase",
    max_length: int,
) -> list[SequenceWindow]:
    """One window per example, with its truth (such as `labels` ()) among the features."""
    encoded = encode_sequences([example.texts for example in examples], tokenizer, max_length)
    return [
        SequenceWindow(number, {**features, **truth})
        for number, (features, truth) in enumerate(zip(encoded, truths, strict=True))
    ]


def class_ids(examples: Sequence[Labelled], labels: Sequence[str]) -> list[dict[str, NDArray[Any]]]:
    """The truth of single-label examples: `labels` () each, or nothing where gold is None.

    Raises:
        SqueezeError: an example has a label that is none of these.
    """
    ids = {label: number for number, label in enumerate(labels)}
    return [
        {} if example.gold is None else {LABELS: np.array(id_of(example.gold, ids, example.where), dtype=np.int64)}
        for example in examples
    ]


def id_of(label: str, ids: Mapping[str, int], where: str) -> int:
    """The id of a label.

    Raises:
        SqueezeError: there is no such label.
    """
    try:
        return ids[label]
    except KeyError as error:
        raise SqueezeError(
            f"{where or 'the data'}: the label {label!r} is none of the model's ({', '.join(ids)}); "
            "evaluate on the data that it was fine-tuned on, or fine-tune it on these"
        ) from error


def shares(first: int, second: int, room: int) -> tuple[int, int]:
    """How many pieces of each text of a pair fit: the longer one gives way, down to the length of the other.

    This is what BERT's own scripts do piece by piece. An odd piece goes to the longer text.
    """
    short, long = sorted((first, second))
    if short + long > room:
        short = min(short, room // 2)
        long = room - short
    return (long, short) if first > second else (short, long)


def say_cut(lengths: Sequence[int], max_length: int) -> None:
    """Warn of inputs that were cut, if any.

    Args:
        lengths: of all inputs before they were cut, in tokens with special ones.
        max_length: what they were cut to.
    """
    cut = sum(length > max_length for length in lengths)
    if cut:
        detail = (
            f" (the longest has {max(lengths):,}), and what is beyond is cut off; --max-length sets this, up to what "
            "the model takes"
        )
        warn(CountedWarning(cut, f"examples are longer than {max_length} tokens", len(lengths), detail))


def rows_of(windows: Sequence[SequenceWindow], logits: Sequence[Floats], examples: int) -> Floats:
    """The logits in the order of the examples, (examples, labels).

    Raises:
        ValueError: an example does not have exactly one window.
    """
    if sorted(window.example for window in windows) != list(range(examples)):
        raise ValueError("every example has one window")
    if not examples:
        return np.zeros((0, 1), dtype=np.float32)
    order = np.argsort([window.example for window in windows])
    return np.stack(logits)[order]


def likeliest(rows: Floats, labels: Sequence[str]) -> list[str]:
    """The label with the highest logit in each row of (examples, labels)."""
    return [labels[index] for index in rows.argmax(axis=-1)]


def softmax(rows: Floats) -> NDArray[np.float64]:
    """Probabilities of exclusive classes, (examples, labels)."""
    raised = np.exp(rows.astype(np.float64) - rows.max(axis=-1, keepdims=True))
    normal: NDArray[np.float64] = raised / raised.sum(axis=-1, keepdims=True)
    return normal


def sigmoid(rows: Floats) -> NDArray[np.float64]:
    """Probabilities of independent classes, (examples, labels)."""
    # exp(-|x|) cannot overflow.
    small = np.exp(-np.abs(rows.astype(np.float64)))
    return np.where(rows >= 0, 1.0, small) / (1.0 + small)


def describe_classes(rows: Floats, labels: Sequence[str]) -> list[dict[str, Any]]:
    """The likeliest label of each row and the probability of every label."""
    return [
        {"label": label, "score": float(chances.max()), "scores": dict(zip(labels, map(float, chances), strict=True))}
        for label, chances in zip(likeliest(rows, labels), softmax(rows), strict=True)
    ]


def _room(max_length: int, frame: SequenceFrame, texts: int) -> int:
    room = max_length - len(frame)
    if room < texts:
        raise SqueezeError(
            f"a maximum length of {max_length} leaves no room beside {len(frame)} special tokens; "
            f"give --max-length {len(frame) + texts} or more"
        )
    return room


def _framed(pieces: Sequence[Ids], frame: SequenceFrame, room: int) -> _Cut:
    lengths = [len(text) for text in pieces]
    kept = shares(lengths[0], lengths[1], room) if len(lengths) > 1 else (min(lengths[0], room),)
    ids, types = frame.around([text[:length] for text, length in zip(pieces, kept, strict=True)])
    return _Cut(ids, types, sum(lengths) - sum(kept))


def _pieces_of(inputs: Sequence[tuple[str, ...]], tokenizer: "PreTrainedTokenizerBase") -> Iterator[tuple[Ids, ...]]:
    """The pieces of each input's texts, without special tokens."""
    for start in range(0, len(inputs), TEXTS_AT_ONCE):
        batch = inputs[start : start + TEXTS_AT_ONCE]
        sides = [_ids(list(side), tokenizer) for side in zip(*batch, strict=True)]
        yield from zip(*sides, strict=True)


def _ids(texts: list[str], tokenizer: "PreTrainedTokenizerBase") -> list[Ids]:
    encoded = tokenizer(
        texts, add_special_tokens=False, return_attention_mask=False, return_token_type_ids=False, verbose=False
    )
    return [np.asarray(ids, dtype=np.int64) for ids in encoded["input_ids"]]
