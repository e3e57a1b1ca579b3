"""Relation extraction: which relation a sentence states between two of its entities (ChemProt, DDI, GAD, EU-ADR, i2b2).

How the entities are shown and where the relation is read from follows the PubMedBERT study, section 5 and table 12; see
`tasks/_entities.py`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.blocks import Frame, Ids, room_within
from biosqueeze.data.feature_keys import LABELS
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.progress import CountedWarning, warn
from biosqueeze.tasks import Dataset
from biosqueeze.tasks.encoding.entities import MARKERS, Relation, Segment, shown
from biosqueeze.tasks.encoding.entity_truncation import Kept, Pieces, fitted, pieces_of, unknown_signs
from biosqueeze.tasks.encoding.sequences import Floats, SequenceWindow, id_of
from biosqueeze.tasks.readers import relations as _relations
from biosqueeze.tasks.readers.entity_pairs import no_entities
from biosqueeze.tasks.sequence_kind import Answering

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Kind(Answering):
    """One label for a sentence and two entities in it."""

    METRIC: ClassVar[str] = "f1"
    USES: ClassVar[tuple[str, ...]] = ("column", "negative", "entities", "representation")

    def __post_init__(self) -> None:
        """Refuse what is for pairs of texts.

        Raises:
            UsageError: the representation compares two texts.
        """
        if self.form.representation == "cosine":
            raise UsageError(
                "--representation cosine compares two texts; a relation takes cls, mentions, entity-starts"
            )

    def read(self, source: str, splits: Sequence[str]) -> Dataset:
        """Read some splits; see `_relations.read`."""
        return _relations.read(self.form, source, splits)

    def pose(self, record: Mapping[str, Any]) -> Relation:
        """An unlabelled example; see `_relations.unlabelled_relation`."""
        return _relations.unlabelled_relation(self.form, record)

    def encode(
        self,
        examples: Sequence[Relation],
        labels: Sequence[str],
        tokenizer: "PreTrainedTokenizerBase",
        max_length: int,
    ) -> list[SequenceWindow]:
        """One window per example; a long sentence is cut around its two entities, and how many are is said.

        Args:
            examples: relations.
            labels: label names by id.
            tokenizer: a fast tokenizer.
            max_length: tokens in a window, special ones included.

        Returns:
            windows with the features `input_ids` (length,); `labels` () where gold is known; and unless the
            representation is cls, `entities` (length,): bit 1 on the pieces of the first entity, bit 2 on those of the
            second (so 3 on pieces of both, where they overlap), 0 elsewhere. For mentions these are the pieces of the
            mentions or dummies, without markers; for entity-starts the opening marker alone.

        Raises:
            SqueezeError: a label is none of these, or there is no room for both entities.
        """
        frame = Frame.of(tokenizer)
        room = room_within(max_length, frame)
        entities = _relations.entities_of(self.form)
        texts = [shown(example, entities) for example in examples]
        self._say_unknown(texts, tokenizer)
        ids = {label: index for index, label in enumerate(labels)}
        windows, kept = [], []
        for number, pieces in enumerate(pieces_of(texts, self.form.representation, tokenizer)):
            self._check_found(examples[number], pieces)
            kept.append(fitted(pieces, room))
            features = {**self._features(pieces, kept[-1].places, frame), **_truth(examples[number], ids)}
            windows.append(SequenceWindow(number, features))
        _say_cut(kept, max_length)
        return windows

    def score(self, gold: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
        """Scores over the labels other than the negative one.

        Returns:
            f1, precision, recall: micro averages over the positive labels (with one of them, the binary scores);
            macro_f1: the mean of their F1; accuracy: over all labels; f1-LABEL and support-LABEL for each of them.
            Labels count that are in gold or predicted; what is undefined is 0.
        """
        names = sorted({*gold, *predicted})
        negative = _relations.negative_of(names, self.form.negative)
        return relation_scores(gold, predicted, [name for name in names if name != negative])

    def describe(
        self,
        windows: Sequence[SequenceWindow],
        logits: Sequence[Floats],
        examples: Sequence[Relation],
        labels: Sequence[str],
    ) -> list[dict[str, Any]]:
        """For each example its label, the probability of every label, and the entities in the text without marks."""
        rows = super().describe(windows, logits, examples, labels)
        return [{**row, **_entities_in(example)} for row, example in zip(rows, examples, strict=True)]

    def _features(self, pieces: Pieces, places: Ids, frame: Frame) -> dict[str, NDArray[Any]]:
        features = {"input_ids": frame.around(pieces.ids[places])}
        if self.form.representation != "cls":
            margins = (len(frame.before), len(frame.after))
            features["entities"] = np.pad(pieces.entities[places], margins)
        return features

    def _check_found(self, example: Relation, pieces: Pieces) -> None:
        """Both entities must have a piece, or there would be nothing to read from."""
        if example.mentions is None:
            if self.form.representation != "cls":
                raise no_entities(example.where)
        elif pieces.first is None or pieces.second is None:
            missing = example.mentions[0 if pieces.first is None else 1]
            raise SqueezeError(
                f"{example.where}: the tokenizer makes nothing of the entity "
                f"{example.text[missing.start : missing.end]!r}; mend the text, or show it with --entities dummy"
            )

    def _say_unknown(self, texts: Sequence[Sequence[Segment]], tokenizer: "PreTrainedTokenizerBase") -> None:
        """Warn of dummies or markers that the vocabulary, perhaps a trimmed one, has no pieces for."""
        match _relations.entities_of(self.form):
            case "markers":
                signs = set(MARKERS.values())
            case "dummy":
                signs = {segment.text for segments in texts for segment in segments if segment.shows}
            case _:
                signs = set()
        unknown = unknown_signs(sorted(signs), tokenizer)
        if unknown:
            warn(
                f"the tokenizer cannot spell {', '.join(unknown)}, which show{'s' * (len(unknown) == 1)} the entities, "
                "and reads an unknown token there; choose other --entities, or keep these in the vocabulary"
            )


def relation_scores(gold: Sequence[str], predicted: Sequence[str], positive: Sequence[str]) -> dict[str, float]:
    """Micro and macro F1 over positive labels, each label's F1, and the accuracy over all.

    Equal to scikit-learn's `f1_score(gold, predicted, labels=positive, average="micro")` and so on, with
    `zero_division=0`.

    Args:
        gold: the true label of each example.
        predicted: as gold.
        positive: the labels that stand for a relation.
    """
    support, named = Counter(gold), Counter(predicted)
    right = Counter(truth for truth, guess in zip(gold, predicted, strict=True) if truth == guess)
    hits, there, said = (sum(counts[label] for label in positive) for counts in (right, support, named))
    f1 = {label: _ratio(2 * right[label], support[label] + named[label]) for label in positive}
    return {
        "f1": _ratio(2 * hits, there + said),
        "macro_f1": _ratio(sum(f1.values()), len(f1)),
        "precision": _ratio(hits, said),
        "recall": _ratio(hits, there),
        "accuracy": _ratio(right.total(), len(gold)),
        **{f"f1-{label}": value for label, value in f1.items()},
        **{f"support-{label}": support[label] for label in positive},
    }


def _ratio(part: float, whole: int) -> float:
    return part / whole if whole else 0.0


def _truth(example: Relation, ids: Mapping[str, int]) -> dict[str, NDArray[Any]]:
    if example.gold is None:
        return {}
    return {LABELS: np.array(id_of(example.gold, ids, example.where), dtype=np.int64)}


def _say_cut(kept: Sequence[Kept], max_length: int) -> None:
    counts = Counter(each.how for each in kept)
    cut = len(kept) - counts["whole"]
    if not cut:
        return
    ways = {
        "around": "to a window around their two entities",
        "middle": "between their entities, which stand too far apart",
        "end": "at their end, for their entities are not known",
    }
    how = ", ".join(f"{counts[name]:,} {way}" for name, way in ways.items() if counts[name])
    what = f"sentences are longer than {max_length} tokens and were cut"
    warn(CountedWarning(cut, what, len(kept), f": {how}; --max-length sets this, up to what the model takes"))


def _entities_in(example: Relation) -> dict[str, Any]:
    """The text, and the entities with their offsets in it, where they are known."""
    if example.mentions is None:
        return {"text": example.text}
    entities = (
        {"start": one.start, "end": one.end, "text": example.text[one.start : one.end], "type": one.type}
        for one in example.mentions
    )
    return {"text": example.text, **dict(zip(("head", "tail"), entities, strict=True))}
