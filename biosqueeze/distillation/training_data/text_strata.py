"""Draw unlabelled text like the labelled data: with the labels that the teacher predicts as frequent as there.

A corpus often is about other things than the labelled data. Drawn uniformly, most of it then has no label at all for
the student to learn, and the labels that it has are not those of the task. So the sequences are divided into strata by
the rarest label that the teacher predicts in them, and each epoch has as many of each stratum, for the text as for the
labelled data (stratified sampling).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel

from biosqueeze.backends.predict import predict_all
from biosqueeze.backends.torch import TorchPredictor
from biosqueeze.data.collate import Features
from biosqueeze.data.feature_keys import INPUT_IDS
from biosqueeze.data.output_types import OutputType
from biosqueeze.models.device import own_device
from biosqueeze.progress import note, track, warn
from biosqueeze.training.sources import Blocks, Ids, Stratum

SAMPLE = 1_000
"""Sequences of the labelled data and of the text that are compared."""
MOST_SEQUENCES, MOST_TOKENS = 20_000, 800_000
"""Of the unlabelled text that the teacher is run on, at most."""
_BATCH = 32
_DIFFERENT = 0.15
"""Total variation distance of the strata's shares from which on the text is not drawn uniformly."""


@dataclass(frozen=True)
class LabelPredictor:
    """Predicts which labels a sequence has."""

    model: PreTrainedModel
    output_type: OutputType
    pad_token_id: int
    special_ids: Sequence[int]
    """Of tokens whose predictions mean nothing, such as [CLS]."""
    precision: str

    def holds(self, features: Sequence[Features]) -> NDArray[np.bool_]:
        """Return which classes are predicted at least once in each sequence, (sequences, classes)."""
        device = own_device()
        predictor = TorchPredictor(self.model.to(device), self.precision, str(device))  # type: ignore[arg-type]
        logits = predict_all(predictor, features, self.pad_token_id, _BATCH)
        pairs = zip(features, logits, strict=True)
        return np.stack([self.output_type.predicted_classes(self._of_text(*pair)) for pair in pairs])

    def _of_text(self, features: Features, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the logits without those of special tokens; those of a whole sequence as they are."""
        return logits[~np.isin(features[INPUT_IDS], self.special_ids)] if logits.ndim == 2 else logits

    def background(self, labelled: Sequence[Features], classes: int) -> int | None:
        """Return the commonest label of labelled examples, if the output type has a background class."""
        if not self.output_type.has_background:
            return None
        counts = self.output_type.class_counts(labelled, classes)
        return None if counts is None else int(counts.argmax())


@dataclass(frozen=True)
class LabelStrata:
    """The strata: c + 1 where class c is the rarest predicted one, 0 where none is but the background class."""

    frequencies: NDArray[np.float64]
    """Share of the labelled sequences with each class, (classes,)."""
    background: int | None
    """The class that means that there is nothing, such as O of a tagger; None where classes are independent."""

    def of_sequences(self, holds: NDArray[np.bool_]) -> Ids:
        """Return the stratum of each sequence, (sequences,), from the classes that it has, (sequences, classes)."""
        counted = holds.copy()
        if self.background is not None:
            counted[:, self.background] = False
        rarity = np.where(counted, 1 - self.frequencies, -1.0)
        return np.where(counted.any(axis=1), rarity.argmax(axis=1) + 1, 0).astype(np.int64)

    def shares(self, strata: Ids) -> NDArray[np.float64]:
        """Return the share of each stratum, (1 + classes,)."""
        return np.bincount(strata, minlength=len(self.frequencies) + 1) / max(1, len(strata))


def text_strata(
    predictor: LabelPredictor, labelled: Sequence[Features], text: Blocks, wanted: int, seed: int
) -> tuple[Stratum, ...] | None:
    """Return the strata of the text and how much of each is drawn in an epoch; None to draw it uniformly.

    Args:
        predictor: the teacher.
        labelled: encoded labelled examples.
        text: unlabelled sequences.
        wanted: sequences of the text in an epoch, at most.
        seed: of the samples.
    """
    rng = np.random.default_rng(seed)
    sample = rng.permutation(len(labelled))[:SAMPLE]
    order = _sample_of(text, rng)
    with track("compare the text with the labelled data", len(sample) + len(order), at_most=True) as bar:
        known = predictor.holds([labelled[item] for item in sample])
        bar.advance(len(sample))
        strata = LabelStrata(known.mean(axis=0), predictor.background(labelled, known.shape[1]))
        aim = strata.shares(strata.of_sequences(known))
        found = np.empty(0, dtype=np.int64)
        while len(found) < len(order) and (not len(found) or _lacks_text(found, aim, wanted)):
            part = order[len(found) : len(found) + SAMPLE]
            found = np.concatenate([found, strata.of_sequences(predictor.holds([text.features(i) for i in part]))])
            bar.advance(len(part))
            if len(found) == len(part) and _distance(strata.shares(found), aim) < _DIFFERENT:
                note(f"unlabelled text: {_comparison(strata.shares(found), aim)}; it is drawn uniformly")
                return None
    return _strata(order[: len(found)], found, aim, wanted)


def _sample_of(text: Blocks, rng: np.random.Generator) -> Ids:
    """Draw the sequences that the teacher is run on."""
    items = rng.choice(len(text), size=min(MOST_SEQUENCES, len(text)), replace=False)
    return items[: max(SAMPLE, int(np.searchsorted(text.lengths_of(items).cumsum(), MOST_TOKENS)))]


def _lacks_text(found: Ids, aim: NDArray[np.float64], wanted: int) -> bool:
    """Return whether a stratum has fewer sequences than are drawn in an epoch."""
    return bool((np.bincount(found, minlength=len(aim)) < np.round(aim * wanted)).any())


def _distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the total variation distance of two distributions over strata."""
    return float(np.abs(one - other).sum() / 2)


def _strata(items: Ids, found: Ids, aim: NDArray[np.float64], wanted: int) -> tuple[Stratum, ...] | None:
    """Divide the sequences into strata with as many draws as `aim` and their numbers allow.

    Where labels are rarer in the text than in the labelled data, less of what has none is drawn too.
    """
    available, target = np.bincount(found, minlength=len(aim)), np.round(aim * wanted).astype(np.int64)
    if not target.any():
        return None  # an epoch has fewer sequences than there are strata
    drawn = np.minimum(available, target)
    if aim[0] < 1:
        drawn[0] = min(drawn[0], round(drawn[1:].sum() * aim[0] / (1 - aim[0])))
    shares = available / max(1, len(found))
    if not drawn.sum():
        warn(f"unlabelled text: {_comparison(shares, aim)}; it has none of their labels and is not used")
        return ()
    note(
        f"unlabelled text: {_comparison(shares, aim)}; drawn to match: {drawn.sum():,} sequences in an epoch, "
        f"{1 - drawn[0] / drawn.sum():.0%} of them with a label"
    )
    return tuple(Stratum(items[found == number], int(count)) for number, count in enumerate(drawn) if count)


def _comparison(text: NDArray[np.float64], labelled: NDArray[np.float64]) -> str:
    return f"the teacher predicts a label in {1 - text[0]:.0%} of it, and in {1 - labelled[0]:.0%} of the labelled data"
