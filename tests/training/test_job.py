"""The number of steps in an epoch and in a run."""

import pytest

from biosqueeze.training.job import steps_of
from biosqueeze.training.options import TrainingOptions


@pytest.mark.parametrize(
    ("batches", "accumulate", "epochs", "wanted"),
    [(10, 1, 3, (10, 30)), (4, 16, 3, (1, 1)), (5, 2, 3, (3, 8)), (10, 4, 2, (3, 5)), (10, 4, 0.01, (3, 1))],
)
def test_steps_cover_the_epochs(batches: int, accumulate: int, epochs: float, wanted: tuple[int, int]) -> None:
    options = TrainingOptions(epochs=epochs, accumulate=accumulate)
    assert steps_of(options, batches) == wanted
    assert steps_of(TrainingOptions(steps=7, accumulate=accumulate), batches)[1] == 7
