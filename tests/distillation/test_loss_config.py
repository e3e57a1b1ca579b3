"""What is asked for in words is what the learner is given."""

from typing import Any

import pytest

from biosqueeze.data.output_types import TOKENS
from biosqueeze.distillation.loss_config import LossConfig, build_loss_config
from biosqueeze.distillation.loss_presets import LOSS_PRESETS
from biosqueeze.stages.distill import Options
from tests import pico


def recipe(kind: str = "mlm", **given: Any) -> LossConfig:
    student, teacher = (pico.config_of("bert", 50) for _ in range(2))
    student.num_hidden_layers, student.hidden_size = 2, pico.HIDDEN // 2
    options = Options(teacher=("teacher",), student="tiny", **given)
    return build_loss_config(options, kind, TOKENS, (student, teacher))


@pytest.mark.parametrize(
    ("given", "field", "wanted"),
    [
        ({"loss": ("kl=3", "minilmv2")}, "weights", {"kl": 3.0, "minilmv2": 1.0}),
        ({"loss": ("kl",), "temperature": 4.0}, "temperature", 4.0),
        ({"loss": ("kl",)}, "temperature", 2.0),
        ({"loss": ("biolm",)}, "weights", LOSS_PRESETS["biolm"].weights),
        ({"loss": ("minilmv2",), "relation_heads": 8}, "relation_heads", 8),
        ({"loss": ("tinybert",)}, "projection", "shared"),
        ({"loss": ("tinybert",), "projection": "per-layer"}, "projection", "per-layer"),
        ({"loss": ("mobilebert",)}, "projection", "per-layer"),
        ({"loss": ("tinybert",)}, "layers", ((1, 2), (2, 4))),
        ({"loss": ("tinybert",), "layer_map": "top"}, "layers", ((1, 3), (2, 4))),
        ({"loss": ("tinybert",), "layer_map": "1:4,2:1"}, "layers", ((1, 4), (2, 1))),
        ({"loss": ("tinybert",), "dropout": 0.25}, "dropout", 0.25),
        ({"kind": "task"}, "weights", LOSS_PRESETS["task"].weights),
    ],
)
def test_every_option_arrives(given: dict[str, Any], field: str, wanted: object) -> None:
    assert getattr(recipe(**given), field) == wanted


def test_weights_of_layers_go_to_the_pairs_as_they_were_typed() -> None:
    found = recipe(loss=("hidden",), layer_map="2:4,1:3", layer_weights="5,1")
    assert (found.weight_of((2, 4)), found.weight_of((1, 3))) == (5.0, 1.0)


def test_the_last_pair_is_the_deepest_one_however_it_was_typed() -> None:
    found = recipe(loss=("cosine",), layer_map="2:4,1:3")
    (loss,) = found.losses.values()
    assert found.pairs_of(loss) == ((2, 4),)
    assert found.wanted(0) == {2: {"hidden"}}
    assert found.wanted(1) == {4: {"hidden"}}
