"""Loss configurations that are built from settings."""

from typing import Any

import pytest

from biosqueeze.data.output_types import TOKENS
from biosqueeze.distillation.losses.config import LossConfig, ModelTraits, build_loss_config
from biosqueeze.distillation.losses.presets import LOSS_PRESETS
from biosqueeze.distillation.request import LossSettings
from tests import pico


def loss_config(kind: str = "mlm", **settings: Any) -> LossConfig:
    student, teacher = (pico.config_of("bert", 50) for _ in range(2))
    student.num_hidden_layers, student.hidden_size = 2, pico.HIDDEN // 2
    return build_loss_config(
        LossSettings(**settings), kind, ModelTraits(student=student, teacher=teacher, output_type=TOKENS)
    )


@pytest.mark.parametrize(
    ("settings", "field", "expected"),
    [
        ({"loss": ("kl=3", "minilmv2")}, "weights", {"kl": 3.0, "minilmv2": 1.0}),
        ({"loss": ("kl",), "temperature": 4.0}, "temperature", 4.0),
        ({"loss": ("kl",)}, "temperature", 2.0),
        ({"loss": ("biolm",)}, "weights", LOSS_PRESETS["biolm"].weights),
        ({"loss": ("minilmv2",), "relation_heads": 8}, "relation_heads", 8),
        ({"loss": ("tinybert",)}, "projection", "shared"),
        ({"loss": ("tinybert",), "projection": "per-layer"}, "projection", "per-layer"),
        ({"loss": ("mobilebert",)}, "projection", "per-layer"),
        ({"loss": ("tinybert",)}, "layer_map", ((1, 2), (2, 4))),
        ({"loss": ("tinybert",), "layer_map": "top"}, "layer_map", ((1, 3), (2, 4))),
        ({"loss": ("tinybert",), "layer_map": "1:4,2:1"}, "layer_map", ((1, 4), (2, 1))),
        ({"loss": ("tinybert",), "dropout": 0.25}, "dropout", 0.25),
        ({"kind": "task"}, "weights", LOSS_PRESETS["task"].weights),
    ],
)
def test_settings_reach_the_config(settings: dict[str, Any], field: str, expected: object) -> None:
    assert getattr(loss_config(**settings), field) == expected


def test_layer_weights_follow_the_order_of_the_map() -> None:
    config = loss_config(loss=("hidden",), layer_map="2:4,1:3", layer_weights="5,1")
    assert (config.weight_of((2, 4)), config.weight_of((1, 3))) == (5.0, 1.0)


def test_last_pair_is_the_deepest_one() -> None:
    config = loss_config(loss=("cosine",), layer_map="2:4,1:3")
    (loss,) = config.losses.values()
    assert config.pairs_of(loss) == ((2, 4),)
    assert config.student_parts == {2: {"hidden"}}
    assert config.teacher_parts == {4: {"hidden"}}
