"""How many unlabelled examples are sampled for teachers with another vocabulary."""

import sys

import pytest

from biosqueeze.distillation.unlabelled import used_examples
from biosqueeze.training.options import TrainingOptions


@pytest.mark.parametrize(
    ("options", "ratio", "labelled", "expected"),
    [
        ({"epochs": 2.0}, 1.5, 100, 300),
        ({"epochs": 2.0}, 1.0, 0, sys.maxsize),
        ({"steps": 10, "accumulate": 2}, 1.0, 0, 2 * 10 * 8 * 2),
        ({"steps": 10}, 3.0, 100, 2 * 10 * 8 * 3 // 4),
    ],
)
def test_sample_is_what_the_training_uses(
    options: dict[str, float], ratio: float, labelled: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert used_examples(TrainingOptions(batch_size=8, **options), ratio, labelled) == expected
