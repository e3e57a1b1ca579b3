"""Choose what the input of an int8 matrix product is divided by, so that rounding changes its output least.

A few channels of a layer's input are up to ten times as large as the others, some of them for a few tokens alone, such
as [CLS] (Sun et al. 2024, "Massive Activations"). A range that holds them leaves the others a tenth of its 256 steps.
Two divisions make them as large as the others, without a change of the product:

by channel: Y = (X diag(s)^-1) (diag(s) W), Xiao et al. 2023, "SmoothQuant", equation 3, whose s are of maxima of X and
W, and change every channel. Here s divides what is above a threshold down to it. The multiplied weights are rounded
more coarsely.

by token: Y = diag(t) ((diag(t)^-1 X) W), where t has the largest value of each token, so that a large token does not
widen the range of the others, as in the token-wise quantization of Yao et al. 2022, "ZeroQuant". The largest value, not
the largest absolute one: it takes one pass less, and the inputs with large tokens are those behind a GELU.

Rounding to steps of size d adds noise of variance d^2 / 12. From the noise of inputs and of weights follows that of the
outputs, and the division with the least is chosen.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biosqueeze.quantizers.input_statistics import Array, InputStatistics
from biosqueeze.quantizers.weight_scales import LARGEST

_STEPS = 255
"""Of the range of an input."""
_THRESHOLDS = 2.0 ** -np.arange(1 / 3, 4.5, 1 / 3)
"""Shares of the largest value."""
_WITH_ROOM = 0.9
"""Share of the channels that are not divided where ranges are fixed."""
_WORTH = 0.4
"""A division takes time: the error with it must be at most this share of that without."""


@dataclass(frozen=True)
class ByChannel:
    """Each channel is divided by a factor, (channels,), at least 1."""

    factors: Array


@dataclass(frozen=True)
class ByToken:
    """Each token is divided by the largest of its values, or by `least` if that is larger."""

    least: float


Division = ByChannel | ByToken


def count_divisions(divisions: Iterable[Division]) -> dict[str, int]:
    """Return facts for the manifest: how many inputs are divided in each way."""
    kinds = Counter(type(division) for division in divisions)
    return {"inputs_divided_by_channel": kinds[ByChannel], "inputs_divided_by_token": kinds[ByToken]}


def best_division(statistics: InputStatistics, matrix: NDArray[np.float32], *, fixed: bool) -> Division | None:
    """Return the division of an input with the least error in its product; None where none is worth its time.

    Args:
        statistics: of the input.
        matrix: that the input is multiplied with, (channels, outputs); of several, side by side.
        fixed: whether the range will be that of these statistics, in all text. Values beyond it are cut off, so most
            channels must be left the room that the outliers give them. Tokens have no ranges of their own then.
    """
    sizes = np.maximum(statistics.highest, -statistics.lowest).max(axis=0)
    largest = sizes.max()
    if largest == 0:
        return None
    thresholds = np.maximum(_THRESHOLDS * largest, np.quantile(sizes, _WITH_ROOM) if fixed else 0)
    candidates: list[Division] = [ByChannel(np.maximum(sizes / least, 1).astype(np.float32)) for least in thresholds]
    if not fixed:
        candidates.append(ByToken(float(max(-statistics.lowest.min(), largest / _STEPS))))
    errors = [output_error(statistics, matrix, division) for division in candidates]
    best = int(np.argmin(errors))
    return candidates[best] if errors[best] <= _WORTH * output_error(statistics, matrix, None) else None


def output_error(statistics: InputStatistics, matrix: NDArray[np.float32], division: Division | None) -> float:
    """Return the variance that rounding adds to the outputs of a product, summed over its outputs."""
    factors = division.factors if isinstance(division, ByChannel) else np.ones_like(statistics.mean_square)
    if isinstance(division, ByToken):
        noise = _noise_by_token(statistics, division.least)
    else:
        steps = _steps((statistics.highest / factors).max(axis=1), (statistics.lowest / factors).min(axis=1))
        noise = float(np.square(steps).mean() / 12)
    squares = float((statistics.mean_square / np.square(factors)).sum())
    weights = np.abs(matrix * factors[:, None])
    of_inputs = noise * float(np.square(weights).sum())
    of_weights = squares * float(np.square(weights.max(axis=0) / LARGEST).sum()) / 12
    return of_inputs + of_weights


def _noise_by_token(statistics: InputStatistics, least: float) -> float:
    """Return the mean variance that rounding adds to a value, if each token is divided."""
    variances = list[float]()
    for highest, lowest in zip(statistics.token_highest, statistics.token_lowest, strict=True):
        sizes = np.maximum(highest, least)
        step = float(_steps((highest / sizes).max(), (lowest / sizes).min()))
        variances.append(float(np.square(sizes * step).mean() / 12))
    return float(np.mean(variances))


def _steps(highest: NDArray[Any], lowest: NDArray[Any]) -> NDArray[Any]:
    """Return the step size of ranges, which hold zero too."""
    steps: NDArray[Any] = (np.maximum(highest, 0) - np.minimum(lowest, 0)) / _STEPS
    return steps
