"""Named loss presets, and the parsing of --loss."""

import runpy
from pathlib import Path

import pytest

from biosqueeze import registry
from biosqueeze.distillation.losses.presets import DEFAULTS, LOSS_PRESETS, parse_losses
from biosqueeze.errors import UsageError


@pytest.mark.parametrize("name", LOSS_PRESETS)
def test_losses_of_a_preset_fit_one_kind(name: str) -> None:
    kinds = [set(registry.load("objectives", loss).KINDS) for loss in LOSS_PRESETS[name].weights]
    assert set.intersection(*kinds)
    assert name not in registry.names("objectives")
    assert LOSS_PRESETS[name].source


def test_defaults_of_both_kinds() -> None:
    assert {kind: parse_losses((), kind).name for kind in DEFAULTS} == {"mlm": "distilbert", "task": "task"}
    assert parse_losses((), "mlm").weights == {"mlm": 2.0, "kl": 5.0, "cosine": 1.0}


def test_task_default_is_a_row_of_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Path(__file__).parents[3] / "examples/benchmarks/distill_objectives.py"
    monkeypatch.syspath_prepend(script.parent)
    rows = runpy.run_path(str(script))["COMBINATIONS"]
    default = parse_losses((), "task")
    measured = [(parse_losses(losses, "task"), "per-layer" in words) for losses, words in rows.values()]
    assert (default.weights, default.temperature, default.projection == "per-layer") in [
        (preset.weights, preset.temperature, projected) for preset, projected in measured
    ]


def test_weights_of_presets_and_losses_add_up() -> None:
    assert parse_losses(("kl=5", "mse"), "mlm").weights == {"kl": 5.0, "mse": 1.0}
    mixed = parse_losses(("distilbert=0.5", "kl=1", "minilmv2=0.1"), "mlm")
    assert mixed.weights == {"mlm": 1.0, "kl": 3.5, "cosine": 0.5, "minilmv2": 0.1}
    assert mixed.temperature == LOSS_PRESETS["distilbert"].temperature


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (("kll=1",), "Did you mean 'kl'"),
        (("tinybrt",), "Did you mean 'tinybert'"),
        (("kl=0",), "positive weight"),
        (("kl=",), "positive weight"),
        (("kl=inf",), "positive weight"),
        (("kl=nan",), "positive weight"),
        (("distilbert", "compact"), "--loss hidden-cosine=3"),
        (("tinybert", "mobilebert"), "differ in temperature, layer map or projection"),
    ],
)
def test_invalid_losses_raise(items: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_losses(items, "mlm")
