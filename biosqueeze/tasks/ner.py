"""Named entity recognition: one tag per word, scored by whole entities."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.records.sample import SourceSample, available_splits
from biosqueeze.data.text.blocks import Ids
from biosqueeze.data.tokenizer import Tokenizer
from biosqueeze.errors import SqueezeError
from biosqueeze.tasks import Dataset, Formulation
from biosqueeze.tasks.encoding.crf_decoding import CrfParameters, marginals, viterbi
from biosqueeze.tasks.encoding.sequences import softmax
from biosqueeze.tasks.encoding.tag_schemes import (
    EntitySpan,
    canonical_labels,
    convert,
    inside,
    is_tag,
    keep_types,
    scheme_of,
    spans_of,
)
from biosqueeze.tasks.encoding.word_windows import Floats, TagIds, TagWindow, tag_windows, word_logits
from biosqueeze.tasks.metrics.entities import score_entities
from biosqueeze.tasks.readers import tagged_sources as _sources
from biosqueeze.tasks.readers.tag_columns import unlabelled_sentence
from biosqueeze.tasks.readers.tagged import Sentence

_FEW_TAGS = 3  # too few to tell a header from a damaged tag


@dataclass(frozen=True)
class Kind:
    """Named entity recognition.

    A model is trained on labels in `formulation.scheme`, or in the scheme of the data. `encode` converts tags to that
    scheme, and `decode` converts back: predictions are BIO, and are scored as entities against the unconverted data.
    IO has a cost: of adjacent entities of one type only one can be found, with the wrong extent.
    """

    formulation: Formulation = field(default_factory=Formulation)
    crf: CrfParameters = field(default_factory=dict, compare=False)  # empty without a CRF

    HEAD: ClassVar[str] = "token-classification"
    FORM: ClassVar[str] = "words with tags, or texts with entities"
    METRIC: ClassVar[str] = "f1"
    CONFIDENCE: ClassVar[float] = 0.8
    USES: ClassVar[tuple[str, ...]] = ("column", "types", "merge_types", "scheme", "label_all_pieces", "tagger")

    def with_scheme(self, scheme: str) -> Self:
        """Return the kind for labels of this tag scheme."""
        tag_scheme = cast(Literal["BIO", "IO", "BIOUL"], scheme)
        return replace(self, formulation=replace(self.formulation, scheme=tag_scheme))

    def with_decoding_parameters(self, parameters: CrfParameters) -> Self:
        """Return the kind that decodes with a CRF."""
        return replace(self, crf=parameters)

    def sniff(self, sample: SourceSample) -> float:
        """Return `CONFIDENCE` for tagged sentences and annotated texts, also below a header, which `read` explains."""
        sentences = _sources.sniff_tags(sample, self.formulation)
        tags = list(chain.from_iterable(sentences))
        below = tags[1:] if len(tags) > _FEW_TAGS else tags
        return self.CONFIDENCE if below and all(map(is_tag, below)) else 0.0

    def splits(self, source: str) -> tuple[str, ...]:
        """Return the splits that a source has."""
        return available_splits(source)

    def read(self, source: str, splits: Sequence[str]) -> Dataset:
        """Read tagged sentences: see `readers.tagged_sources.read`."""
        return _sources.read(source, splits, self.formulation)

    def encode(
        self,
        examples: Sequence[Sentence],
        labels: Sequence[str],
        tokenizer: Tokenizer,
        max_length: int,
    ) -> list[TagWindow]:
        """Cut sentences into windows of at most max_length tokens, special tokens included, in order.

        A long sentence becomes overlapping windows, and each word belongs to the window with most of its context:
        nothing is truncated, so no entity is lost. A word's label is on its first sub-word, from which `decode` reads
        the prediction. With `formulation.label_all_pieces` the inside version of the label (I for B) is on its other
        sub-words (the CompactBioBERT paper, section 5).

        Args:
            examples: sentences.
            labels: label names by id, in the scheme that is trained.
            tokenizer: a fast tokenizer.
            max_length: tokens in a window.

        Raises:
            SqueezeError: a tag is not among the labels, or max_length leaves no room for text.
        """
        return tag_windows(examples, self._tag_ids(examples, labels), tokenizer, max_length)

    def decode(
        self,
        windows: Sequence[TagWindow],
        logits: Sequence[Floats],
        examples: Sequence[Sentence],
        labels: Sequence[str],
    ) -> list[list[str]]:
        """Return the BIO tag of every word; with `formulation.types`, tags of other types become O, as in the data.

        Args:
            windows: as returned by `encode`.
            logits: for each window (length or more, labels).
            examples: the encoded sentences.
            labels: label names by id. Predicted BIO tags stay as they are; tags of other schemes are converted to
                entities, as leniently as in scoring, and then to BIO.
        """
        rows = word_logits(windows, logits, examples, len(labels))
        ids = (best_tags(part, self.crf, sentence.starts) for part, sentence in zip(rows, examples, strict=True))
        tags = [self._tags(sentence, labels) for sentence in ids]
        return tags if scheme_of(labels) == "BIO" else [convert(sentence, "BIO") for sentence in tags]

    def score(self, gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
        """Return precision, recall and F1 over whole entities: see `score_entities`."""
        return score_entities(gold, predicted)

    def example_from_record(self, record: Mapping[str, Any]) -> Sentence:
        """Return a sentence from the `tokens` of a record, or the words of its `text`."""
        return unlabelled_sentence(record, self.formulation)

    def describe(
        self,
        windows: Sequence[TagWindow],
        logits: Sequence[Floats],
        examples: Sequence[Sentence],
        labels: Sequence[str],
    ) -> list[dict[str, Any]]:
        """Return the entities of each example; the score is the mean probability of their words' tags.

        With `formulation.types`, entities of other types are left out.

        Returns:
            for each example {"entities": [{"type", "text", "start", "end", "words", "score"}]}: start and end in
            characters, if the example has a text, and words as [first, last + 1].
        """
        rows = word_logits(windows, logits, examples, len(labels))
        return [
            {"entities": self._entities(sentence, part, labels)} for sentence, part in zip(examples, rows, strict=True)
        ]

    def _entities(self, sentence: Sentence, rows: Floats, labels: Sequence[str]) -> list[dict[str, Any]]:
        best = best_tags(rows, self.crf, sentence.starts)
        probabilities = tag_marginals(rows, self.crf, sentence.starts)[np.arange(len(best)), best]  # (words,)
        tags = self._tags(best, labels)
        bounds = pairwise((0, *sentence.starts, len(tags)))  # no entity continues from one sentence to the next
        spans = [EntitySpan(a + s.start, a + s.end, s.type) for a, b in bounds for s in spans_of(tags[a:b])]
        return [_described(sentence, span, float(probabilities[span.start : span.end].mean())) for span in spans]

    def _tags(self, ids: Ids, labels: Sequence[str]) -> list[str]:
        """Return tags by their ids, without those of types that are left out."""
        types = () if self.formulation.merge_types else self.formulation.types
        return list(keep_types([labels[label] for label in ids.tolist()], types))

    def _tag_ids(self, examples: Sequence[Sentence], labels: Sequence[str]) -> list[TagIds]:
        """Return the label ids of every example's words, in the scheme of the labels."""
        ids = {label: number for number, label in enumerate(canonical_labels(labels))}
        scheme = scheme_of(labels)
        tag_ids = []
        for sentence in examples:
            tags = convert(sentence.tags, scheme)
            rest = _ids(map(inside, tags), ids) if self.formulation.label_all_pieces else None
            tag_ids.append(TagIds(_ids(tags, ids), rest))
        return tag_ids


def best_tags(rows: Floats, crf: CrfParameters | None, starts: Sequence[int]) -> Ids:
    """Return the likeliest label ids, (words,): of each word alone, or with a CRF of each sentence as a whole.

    Args:
        rows: the logits of the words, (words, labels).
        crf: the parameters of a CRF, if there is one.
        starts: words at which another sentence begins.
    """
    if not crf:
        ids: Ids = rows.argmax(axis=-1)
        return ids
    return np.concatenate([viterbi(part, crf) for part in np.split(rows, starts)])


def tag_marginals(rows: Floats, crf: CrfParameters | None, starts: Sequence[int]) -> NDArray[np.float64]:
    """Return the probability of every label of every word, (words, labels): softmax, or CRF marginals.

    Args:
        rows: see `best_tags`.
        crf: see `best_tags`.
        starts: see `best_tags`.
    """
    if not crf:
        return softmax(rows)
    return np.concatenate([marginals(part, crf) for part in np.split(rows, starts)])


def _ids(tags: Iterable[str], ids: Mapping[str, int]) -> Ids:
    try:
        return np.array([ids[tag] for tag in tags], dtype=np.int64)
    except KeyError as error:
        raise SqueezeError(
            f"the data have the label {error.args[0]}, and the model has only {', '.join(ids)}; "
            "give the data that it was fine-tuned on, or fine-tune it on these"
        ) from error


def _described(sentence: Sentence, span: EntitySpan, score: float) -> dict[str, Any]:
    entity: dict[str, Any] = {"type": span.type, "text": " ".join(sentence.words[span.start : span.end])}
    if sentence.offsets:
        start, end = sentence.offsets[span.start][0], sentence.offsets[span.end - 1][1]
        entity |= {"text": sentence.text[start:end], "start": start, "end": end}
    return {**entity, "words": [span.start, span.end], "score": round(score, 6)}
