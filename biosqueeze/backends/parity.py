"""Whether two predictors give the same answers, on padded batches of more than one shape."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biosqueeze.backends import Batch, Predictor

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

_LEAST_TOKENS = 20
_OF_SEQUENCES = ("single", "multi", "score")


@dataclass(frozen=True)
class Parity:
    """How far a candidate's outputs are from the reference's, on real tokens only."""

    max_difference: float
    """Largest absolute difference of an output; infinite where shapes differ or a number is none."""
    mean_difference: float
    cosine: float
    """Mean cosine of the output vectors."""
    agreement: float
    """Share of equal answers: mean over the reference's commonest answer and all its other answers, so that a model
    which collapsed to the commonest (a tagger that says only O) cannot score above one half. Of scores, which are no
    answers that could be equal, their correlation."""
    tokens: int

    def as_dict(self) -> dict[str, float]:
        """For the manifest."""
        return asdict(self)


def random_batches(vocabulary: int, longest: int, padding: int, seed: int = 0) -> tuple[dict[str, Ints], ...]:
    """Three batches of random ids, of different shapes, the first two ragged: rows padded to different lengths.

    Args:
        vocabulary: ids are drawn below it, without `padding`.
        longest: no batch is longer.
        padding: id of the pad token.
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
    # RoBERTa counts its positions by ids that are not padding: none may stand among the real ones.
    ids = np.where(ids == padding, (padding + 1) % vocabulary, ids)
    mask = np.arange(shape[1]) < np.array(lengths)[:, None]  # (batch, length)
    return {"input_ids": np.where(mask, ids, padding), "attention_mask": mask.astype(np.int64)}


def compare(reference: Predictor, candidate: Predictor, batches: Sequence[Batch], problem: str = "tokens") -> Parity:
    """Run both on every batch and compare what they say about real tokens.

    One batch at a time: the logits of a language model over a whole vocabulary do not fit in memory all at once.

    Args:
        reference: what is right.
        candidate: what is compared with it.
        batches: padded.
        problem: as `tasks.problem_of` calls it. An answer is the likeliest class; "multi": yes or no for each class;
            "score": a number; "span": where it starts, and where it ends.
    """
    parts = [_compare_batch(reference, candidate, batch, problem) for batch in batches]
    agreed = _correlation if problem == "score" else _agreement
    weights = np.array([part.tokens for part in parts])
    return Parity(
        max_difference=max(part.largest for part in parts),
        mean_difference=float(np.average([part.mean for part in parts], weights=weights)),
        cosine=float(np.average([part.cosine for part in parts], weights=weights)),
        agreement=agreed(*(np.concatenate([getattr(p, side) for p in parts]) for side in ("wanted", "found"))),
        tokens=int(weights.sum()),
    )


@dataclass(frozen=True)
class _Part:
    """The comparison of one batch; `wanted` and `found` are the answers, (answers,)."""

    largest: float
    mean: float
    cosine: float
    wanted: NDArray[Any]
    found: NDArray[Any]
    tokens: int


def _compare_batch(reference: Predictor, candidate: Predictor, batch: Batch, problem: str) -> _Part:
    outputs = tuple(predictor.predict(batch) for predictor in (reference, candidate))
    wanted, found = (_real(output, batch, problem) for output in outputs)
    if wanted.shape != found.shape or not (np.isfinite(wanted).all() and np.isfinite(found).all()):
        none = np.zeros(len(wanted), dtype=np.intp)
        return _Part(float("inf"), float("inf"), 0.0, none, none - 1, len(wanted))
    answers = [_answers(output, batch, problem) for output in outputs]
    difference = np.abs(wanted - found)
    norms = np.linalg.norm(wanted, axis=-1) * np.linalg.norm(found, axis=-1)
    cosines = (wanted * found).sum(-1) / np.maximum(norms, 1e-12)
    return _Part(
        largest=float(difference.max()),
        mean=float(difference.mean()),
        cosine=float(cosines.mean()),
        wanted=answers[0],
        found=answers[1],
        tokens=len(wanted),
    )


def _answers(output: Floats, batch: Batch, problem: str) -> NDArray[Any]:
    """What the outputs say, (answers,)."""
    real = _real(output, batch, problem)
    # A discriminator has one number for each token: whether it was replaced.
    answers: NDArray[Any] = real.argmax(-1) if real.shape[-1] > 1 else (real > 0).astype(np.intp).ravel()
    match problem:
        case "span":  # (batch, length, 2)
            mask = (batch["attention_mask"] == 1)[:, :, None]
            answers = np.where(mask, output, -np.inf).argmax(axis=1).ravel()
        case "score":
            answers = output.ravel()
        case "multi":
            answers = (output > 0).astype(np.intp).ravel()
    return answers


def _real(output: Floats, batch: Batch, problem: str) -> Floats:
    """Outputs at real positions, (tokens, labels); all of them, (batch, labels), from a classifier of sequences."""
    if problem in _OF_SEQUENCES:
        return output
    kept: Floats = output[batch["attention_mask"] == 1]
    return kept.reshape(len(kept), -1)


def _correlation(wanted: Floats, found: Floats) -> float:
    """Pearson's; 0 where one of the two says the same of all."""
    if min(np.ptp(wanted), np.ptp(found)) == 0:
        return float(np.array_equal(wanted, found))
    return float(np.corrcoef(wanted, found)[0, 1])


def _agreement(wanted: NDArray[np.intp], found: NDArray[np.intp]) -> float:
    same = wanted == found
    common = wanted == np.bincount(wanted).argmax()
    collapsed = len(np.unique(found)) == 1 < len(np.unique(wanted))
    if not collapsed and min(common.sum(), (~common).sum()) < _LEAST_TOKENS:
        return float(same.mean())
    return float((same[common].mean() + same[~common].mean()) / 2)
