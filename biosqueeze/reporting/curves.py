"""What a training run wrote into metrics.jsonl, as arrays, and how a noisy curve is made legible."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FILE_NAME = "metrics.jsonl"
_NOT_TERMS = ("step", "lr", "tokens", "seconds")
_SHARE = 60  # a curve is averaged over a 60th of its length to either side, and over a neighbour at least
_BUCKETS = 500

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Curves:
    """One run. All arrays are (steps,), NaN where a line lacks the value; `dev` holds the scores of each judgement."""

    steps: Array
    terms: Mapping[str, Array]
    rate: Array
    tokens: Array
    durations: Array
    """Seconds of each step; NaN where the scoring of the dev split lies in between."""
    dev: tuple[tuple[int, Mapping[str, float]], ...]

    @property
    def dev_names(self) -> tuple[str, ...]:
        """The scores of the whole split (not of one kind of entity, and no counts)."""
        scores = self.dev[0][1] if self.dev else {}
        return tuple(name for name, value in scores.items() if isinstance(value, float) and "-" not in name)


def read_curves(directory: Path) -> Curves | None:
    """The curves of a checkpoint's training, or None where there was none.

    A line that was cut short (the disk was full, the power failed) is passed over.
    """
    path = directory / FILE_NAME
    if not path.is_file():
        return None
    lines = list(_lines(path))
    steps = [line for line in lines if "dev" not in line]
    if not steps:
        return None
    judged = {int(line["step"]): line["dev"] for line in lines if isinstance(line.get("dev"), dict)}
    names = dict.fromkeys(name for line in steps for name in line if name not in _NOT_TERMS)
    terms = {name: _column(steps, name) for name in names}
    return Curves(
        steps=_column(steps, "step"),
        terms={name: values for name, values in terms.items() if np.isfinite(values).any()},
        rate=_column(steps, "lr"),
        tokens=_column(steps, "tokens"),
        durations=_durations(steps, judged),
        dev=tuple(sorted(judged.items())),
    )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            yield line


def _column(lines: list[dict[str, Any]], name: str) -> Array:
    values = (line.get(name) for line in lines)
    return np.array([v if isinstance(v, int | float) else np.nan for v in values], dtype=np.float64)


def _durations(lines: list[dict[str, Any]], judged: Mapping[int, object]) -> Array:
    """`seconds` counts on where a run is resumed; in logs of older versions it starts anew there."""
    seconds = _column(lines, "seconds")
    gaps = np.diff(seconds, prepend=0.0)
    gaps = np.where(gaps < 0, seconds, gaps)
    after_judging = [int(line["step"]) - 1 in judged for line in lines]
    return np.where(after_judging, np.nan, gaps)


def smoothed(values: Array) -> Array:
    """The mean over the neighbours of each value, (steps,); NaN and infinities do not count."""
    half = max(1, len(values) // _SHARE)
    valid = np.isfinite(values)
    sums = np.concatenate(([0.0], np.cumsum(np.where(valid, values, 0.0))))
    counts = np.concatenate(([0], np.cumsum(valid)))
    places = np.arange(len(values))
    low, high = np.maximum(places - half, 0), np.minimum(places + half + 1, len(values))
    counted = counts[high] - counts[low]
    return np.where(counted > 0, (sums[high] - sums[low]) / np.maximum(counted, 1), np.nan)


def speed(curves: Curves) -> Array:
    """Tokens per second around each step, (steps,)."""
    timed = np.isfinite(curves.durations) & np.isfinite(curves.tokens)
    tokens = smoothed(np.where(timed, curves.tokens, np.nan))
    seconds = smoothed(np.where(timed, curves.durations, np.nan))
    return np.divide(tokens, seconds, out=np.full_like(tokens, np.nan), where=seconds > 0)


def thinned(steps: Array, values: Array) -> tuple[Array, Array]:
    """At most a thousand points that look like all of them: the lowest and the highest of each bucket."""
    if len(steps) <= 2 * _BUCKETS:
        return steps, values
    kept: list[int] = []
    for bucket in np.array_split(np.arange(len(steps)), _BUCKETS):
        real = bucket[np.isfinite(values[bucket])]
        if len(real):
            kept += sorted({int(real[values[real].argmin()]), int(real[values[real].argmax()])})
    return steps[kept], values[kept]
