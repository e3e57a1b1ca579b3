"""Which classes a sequence has, by its logits."""

import numpy as np
import pytest

from biosqueeze.data.output_types import MULTI, OUTPUT_TYPES, SINGLE, TOKENS, OutputType


@pytest.mark.parametrize(
    ("output_type", "logits", "expected"),
    [
        (TOKENS, [[3.0, 0.5, 2.0], [0.0, 1.0, 2.0], [9.0, 1.0, 2.0]], [True, False, True]),
        (SINGLE, [-1.0, -3.0, -0.5], [False, False, True]),
        (MULTI, [-1.0, 0.5, 2.0], [False, True, True]),
        (MULTI, [-1.0, -0.5, -2.0], [False, False, False]),
    ],
)
def test_predicted_classes(output_type: OutputType, logits: list[object], expected: list[bool]) -> None:
    assert output_type.predicted_classes(np.array(logits, dtype=np.float32)).tolist() == expected


def test_which_types_have_classes() -> None:
    assert {name for name, each in OUTPUT_TYPES.items() if each.has_classes} == {"tokens", "single", "multi"}
    assert {name for name, each in OUTPUT_TYPES.items() if not each.has_background} == {"multi"}
