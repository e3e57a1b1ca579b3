"""Relation extraction: the relation between two entities of a sentence (ChemProt, DDI, GAD, EU-ADR, i2b2).

How entities are written and which tokens represent a relation follows the PubMedBERT study, section 5 and table 12; see
`encoding.entities`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.feature_keys import INPUT_IDS, LABELS
from biosqueeze.data.records.sample import SourceSample
from biosqueeze.data.text.blocks import Frame, Ids, room_within
from biosqueeze.data.tokenizer import Tokenizer
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.progress import CountedWarning, warn
from biosqueeze.tasks import Dataset
from biosqueeze.tasks.encoding.entities import MARKERS, EntitySegment, PairKind, Passage, Relation, segments_of
from biosqueeze.tasks.encoding.entity_truncation import (
    EntityPieces,
    TruncatedText,
    entity_pieces,
    truncate_around_entities,
    unknown_texts,
)
from biosqueeze.tasks.encoding.sequences import Floats, SequenceWindow, id_of
from biosqueeze.tasks.metrics.labels import score_relations
from biosqueeze.tasks.readers import relations as _relations
from biosqueeze.tasks.readers.entity_pairs import no_entities
from biosqueeze.tasks.sequence_kind import SequenceKind


@dataclass(frozen=True)
class Kind(SequenceKind):
    """One label for a sentence and two entities in it; predictions also of all pairs in a text with entities."""

    FORM: ClassVar[str] = "sentences with two entities and a label"
    METRIC: ClassVar[str] = "f1"
    USES: ClassVar[tuple[str, ...]] = ("column", "negative", "entities", "representation")

    pairs: tuple[PairKind, ...] = ()  # kinds of pairs that may be related in a text with entities

    def __post_init__(self) -> None:
        """Check the representation.

        Raises:
            UsageError: it compares two texts, or needs markers that the input has not.
        """
        if self.formulation.representation == "cosine":
            raise UsageError(
                "--representation cosine compares two texts; a relation takes cls, mentions or entity-starts"
            )
        _relations.entities_of(self.formulation)

    def sniff(self, sample: SourceSample) -> float:
        """Return 0.6 for sentences with two entities and a label, and 0.3 for sentences without known entities."""
        relations = _relations.first_relations(sample, self.formulation)
        if not relations:
            return 0.0
        return 0.6 if any(each.mentions is not None or each.replaced for each in relations) else 0.3

    def read(self, source: str, splits: Sequence[str]) -> Dataset:
        """Read some splits: see `readers.relations.read`."""
        return _relations.read(self.formulation, source, splits, self.pairs)

    def example_from_record(self, record: Mapping[str, Any]) -> Relation | Passage:
        """Return an unlabelled example: see `readers.relations.unlabelled_passage` and `unlabelled_relation`."""
        passage = _relations.unlabelled_passage(self.formulation, record, self.pairs)
        return passage or _relations.unlabelled_relation(self.formulation, record)

    def encode(
        self,
        examples: Sequence[Relation | Passage],
        labels: Sequence[str],
        tokenizer: Tokenizer,
        max_length: int,
    ) -> list[SequenceWindow]:
        """Return one window per pair; long sentences are truncated around their two entities, with a warning.

        Args:
            examples: relations, or passages, which have any number of pairs.
            labels: label names by id.
            tokenizer: a fast tokenizer.
            max_length: tokens in a window, special ones included.

        Returns:
            windows with the features `input_ids` (length,); `labels` () if the example is labelled; and unless the
            representation is cls, `entities` (length,): bit 1 on the sub-words of the first entity, bit 2 on those of
            the second (3 on those of both, if they overlap), 0 elsewhere. For mentions these are the sub-words of the
            mentions or dummies, without markers; for entity-starts the opening marker alone.

        Raises:
            SqueezeError: an example has an unknown label, or there is no room for both entities.
        """
        frame = Frame.of(tokenizer)
        room = room_within(max_length, frame)
        entities = _relations.entities_of(self.formulation)
        owners = [(number, pair) for number, example in enumerate(examples) for pair in _pairs_of(example)]
        texts = [segments_of(pair, entities) for _, pair in owners]
        self._warn_of_unknown_tokens(texts, tokenizer)
        ids = {label: index for index, label in enumerate(labels)}
        windows, truncated = [], []
        every = entity_pieces(texts, self.formulation.representation, tokenizer)
        for (number, pair), pieces in zip(owners, every, strict=True):
            self._check_entities(pair, pieces)
            truncated.append(truncate_around_entities(pieces, room))
            features = self._features(pieces, truncated[-1].indices, frame)
            windows.append(SequenceWindow(number, {**features, **_label_feature(pair, ids)}))
        _warn_of_truncation(truncated, max_length)
        return windows

    def score(self, gold: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
        """Score the labels other than the negative one.

        Returns:
            f1, precision, recall: micro averages over the positive labels (the binary scores if there is one);
            macro_f1: the mean of their F1; accuracy: over all labels; f1-LABEL and support-LABEL for each positive
            label. The labels are those in gold or predicted; an undefined score is 0.
        """
        names = sorted({*gold, *predicted})
        negative = _relations.negative_of(names, self.formulation.negative)
        return score_relations(gold, predicted, [name for name in names if name != negative])

    def describe(
        self,
        windows: Sequence[SequenceWindow],
        logits: Sequence[Floats],
        examples: Sequence[Relation | Passage],
        labels: Sequence[str],
    ) -> list[dict[str, Any]]:
        """Return for each relation its label, the probability of every label, and the entities in the unmarked text.

        Of a passage the `relations` are returned, with offsets in its text: the pairs whose label is not the negative
        one, each with its probability.
        """
        order = np.argsort([window.example for window in windows], kind="stable")
        of_pairs = [SequenceWindow(number, windows[index].features) for number, index in enumerate(order)]
        pairs = [pair for example in examples for pair in _pairs_of(example)]
        rows = iter(super().describe(of_pairs, [logits[index] for index in order], pairs, labels))
        negative = _relations.negative_of(labels, self.formulation.negative)
        return [_described(example, [next(rows) for _ in _pairs_of(example)], negative) for example in examples]

    def _features(self, pieces: EntityPieces, indices: Ids, frame: Frame) -> dict[str, NDArray[Any]]:
        features = {INPUT_IDS: frame.around(pieces.ids[indices])}
        if self.formulation.representation != "cls":
            margins = (len(frame.before), len(frame.after))
            features["entities"] = np.pad(pieces.entities[indices], margins)
        return features

    def _check_entities(self, example: Relation, pieces: EntityPieces) -> None:
        """Raise an error if the representation needs entities, and one is unknown or without any sub-word."""
        if example.mentions is None:
            if self.formulation.representation != "cls":
                raise no_entities(example.where)
        elif pieces.first is None or pieces.second is None:
            missing = example.mentions[0 if pieces.first is None else 1]
            raise SqueezeError(
                f"{example.where}: the tokenizer returns no token for the entity "
                f"{example.text[missing.start : missing.end]!r}; correct the text, or replace it with --entities dummy"
            )

    def _warn_of_unknown_tokens(self, texts: Sequence[Sequence[EntitySegment]], tokenizer: Tokenizer) -> None:
        """Warn of dummies or markers that the vocabulary, perhaps a trimmed one, lacks."""
        match _relations.entities_of(self.formulation):
            case "markers":
                inserted = set(MARKERS.values())
            case "dummy":
                inserted = {segment.text for segments in texts for segment in segments if segment.belongs}
            case _:
                inserted = set()
        unknown = unknown_texts(sorted(inserted), tokenizer)
        if unknown:
            warn(
                f"the vocabulary lacks {', '.join(unknown)}, which mark{'s' * (len(unknown) == 1)} the entities: the "
                "tokenizer returns an unknown token there; choose other --entities, or keep these in the vocabulary"
            )


def _label_feature(example: Relation, ids: Mapping[str, int]) -> dict[str, NDArray[Any]]:
    if example.gold is None:
        return {}
    return {LABELS: np.array(id_of(example.gold, ids, example.where), dtype=np.int64)}


def _warn_of_truncation(texts: Sequence[TruncatedText], max_length: int) -> None:
    counts = Counter(text.cut for text in texts)
    cut = len(texts) - counts["none"]
    if not cut:
        return
    explanations = {
        "ends": "to a window around their two entities",
        "middle": "between their entities, which are too far apart",
        "end": "at their end, as their entities are unknown",
    }
    how = ", ".join(f"{counts[name]:,} {explanation}" for name, explanation in explanations.items() if counts[name])
    what = f"sentences are longer than {max_length} tokens and were cut"
    warn(CountedWarning(cut, what, len(texts), f": {how}; --max-length sets this, up to the model's limit"))


def _pairs_of(example: Relation | Passage) -> tuple[Relation, ...]:
    return example.pairs if isinstance(example, Passage) else (example,)


def _described(example: Relation | Passage, rows: Sequence[Mapping[str, Any]], negative: str | None) -> dict[str, Any]:
    """Return the description of an example from those of its pairs."""
    if isinstance(example, Relation):
        return {**rows[0], "text": example.text, **_entities_in(example)}
    relations = [
        {"label": row["label"], "score": row["score"], **_entities_in(pair, start)}
        for row, pair, start in zip(rows, example.pairs, example.starts, strict=True)
        if row["label"] != negative
    ]
    return {"relations": relations}


def _entities_in(pair: Relation, start: int = 0) -> dict[str, Any]:
    """Return the entities if they are known, with their offsets in a text in which the pair's begins at `start`."""
    entities = (
        {
            "start": start + mention.start,
            "end": start + mention.end,
            "text": pair.text[mention.start : mention.end],
            "type": mention.type,
        }
        for mention in pair.mentions or ()
    )
    return dict(zip(("head", "tail"), entities, strict=False))
