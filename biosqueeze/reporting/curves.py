"""The training curves in metrics.jsonl: read as arrays, smoothed, and thinned for drawing."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FILE_NAME = "metrics.jsonl"
_PERPLEXITY = "perplexity"
_THRESHOLD = "_thresh"
_NOT_LOSS_TERMS = ("step", "lr", "tokens", "seconds")
_SMOOTHED_SHARE = 60  # a value is averaged over 1/60 of the curve's length to either side, and over 1 step at least
_BUCKETS = 500
_LINE_BYTES, _MOST_LINES = 1 << 20, 1_000_000

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Curves:
    """One training run. All arrays are (steps,), NaN where a line lacks the value.

    `dev` has the scores on the dev split or on held-out text by step, `probes` those of fine-tuned copies.
    """

    steps: Array
    terms: Mapping[str, Array]
    rate: Array
    tokens: Array
    durations: Array
    """Seconds of each step; NaN where the dev split was evaluated in between."""
    dev: tuple[tuple[int, Mapping[str, float]], ...]
    probes: tuple[tuple[int, Mapping[str, float]], ...] = ()

    @property
    def dev_names(self) -> tuple[str, ...]:
        """The scores of the whole split: neither those of one entity type, nor counts, losses or thresholds."""
        losses = (*self.dev_losses, _PERPLEXITY)
        names = (name for name, value in self._dev_scores.items() if isinstance(value, float) and "-" not in name)
        return tuple(name for name in names if name not in losses and not name.endswith(_THRESHOLD))

    @property
    def dev_losses(self) -> tuple[str, ...]:
        """The loss terms that were also computed on held-out text."""
        return tuple(name for name in self._dev_scores if name in self.terms)

    @property
    def _dev_scores(self) -> Mapping[str, float]:
        """One value of each score: a step may lack one that is not finite."""
        return {name: value for _, scores in self.dev for name, value in scores.items()}


def read_curves(directory: Path) -> Curves | None:
    """Read the curves of a checkpoint's training; None where there was none.

    A line that was cut short (the disk was full, the power failed) is skipped.
    """
    path = directory / FILE_NAME
    if not path.is_file():
        return None
    lines = list(_lines(path))
    steps = [line for line in lines if not any(isinstance(line.get(kind), dict) for kind in ("dev", "probe"))]
    if not steps:
        return None
    dev = _scores_of(lines, "dev")
    names = dict.fromkeys(name for line in steps for name in line if name not in _NOT_LOSS_TERMS)
    terms = {name: _column(steps, name) for name in names}
    return Curves(
        steps=_column(steps, "step"),
        terms={name: values for name, values in terms.items() if np.isfinite(values).any()},
        rate=_column(steps, "lr"),
        tokens=_column(steps, "tokens"),
        durations=_durations(steps, dev),
        dev=tuple(sorted(dev.items())),
        probes=tuple(sorted(_scores_of(lines, "probe").items())),
    )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries of a log; of a giant one the first million, and of a giant line none."""
    with path.open("rb") as file:
        yield from islice(_entries(iter(lambda: file.readline(_LINE_BYTES), b"")), _MOST_LINES)


def _entries(texts: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    for text in texts:
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int) and np.isfinite(as_float(line["step"])):
            yield line


def _scores_of(lines: list[dict[str, Any]], kind: str) -> dict[int, dict[str, float]]:
    """Return the finite scores under a key, `dev` or `probe`, by step."""
    scored = {line["step"]: line[kind] for line in lines if isinstance(line.get(kind), dict)}
    return {
        step: {name: v for name, v in scores.items() if np.isfinite(as_float(v))} for step, scores in scored.items()
    }


def as_float(value: object) -> float:
    """Return a number of a file as a float; NaN for anything else, and for an integer that no float can hold."""
    try:
        return float(value) if isinstance(value, int | float) else np.nan
    except OverflowError:
        return np.nan


def _column(lines: list[dict[str, Any]], name: str) -> Array:
    return np.array([as_float(line.get(name)) for line in lines], dtype=np.float64)


def _durations(lines: list[dict[str, Any]], dev: Mapping[int, object]) -> Array:
    """Return the seconds of each step from the running total, which may start again where a run was resumed."""
    seconds = _column(lines, "seconds")
    gaps = np.diff(seconds, prepend=0.0)
    gaps = np.where(gaps < 0, seconds, gaps)
    after_evaluation = [line["step"] - 1 in dev for line in lines]
    return np.where(after_evaluation, np.nan, gaps)


def smoothed(values: Array) -> Array:
    """Return the mean over the neighbours of each value, (steps,); NaN and infinities are left out."""
    half = max(1, len(values) // _SMOOTHED_SHARE)
    valid = np.isfinite(values)
    sums = np.concatenate(([0.0], np.cumsum(np.where(valid, values, 0.0))))
    counts = np.concatenate(([0], np.cumsum(valid)))
    places = np.arange(len(values))
    low, high = np.maximum(places - half, 0), np.minimum(places + half + 1, len(values))
    counted = counts[high] - counts[low]
    return np.where(counted > 0, (sums[high] - sums[low]) / np.maximum(counted, 1), np.nan)


def speed(curves: Curves) -> Array:
    """Return the smoothed tokens per second at each step, (steps,)."""
    timed = np.isfinite(curves.durations) & np.isfinite(curves.tokens)
    tokens = smoothed(np.where(timed, curves.tokens, np.nan))
    seconds = smoothed(np.where(timed, curves.durations, np.nan))
    return np.divide(tokens, seconds, out=np.full_like(tokens, np.nan), where=seconds > 0)


def thinned(steps: Array, values: Array) -> tuple[Array, Array]:
    """Return at most a thousand points that look like all of them: the lowest and the highest of each bucket."""
    if len(steps) <= 2 * _BUCKETS:
        return steps, values
    kept: list[int] = []
    for bucket in np.array_split(np.arange(len(steps)), _BUCKETS):
        finite = bucket[np.isfinite(values[bucket])]
        if len(finite):
            kept += sorted({int(finite[values[finite].argmin()]), int(finite[values[finite].argmax()])})
    return steps[kept], values[kept]
