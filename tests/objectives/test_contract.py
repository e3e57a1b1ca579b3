"""What every loss must have and do, whatever it computes."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from biosqueeze import registry
from biosqueeze.objectives import Layer, Pair, Rows
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


def test_every_loss_has_a_naive_version() -> None:
    known = [*test_rows.NAIVE, *test_states.NAIVE, *test_relations.NAIVE]
    assert sorted(known) == sorted(NAMES)


@every_loss
def test_it_says_what_it_is(name: str) -> None:
    module = registry.load("objectives", name)
    assert module.KINDS
    assert set(module.KINDS) <= {"mlm", "task"}
    assert module.READS in {"rows", "hidden", "attention", "relations"}
    assert module.UNIT in {"rows": {"rows", "labelled"}, "hidden": {"tokens"}}.get(module.READS, {"tokens", "pairs"})
    assert isinstance(module.NEEDS_TEACHER_LOGITS, bool)
    assert module.__doc__
    assert module.loss.__doc__


@every_loss
def test_it_says_on_which_layers_and_heads_it_acts(name: str) -> None:
    module = registry.load("objectives", name)
    reads_layers, reads_heads = module.READS != "rows", module.READS in {"attention", "relations"}
    assert hasattr(module, "LAYERS") == reads_layers
    assert not reads_layers or module.LAYERS in {"all", "last", "embeddings"}
    assert isinstance(getattr(module, "SAME_HEADS", None), bool) == reads_heads


@every_loss
def test_it_is_a_float32_scalar_with_a_gradient_to_the_student(name: str) -> None:
    module = registry.load("objectives", name)
    loss, gradients = value_and_gradients(module, cast(signals_for(module), torch.float32))
    assert loss.shape == ()
    assert loss.dtype == torch.float32
    assert loss > 0
    assert any(gradient.any() for gradient in gradients)


@every_loss
def test_half_precision_is_read_and_not_computed_in(name: str) -> None:
    module = registry.load("objectives", name)
    halved = cast(signals_for(module), torch.bfloat16)
    # The engine computes losses under autocast, and goes backward outside of it.
    engine = SimpleNamespace(loss=torch.autocast("cpu", torch.bfloat16)(module.loss))
    loss, gradients = value_and_gradients(engine, halved)
    exact, exact_gradients = value_and_gradients(module, cast(halved, torch.float32))
    assert loss.dtype == torch.float32
    assert torch.equal(loss, exact)
    assert all(torch.equal(a, b.bfloat16()) for a, b in zip(gradients, exact_gradients, strict=True))


@every_loss
def test_its_gradient_is_that_of_finite_differences(name: str) -> None:
    module = registry.load("objectives", name)
    signals = signals_for(module)
    leaves = [tensor.clone().requires_grad_() for tensor in student_leaves(signals)]
    assert torch.autograd.gradcheck(lambda *tensors: module.loss(with_student(signals, *tensors)), leaves)


@every_loss
def test_nothing_to_learn_from_is_zero_with_a_gradient(name: str) -> None:
    module = registry.load("objectives", name)
    signals = signals_for(module)
    if isinstance(signals, Rows):
        empty = replace(signals, student=signals.student[:0], teacher=signals.teacher[:0], labels=signals.labels[:0])
    elif module.READS == "hidden":
        empty = replace(signals, student=Layer(torch.zeros(0, 5)), teacher=Layer(torch.zeros(0, 5)))
    else:
        empty = replace(signals, allowed=torch.zeros_like(signals.allowed))
    loss, gradients = value_and_gradients(module, empty)
    assert loss == 0
    assert not any(gradient.any() for gradient in gradients)


@every_loss
def test_it_needs_the_teachers_logits_if_it_says_so(name: str) -> None:
    module = registry.load("objectives", name)
    signals = signals_for(module)
    if isinstance(signals, Pair):
        assert not module.NEEDS_TEACHER_LOGITS
    elif module.NEEDS_TEACHER_LOGITS:
        with pytest.raises(ValueError, match="needs the teacher's logits"):
            module.loss(replace(signals, teacher=None))
    else:
        assert module.loss(replace(signals, teacher=None)) == module.loss(signals)


@every_loss
def test_a_layer_that_was_not_read_is_refused(name: str) -> None:
    module = registry.load("objectives", name)
    if module.READS != "rows":
        with pytest.raises(ValueError, match="was not read from both models"):
            module.loss(replace(signals_for(module), teacher=Layer()))


@every_loss
def test_heads_may_differ_if_it_says_so(name: str) -> None:
    module = registry.load("objectives", name)
    if module.READS in {"attention", "relations"}:
        different = pair([[3], [2]], Shape(2, 6), Shape(4, 5))
        if module.SAME_HEADS:
            with pytest.raises(RuntimeError, match="size of tensor"):
                module.loss(different)
        else:
            assert module.loss(different) > 0
