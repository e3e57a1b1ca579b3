"""How much unlabelled text is drawn for teachers that are asked beforehand."""

import sys

import pytest

from biosqueeze.distillation.datasets import _needed
from biosqueeze.distillation.options import DistillationOptions


@pytest.mark.parametrize(
    ("changes", "labelled", "wanted"),
    [
        ({"epochs": 2.0, "unlabelled": 1.5}, 100, 300),
        ({"epochs": 2.0}, 0, sys.maxsize),
        ({"steps": 10, "accumulate": 2}, 0, 2 * 10 * 8 * 2),
        ({"steps": 10, "unlabelled": 3.0}, 100, 2 * 10 * 8 * 3 // 4),
    ],
)
def test_no_more_is_drawn_than_comes(
    changes: dict[str, float], labelled: int, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert _needed(DistillationOptions(batch_size=8, **changes), labelled) == wanted
