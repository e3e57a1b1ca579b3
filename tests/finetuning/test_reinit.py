"""The top layers and the pooler are initialised again, all other weights stay unchanged."""

import pytest
import torch

from biosqueeze.errors import UsageError
from biosqueeze.finetuning.reinit import reinitialise
from biosqueeze.models import families
from tests import pico

HEAD = "sequence-classification"


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_only_top_layers_and_pooler_are_initialised(family: str) -> None:
    model = pico.model_of(family, 60, HEAD)
    before = {name: p.clone() for name, p in model.named_parameters()}
    shared = family == "albert"  # one set of weights for all its layers
    stack = families.FAMILIES[family].layers
    top = (".albert_layer_groups.",) if shared else (f".{stack}.2.", f".{stack}.3.")
    reinitialise(model, 1 if shared else 2, seed=5)
    for name, parameter in model.named_parameters():
        fresh = any(part in name for part in (*top, ".pooler."))
        assert torch.equal(parameter, before[name]) is not fresh, name
        if fresh and parameter.ndim == 1:
            scale = "norm" in name.lower() and name.endswith("weight")
            assert (parameter == (1.0 if scale else 0.0)).all(), name
        elif fresh:
            # pico's initializer_range, which ModernBERT divides for what it adds to the residual stream
            expected = 0.1 / 8**0.5 if name.endswith(".Wo.weight") else 0.1
            assert float(parameter.detach().std()) == pytest.approx(expected, rel=0.2), name
            assert abs(float(parameter.detach().mean())) < 0.02, name


def test_the_seed_decides_and_global_rng_is_unchanged() -> None:
    models = [pico.model_of("bert", 60, HEAD) for _ in range(3)]
    state = torch.get_rng_state()
    for model, seed in zip(models, (1, 1, 2), strict=True):
        reinitialise(model, 1, seed)
    assert torch.equal(torch.get_rng_state(), state)
    drawn = [model.base_model.encoder.layer[3].output.dense.weight for model in models]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_weights_marked_as_loaded_are_initialised_too(tmp_path) -> None:
    from transformers import AutoModelForTokenClassification

    path = pico.save("bert", tmp_path / "model", "token-classification")
    model = AutoModelForTokenClassification.from_pretrained(path)
    before = model.base_model.encoder.layer[3].output.dense.weight.clone()
    reinitialise(model, 1, seed=0)
    assert not torch.equal(model.base_model.encoder.layer[3].output.dense.weight, before)


def test_none_changes_nothing_and_too_many_are_refused() -> None:
    model = pico.model_of("bert", 60, HEAD)
    before = {name: p.clone() for name, p in model.named_parameters()}
    reinitialise(model, 0, seed=0)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    with pytest.raises(UsageError, match="--reinit-layers 5 is more than the 4 layers"):
        reinitialise(model, 5, seed=0)
