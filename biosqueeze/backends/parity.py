"""Compare the outputs of two predictors on padded batches of more than one shape."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biosqueeze.backends import Batch, Predictor
from biosqueeze.data.output_types import TOKENS, OutputType

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Parity:
    """How far a candidate's outputs are from the reference's, on real tokens only."""

    max_difference: float
    """Largest absolute difference of an output; infinite where shapes differ, or an output is infinite or NaN."""
    largest: float
    """Largest absolute value of the reference's outputs."""
    mean_difference: float
    cosine: float
    """Mean cosine of the output vectors."""
    agreement: float
    """Share of equal predictions, or the correlation of scores: see `OutputType.agreement`."""
    tokens: int
    """How many output vectors were compared: real tokens, or sequences for a classifier of sequences."""

    def as_dict(self) -> dict[str, float]:
        """Return the fields for the manifest."""
        return asdict(self)


def random_batches(vocabulary: int, longest: int, padding: int, seed: int = 0) -> tuple[dict[str, Ints], ...]:
    """Draw three batches of random ids with different shapes; the first two have rows padded to different lengths.

    Args:
        vocabulary: its size; all ids but `padding` are drawn.
        longest: the most tokens in a row.
        padding: id of the padding token.
        seed: of the ids.
    """
    random = np.random.default_rng(seed)
    return tuple(
        _ragged(random, vocabulary, padding, [max(1, min(length, longest)) for length in lengths])
        for lengths in ((24, 17, 9, 3), (131, 64), (7,))
    )


def _ragged(random: np.random.Generator, vocabulary: int, padding: int, lengths: Sequence[int]) -> dict[str, Ints]:
    shape = (len(lengths), max(lengths))
    ids = random.integers(0, vocabulary, shape)
    # RoBERTa numbers positions by the ids that are not padding, so no real token may have the padding's id.
    ids = np.where(ids == padding, (padding + 1) % vocabulary, ids)
    mask = np.arange(shape[1]) < np.array(lengths)[:, None]  # (batch, length)
    return {"input_ids": np.where(mask, ids, padding), "attention_mask": mask.astype(np.int64)}


def compare(
    reference: Predictor, candidate: Predictor, batches: Sequence[Batch], output_type: OutputType = TOKENS
) -> Parity:
    """Run both predictors on every batch, and compare their outputs on real tokens.

    One batch at a time: the logits of a language model over a whole vocabulary do not fit in memory all at once.

    Args:
        reference: the predictor that is right.
        candidate: the predictor that is compared with it.
        batches: padded.
        output_type: of the model, which decides what a prediction is.
    """
    parts = [_compare_batch(reference, candidate, batch, output_type) for batch in batches]
    weights = np.array([part.vectors for part in parts])
    predictions = (np.concatenate([getattr(part, side) for part in parts]) for side in ("reference", "candidate"))
    return Parity(
        max_difference=max(part.max_difference for part in parts),
        largest=max(part.largest for part in parts),
        mean_difference=float(np.average([part.mean for part in parts], weights=weights)),
        cosine=float(np.average([part.cosine for part in parts], weights=weights)),
        agreement=output_type.agreement(*predictions),
        tokens=int(weights.sum()),
    )


@dataclass(frozen=True)
class _BatchComparison:
    """The comparison of one batch, with the predictions of both sides, (predictions,)."""

    max_difference: float
    largest: float
    mean: float
    cosine: float
    reference: NDArray[Any]
    candidate: NDArray[Any]
    vectors: int  # how many output vectors were compared


def _compare_batch(
    reference: Predictor, candidate: Predictor, batch: Batch, output_type: OutputType
) -> _BatchComparison:
    logits = tuple(predictor.predict(batch) for predictor in (reference, candidate))
    expected, actual = (output_type.vectors(each, batch) for each in logits)
    if expected.shape != actual.shape or not (np.isfinite(expected).all() and np.isfinite(actual).all()):
        zeros = np.zeros(len(expected), dtype=np.intp)
        return _BatchComparison(float("inf"), 0.0, float("inf"), 0.0, zeros, zeros - 1, len(expected))
    difference = np.abs(expected - actual)
    norms = np.linalg.norm(expected, axis=-1) * np.linalg.norm(actual, axis=-1)
    cosines = (expected * actual).sum(-1) / np.maximum(norms, 1e-12)
    return _BatchComparison(
        max_difference=float(difference.max()),
        largest=float(np.abs(expected).max()),
        mean=float(difference.mean()),
        cosine=float(cosines.mean()),
        reference=output_type.predictions(logits[0], batch),
        candidate=output_type.predictions(logits[1], batch),
        vectors=len(expected),
    )
