"""Named entity recognition: one tag per word, scored by whole entities."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray
from seqeval.metrics import classification_report

from biosqueeze.data.blocks import Ids
from biosqueeze.errors import SqueezeError
from biosqueeze.tasks import Dataset, Formulation
from biosqueeze.tasks.encoding.crf_decoding import Scores, chances, viterbi
from biosqueeze.tasks.encoding.tag_schemes import OUTSIDE, Span, convert, inside, of_types, scheme_of, spans_of
from biosqueeze.tasks.encoding.word_windows import Floats, TagIds, TagWindow, emissions, windows_of
from biosqueeze.tasks.readers import tagged_sources as _sources
from biosqueeze.tasks.readers.tagged import Sentence

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["Kind", "Sentence", "TagWindow", "best_tags", "score"]


@dataclass(frozen=True)
class Kind:
    """Named entity recognition.

    The labels that a model is trained on are in `form.scheme`, or in the data's own. `encode` converts to it, and
    `decode` converts back: predictions are BIO, and are scored as entities against the data as they were, whatever
    they were trained as. What is trained as IO pays for what IO cannot say: of entities of one type that stand side
    by side only one can be found, and with the wrong extent.
    """

    form: Formulation = field(default_factory=Formulation)
    chain: Scores = field(default_factory=dict, compare=False)  # of a CRF; empty for every other tagger

    HEAD: ClassVar[str] = "token-classification"
    METRIC: ClassVar[str] = "f1"
    SPLITS: ClassVar[tuple[str, ...]] = ("train", "dev", "test")
    USES: ClassVar[tuple[str, ...]] = ("column", "types", "scheme", "label_all_pieces", "tagger")

    def with_scheme(self, scheme: str) -> Self:
        """The kind for labels of this scheme."""
        return replace(self, form=replace(self.form, scheme=cast(Literal["BIO", "IO", "BIOUL"], scheme)))

    def with_parameters(self, parameters: Scores) -> Self:
        """The kind that decodes with the scores of a CRF."""
        return replace(self, chain=parameters)

    def read(self, source: str, splits: Sequence[str]) -> Dataset:
        """Read tagged sentences: see `_sources.read`."""
        return _sources.read(source, splits, self.form)

    def encode(
        self,
        examples: Sequence[Sentence],
        labels: Sequence[str],
        tokenizer: "PreTrainedTokenizerBase",
        max_length: int,
    ) -> list[TagWindow]:
        """Cut sentences into windows of at most max_length tokens, special ones included, in order.

        A long sentence becomes overlapping windows, and each word is owned by the window that shows most of its
        context: nothing is truncated, so no entity is lost. A word's label stands on its first sub-word, which is
        also what `decode` reads. With `form.label_all_pieces` the inside version of the label (I for B) stands on
        its other ones (the CompactBioBERT paper, section 5).

        Args:
            examples: sentences.
            labels: label names by id; their scheme is the one that is trained.
            tokenizer: a fast tokenizer.
            max_length: tokens in a window.

        Raises:
            SqueezeError: a tag is none of the labels, or max_length leaves no room for text.
        """
        return windows_of(examples, self._tag_ids(examples, labels), tokenizer, max_length)

    def decode(
        self,
        windows: Sequence[TagWindow],
        logits: Sequence[Floats],
        examples: Sequence[Sentence],
        labels: Sequence[str],
    ) -> list[list[str]]:
        """The tags of every word, in BIO; with `form.types` those of other types are O, as they are in the data.

        Args:
            windows: as `encode` gave them.
            logits: for each window (length or more, labels).
            examples: the sentences that were encoded.
            labels: label names by id. The tags of BIO labels stay as they are predicted; those of other schemes are
                read as entities, as leniently as they would be scored, and written in BIO.
        """
        rows = emissions(windows, logits, examples, len(labels))
        ids = (best_tags(part, self.chain, sentence.starts) for part, sentence in zip(rows, examples, strict=True))
        tags = [list(of_types([labels[one] for one in sentence.tolist()], self.form.types)) for sentence in ids]
        return tags if scheme_of(labels) == "BIO" else [convert(sentence, "BIO") for sentence in tags]

    def score(self, gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
        """Precision, recall and F1 over whole entities: see `score`."""
        return score(gold, predicted)

    def pose(self, record: Mapping[str, Any]) -> Sentence:
        """A sentence from the `tokens` of a record, or the words of its `text`."""
        return _sources.unlabelled_sentence(record, self.form)

    def describe(
        self,
        windows: Sequence[TagWindow],
        logits: Sequence[Floats],
        examples: Sequence[Sentence],
        labels: Sequence[str],
    ) -> list[dict[str, Any]]:
        """The entities of each example, with the mean of the probabilities of their words' tags as score.

        With `form.types` only those of these types are told.

        Returns:
            for each {"entities": [{"type", "text", "start", "end", "words", "score"}]}: start and end in characters,
            where the example has a text, and words as [first, last + 1].
        """
        made = emissions(windows, logits, examples, len(labels))
        return [
            {"entities": self._entities(sentence, rows, labels)} for sentence, rows in zip(examples, made, strict=True)
        ]

    def _entities(self, sentence: Sentence, rows: Floats, labels: Sequence[str]) -> list[dict[str, Any]]:
        best = best_tags(rows, self.chain, sentence.starts)
        sure = tag_chances(rows, self.chain, sentence.starts)[np.arange(len(best)), best]  # (words,)
        tags = of_types([labels[one] for one in best.tolist()], self.form.types)
        bounds = pairwise((0, *sentence.starts, len(tags)))  # no entity goes on from one sentence to the next
        spans = [Span(a + s.start, a + s.end, s.type) for a, b in bounds for s in spans_of(tags[a:b])]
        return [_described(sentence, span, float(sure[span.start : span.end].mean())) for span in spans]

    def _tag_ids(self, examples: Sequence[Sentence], labels: Sequence[str]) -> list[TagIds]:
        """The labels of every example's words, in the scheme of the labels."""
        ids = {label: number for number, label in enumerate(labels)}
        scheme = scheme_of(labels)
        made = []
        for sentence in examples:
            tags = convert(sentence.tags, scheme)
            more = _ids(map(inside, tags), ids) if self.form.label_all_pieces else None
            made.append(TagIds(_ids(tags, ids), more))
        return made


def best_tags(rows: Floats, chain: Scores | None = None, starts: Sequence[int] = ()) -> Ids:
    """The likeliest tags, (words,) ids: of each word alone, or with a CRF's scores of each sentence as a whole.

    Args:
        rows: the logits of the words, (words, labels).
        chain: a CRF's scores, if there are any.
        starts: words at which another sentence begins.
    """
    if not chain:
        ids: Ids = rows.argmax(axis=-1)
        return ids
    return np.concatenate([viterbi(part, chain) for part in np.split(rows, starts)])


def tag_chances(rows: Floats, chain: Scores | None = None, starts: Sequence[int] = ()) -> NDArray[np.float64]:
    """The probability of every label of every word, (words, labels): softmax, or under a CRF; see `best_tags`."""
    if not chain:
        return _softmax(rows)
    return np.concatenate([chances(part, chain) for part in np.split(rows, starts)])


def score(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Precision, recall and F1 over whole entities, in all and by type (seqeval's default mode).

    Args:
        gold: for each sentence, the tag of every word.
        predicted: as gold.

    Returns:
        precision, recall, f1 (micro averages), support (gold entities), and for each type of entity f1-TYPE
        and support-TYPE.
    """
    if not any(tag != OUTSIDE for tags in [*gold, *predicted] for tag in tags):
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


def _ids(tags: Any, ids: Mapping[str, int]) -> Ids:
    try:
        return np.array([ids[tag] for tag in tags], dtype=np.int64)
    except KeyError as error:
        raise SqueezeError(
            f"the data have the label {error.args[0]}, the model has only {', '.join(ids)}; "
            "evaluate on the data that it was fine-tuned on, or fine-tune it on these"
        ) from error


def _described(sentence: Sentence, span: Span, chance: float) -> dict[str, Any]:
    entity: dict[str, Any] = {"type": span.type, "text": " ".join(sentence.words[span.start : span.end])}
    if sentence.offsets:
        start, end = sentence.offsets[span.start][0], sentence.offsets[span.end - 1][1]
        entity |= {"text": sentence.text[start:end], "start": start, "end": end}
    return {**entity, "words": [span.start, span.end], "score": round(chance, 6)}


def _softmax(rows: Floats) -> NDArray[np.float64]:
    """Probabilities (words, labels), in float64 so that they add up to 1."""
    raised = np.exp(rows.astype(np.float64) - rows.max(axis=-1, keepdims=True, initial=-np.inf))
    made: NDArray[np.float64] = raised / raised.sum(axis=-1, keepdims=True)
    return made
