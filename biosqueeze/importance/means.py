"""Sums and means of scores over batches, float64."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from biosqueeze.importance.calibration import Calibration
from biosqueeze.importance.gates import BATCH_AXES
from biosqueeze.models.cuts.unit_scores import UnitScores
from biosqueeze.progress import track


def mean_over_examples(batches: Iterable[Mapping[str, Tensor]], calibration: Calibration) -> UnitScores:
    """Return the mean over all examples, from values of gates (see `gates.Gates`) for each."""
    summed = ({kind: values.sum(BATCH_AXES[kind]) for kind, values in batch.items()} for batch in batches)
    total = sum_over_batches(summed, calibration)
    return UnitScores(**{kind: value / calibration.examples for kind, value in total.items()})


def sum_over_batches(batches: Iterable[Mapping[str, Tensor]], calibration: Calibration) -> dict[str, Tensor]:
    """Add up values by kind of unit, with progress."""
    total: dict[str, Tensor] = {}
    with track("importance", len(calibration.batches)) as bar:
        for batch in batches:
            total = {kind: total[kind] + value if kind in total else value for kind, value in batch.items()}
            bar.advance()
    return total


def stacked(layers: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Stack the values of all layers by kind of unit: (layers, ...)."""
    return {kind: torch.stack([layer[kind] for layer in layers]) for kind in layers[0]}
