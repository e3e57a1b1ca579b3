"""The contract that every loss module fulfils."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from biosqueeze import registry
from biosqueeze.objectives import LayerPair, LayerStates, LogitRows
from tests.objectives import test_relations, test_rows, test_states
from tests.objectives.signals import (
    Shape,
    cast,
    pair,
    signals_for,
    student_leaves,
    value_and_gradients,
    with_student,
)

NAMES = registry.names("objectives")
every_loss = pytest.mark.parametrize("name", NAMES)


def those_that_read(*kinds: str) -> list[str]:
    return [name for name in NAMES if registry.load("objectives", name).READS in kinds]


def test_every_loss_has_a_naive_version() -> None:
    known = [*test_rows.NAIVE, *test_states.NAIVE, *test_relations.NAIVE]
    assert sorted(known) == sorted(NAMES)


@every_loss
def test_module_constants_are_valid(name: str) -> None:
    module = registry.load("objectives", name)
    assert module.KINDS
    assert set(module.KINDS) <= {"mlm", "task"}
    assert module.READS in {"rows", "hidden", "attention", "relations"}
    assert module.UNIT in {"rows": {"rows", "labelled"}, "hidden": {"tokens"}}.get(module.READS, {"tokens", "pairs"})
    assert isinstance(module.NEEDS_TEACHER_LOGITS, bool)
    assert module.__doc__
    assert module.loss.__doc__


@every_loss
def test_layer_constants_are_valid(name: str) -> None:
    module = registry.load("objectives", name)
    reads_layers, reads_heads = module.READS != "rows", module.READS in {"attention", "relations"}
    assert hasattr(module, "LAYERS") == reads_layers
    assert not reads_layers or module.LAYERS in {"all", "last", "embeddings"}
    assert isinstance(getattr(module, "SAME_HEADS", None), bool) == reads_heads


@every_loss
def test_float32_scalar_with_student_gradient(name: str) -> None:
    module = registry.load("objectives", name)
    loss, gradients = value_and_gradients(module, cast(signals_for(module), torch.float32))
    assert loss.shape == ()
    assert loss.dtype == torch.float32
    assert loss > 0
    assert any(gradient.any() for gradient in gradients)


@every_loss
def test_bf16_inputs_are_computed_in_float32(name: str) -> None:
    module = registry.load("objectives", name)
    halved = cast(signals_for(module), torch.bfloat16)
    # As in training: losses are computed under autocast, the backward pass is not.
    engine = SimpleNamespace(loss=torch.autocast("cpu", torch.bfloat16)(module.loss))
    loss, gradients = value_and_gradients(engine, halved)
    exact, exact_gradients = value_and_gradients(module, cast(halved, torch.float32))
    assert loss.dtype == torch.float32
    assert torch.equal(loss, exact)
    assert all(torch.equal(a, b.bfloat16()) for a, b in zip(gradients, exact_gradients, strict=True))


@every_loss
def test_gradient_equals_finite_differences(name: str) -> None:
    module = registry.load("objectives", name)
    signals = signals_for(module)
    leaves = [tensor.clone().requires_grad_() for tensor in student_leaves(signals)]
    assert torch.autograd.gradcheck(lambda *tensors: module.loss(with_student(signals, *tensors)), leaves)


@every_loss
def test_empty_input_gives_zero_with_gradient(name: str) -> None:
    module = registry.load("objectives", name)
    signals = signals_for(module)
    if isinstance(signals, LogitRows):
        empty = replace(signals, student=signals.student[:0], teacher=signals.teacher[:0], labels=signals.labels[:0])
    elif module.READS == "hidden":
        empty = replace(signals, student=LayerStates(torch.zeros(0, 5)), teacher=LayerStates(torch.zeros(0, 5)))
    else:
        empty = replace(signals, allowed=torch.zeros_like(signals.allowed))
    loss, gradients = value_and_gradients(module, empty)
    assert loss == 0
    assert not any(gradient.any() for gradient in gradients)


@every_loss
def test_teacher_logits_are_required_as_declared(name: str) -> None:
    module = registry.load("objectives", name)
    signals = signals_for(module)
    if isinstance(signals, LayerPair):
        assert not module.NEEDS_TEACHER_LOGITS
    elif module.NEEDS_TEACHER_LOGITS:
        with pytest.raises(ValueError, match="needs the teacher's logits"):
            module.loss(replace(signals, teacher=None))
    else:
        assert module.loss(replace(signals, teacher=None)) == module.loss(signals)


@pytest.mark.parametrize("name", those_that_read("hidden", "attention", "relations"))
def test_missing_layer_states_raise(name: str) -> None:
    module = registry.load("objectives", name)
    with pytest.raises(ValueError, match="was not recorded for both models"):
        module.loss(replace(signals_for(module), teacher=LayerStates()))


@pytest.mark.parametrize("name", those_that_read("attention", "relations"))
def test_numbers_of_heads_may_differ_as_declared(name: str) -> None:
    module = registry.load("objectives", name)
    different = pair([[3], [2]], Shape(2, 6), Shape(4, 5))
    if module.SAME_HEADS:
        with pytest.raises(RuntimeError, match="size of tensor"):
            module.loss(different)
    else:
        assert module.loss(different) > 0
