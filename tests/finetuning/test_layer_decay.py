"""Every weight is in one group, with the learning rate of its layer."""

import re

import pytest
from transformers import PreTrainedModel

from biosqueeze.finetuning.layer_decay import layered_groups
from biosqueeze.training.optimiser.parameter_groups import parameter_groups
from tests import pico


def expected_rate(name: str, lr: float, decay: float) -> float:
    """Return the expected rate by tensor name: pico has four layers, ALBERT one set of weights for all."""
    layers = depth_of(name.partition(".")[0])
    layer = re.search(r"\.(?:layers?|albert_layer_groups)\.(\d+)\.", name)
    if layer:
        return lr * decay ** (layers - int(layer.group(1)))
    return lr * decay ** (layers + 1) if re.search(r"embed|relative|encoder\.LayerNorm", name) else lr


def depth_of(family: str) -> int:
    return 1 if family == "albert" else pico.LAYERS


def rates(model: PreTrainedModel, lr: float, decay: float) -> dict[str, tuple[float, float]]:
    names = {id(p): name for name, p in model.named_parameters()}
    found = [
        (names[id(p)], (group["lr"], group["weight_decay"]))
        for group in layered_groups(model, model, 0.01, lr, decay)
        for p in group["params"]
    ]
    assert len(found) == len(names), "a weight is in no group or in two"
    return dict(found)


@pytest.mark.parametrize("head", ["token-classification", "sequence-classification"])
@pytest.mark.parametrize("family", pico.FAMILIES)
def test_each_layer_has_its_share_of_the_rate(family: str, head: str) -> None:
    model = pico.model_of(family, 60, head)
    found = rates(model, 2e-4, 0.9)
    for name, parameter in model.named_parameters():
        rate, weight_decay = found[name]
        assert rate == pytest.approx(expected_rate(name, 2e-4, 0.9), rel=1e-12), name
        assert weight_decay == (0.01 if parameter.ndim > 1 else 0.0), name
    assert min(rate for rate, _ in found.values()) == pytest.approx(2e-4 * 0.9 ** (depth_of(family) + 1))
    assert max(rate for rate, _ in found.values()) == 2e-4


def test_the_first_group_has_the_whole_rate() -> None:
    model = pico.model_of("bert", 60, "token-classification")
    assert layered_groups(model, model, 0.01, 1e-3, 0.5)[0]["lr"] == 1e-3  # the rate that is logged


def test_frozen_weights_are_in_no_group() -> None:
    model = pico.model_of("bert", 60, "token-classification")
    model.base_model.embeddings.requires_grad_(requires_grad=False)
    kept = sum(p.requires_grad for p in model.parameters())
    for groups in (parameter_groups(model, 0.01), layered_groups(model, model, 0.01, 1e-3, 0.5)):
        assert sum(len(group["params"]) for group in groups) == kept
