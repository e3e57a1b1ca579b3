"""LAMB against a naive float64 version, and the schedules of the learning rate against their definitions."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.errors import UsageError
from biosqueeze.finetuning.options import FineTuningOptions
from biosqueeze.models.custom_heads.crf import Crf
from biosqueeze.training.optimiser.lamb import Lamb
from biosqueeze.training.optimiser.schedules import PlateauSchedule, warm_up_and_decay
from tests.training import runs

LAMB = FineTuningOptions(steps=6, batch_size=4, lr=1e-2, precision="fp32", seed=3, optimizer="lamb", betas="0.8,0.98")


def naive_lamb(weights: list[np.ndarray], gradients: list[list[np.ndarray]], decay: float) -> list[np.ndarray]:
    """Update matrices and vectors by one gradient each per step, as You et al. 2020, algorithm 2, has it."""
    lr, first, second, epsilon = 0.05, 0.8, 0.98, 1e-6
    ended = []
    for number, initial in enumerate(weights):
        weight, mean, square = initial.copy(), np.zeros_like(initial), np.zeros_like(initial)
        for step, of_all in enumerate(gradients, 1):
            gradient = of_all[number]
            mean = first * mean + (1 - first) * gradient
            square = second * square + (1 - second) * gradient**2
            update = (mean / (1 - first**step)) / (np.sqrt(square / (1 - second**step)) + epsilon)
            if weight.ndim > 1:
                update = update + decay * weight
                lengths = np.linalg.norm(weight), np.linalg.norm(update)
                update = update * (lengths[0] / lengths[1] if all(lengths) else 1.0)
            weight = weight - lr * update
        ended.append(weight)
    return ended


def test_lamb_equals_a_naive_version() -> None:
    rng = np.random.default_rng(0)
    shapes = [(4, 3), (2, 5), (3,), (2, 2)]
    weights = [rng.normal(size=shape) for shape in shapes]
    weights[3][:] = 0  # a norm of 0
    gradients = [[rng.normal(size=shape) for shape in shapes] for _ in range(5)]
    tensors = [torch.tensor(weight, requires_grad=True) for weight in weights]
    groups = [
        {"params": [t for t in tensors if t.ndim > 1], "weight_decay": 0.1},
        {"params": [t for t in tensors if t.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = Lamb(groups, lr=0.05, betas=(0.8, 0.98), eps=1e-6)
    for of_all in gradients:
        for tensor, gradient in zip(tensors, of_all, strict=True):
            tensor.grad = torch.tensor(gradient)
        optimizer.step()
    for tensor, expected in zip(tensors, naive_lamb(weights, gradients, 0.1), strict=True):
        np.testing.assert_allclose(tensor.detach().numpy(), expected, rtol=1e-6)


def test_a_parameter_without_a_gradient_stays() -> None:
    weight = torch.ones(2, 2, requires_grad=True)
    Lamb([{"params": [weight]}], lr=1.0, betas=(0.9, 0.999), eps=1e-8).step()
    assert torch.equal(weight, torch.ones(2, 2))


def test_lamb_trains_the_transitions_of_a_crf() -> None:
    """They begin at zero, where the ratio of norms would keep them."""
    head, labels, emissions = Crf(3), torch.tensor([[0, 1, 2, 0, 0, 1, 2, 2, 0]]), torch.zeros(1, 9, 3)
    optimizer = Lamb([{"params": [*head.parameters()]}], lr=5e-3, betas=(0.9, 0.999), eps=1e-6)
    for _ in range(5):
        optimizer.zero_grad()
        head.loss(emissions, {"labels": labels}).backward()
        optimizer.step()
    assert head.scores().transitions.abs().max() > 1


def test_an_interrupted_training_with_lamb_goes_on_exactly(tmp_path: Path) -> None:
    whole = runs.run(tmp_path / "whole", LAMB)

    def interrupt(_model: object) -> dict[str, float]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runs.run(tmp_path / "parts", replace(LAMB, save_every=2, eval_every=3), evaluate=interrupt)
    again = replace(LAMB, save_every=2, eval_every=3, resume=True)
    parts = runs.run(tmp_path / "parts", again, evaluate=lambda _model: {"f1": 1.0})
    assert [line["loss"] for line in parts.log if "loss" in line] == whole.losses


@pytest.mark.parametrize(
    "changes", [{"optimizer": "adamw"}, {"betas": "0.9,0.98"}, {"epsilon": 0.1}, {"schedule": "wsd"}]
)
def test_each_option_changes_the_training(changes: dict[str, str], tmp_path: Path) -> None:
    plain, changed = runs.run(tmp_path / "a", LAMB), runs.run(tmp_path / "b", replace(LAMB, **changes))
    assert not runs.same(plain, changed)


@pytest.mark.parametrize(
    ("schedule", "falling"),
    [
        ("linear", lambda step: (100 - step) / 80),
        ("cosine", lambda step: 0.5 * (1 + math.cos(math.pi * (step - 20) / 80))),
        ("wsd", lambda step: 1.0 if step <= 90 else (100 - step) / 10),
    ],
)
def test_schedules(schedule: str, falling: Callable[[int], float]) -> None:
    factor = warm_up_and_decay(100, 0.2, schedule)
    assert [factor(step) for step in range(20)] == [(step + 1) / 20 for step in range(20)]
    assert [factor(step) for step in range(20, 101)] == pytest.approx([falling(step) for step in range(20, 101)])


@given(most=st.integers(2, 10_000), warmup=st.floats(0, 1), share=st.floats(0.001, 0.8))
def test_plateau_rises_then_falls(most: int, warmup: float, share: float) -> None:
    """The fall may begin before the warm-up has ended."""
    schedule = PlateauSchedule(most, FineTuningOptions(schedule="plateau", warmup=warmup))
    rising = max(1, round(min(most, 1_000) * warmup))
    falls_from = math.ceil(share * most)
    before = [schedule.factor(step) for step in range(falls_from + 1)]
    assert before == [min(1.0, (step + 1) / rising) for step in range(falls_from + 1)]
    schedule.falls_from = falls_from
    after = [schedule.factor(step) for step in range(falls_from, schedule.total + 1)]
    assert after[0] == before[-1]
    assert after == pytest.approx(np.linspace(after[0], 0, len(after)))


@pytest.mark.parametrize("betas", ["0.9", "0.9,1", "-0.1,0.9", "a,b", "0.9,0.9,0.9"])
def test_betas_that_are_none_are_explained(betas: str) -> None:
    with pytest.raises(UsageError, match="--betas"):
        replace(LAMB, betas=betas)
