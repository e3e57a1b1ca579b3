"""Every loss against a naive version in float64, and its gradient against finite differences."""

import math

import pytest
import torch

from biosqueeze import registry
from biosqueeze.objectives import Signals

ROWS, CLASSES, TOKENS, WIDTH = 7, 5, 9, 4


def signals(temperature: float = 1.0, seed: int = 0) -> Signals:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64) * 3

    return Signals(
        labels=torch.randint(0, CLASSES, (ROWS,), generator=generator),
        student_logits=draw(ROWS, CLASSES),
        teacher_logits=draw(ROWS, CLASSES),
        student_hidden=draw(TOKENS, WIDTH),
        teacher_hidden=draw(TOKENS, WIDTH),
        temperature=temperature,
    )


def softmax(row: list[float]) -> list[float]:
    powers = [math.exp(x - max(row)) for x in row]
    return [p / sum(powers) for p in powers]


def naive_cross_entropy(s: Signals) -> float:
    rows = [(row, label) for row, label in zip(s.student_logits.tolist(), s.labels.tolist(), strict=True) if label >= 0]
    return sum(-math.log(softmax(row)[label]) for row, label in rows) / len(rows)


def naive_kl(s: Signals) -> float:
    total = 0.0
    for student, teacher in zip(s.student_logits.tolist(), s.teacher_logits.tolist(), strict=True):
        p = softmax([x / s.temperature for x in teacher])
        q = softmax([x / s.temperature for x in student])
        total += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    return total / ROWS * s.temperature**2


def naive_cosine(s: Signals) -> float:
    total = 0.0
    for a, b in zip(s.student_hidden.tolist(), s.teacher_hidden.tolist(), strict=True):
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        total += 1 - dot / (math.hypot(*a) * math.hypot(*b))
    return total / TOKENS


def naive_mse(s: Signals) -> float:
    pairs = zip(s.student_hidden.flatten().tolist(), s.teacher_hidden.flatten().tolist(), strict=True)
    return sum((a - b) ** 2 for a, b in pairs) / (TOKENS * WIDTH)


NAIVE = {
    "mlm": naive_cross_entropy,
    "hard": naive_cross_entropy,
    "kl": naive_kl,
    "cosine": naive_cosine,
    "mse": naive_mse,
}


def test_every_loss_has_a_naive_version_here() -> None:
    assert set(registry.names("objectives")) == set(NAIVE)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("name", sorted(NAIVE))
def test_loss_equals_the_naive_one(name: str, temperature: float) -> None:
    s = signals(temperature)
    assert float(registry.load("objectives", name).loss(s)) == pytest.approx(NAIVE[name](s), rel=1e-5)


@pytest.mark.parametrize("name", sorted(NAIVE))
def test_loss_declares_where_it_fits(name: str) -> None:
    module = registry.load("objectives", name)
    assert set(module.KINDS) <= {"mlm", "task"}
    assert module.KINDS
    assert isinstance(module.NEEDS_TEACHER_LOGITS, bool)


def test_hard_labels_skip_unlabelled_rows() -> None:
    s = signals()
    s.labels[2:5] = -100
    assert float(registry.load("objectives", "hard").loss(s)) == pytest.approx(naive_cross_entropy(s), rel=1e-5)


def test_hard_labels_of_a_wholly_unlabelled_batch_are_zero_with_a_gradient() -> None:
    s = signals()
    s.labels[:] = -100
    s.student_logits.requires_grad_()
    loss = registry.load("objectives", "hard").loss(s)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert torch.equal(s.student_logits.grad, torch.zeros_like(s.student_logits))


def test_kl_is_zero_between_equals_and_its_gradient_is_that_of_soft_labels() -> None:
    s = signals(temperature=2.0)
    logits = s.student_logits.clone().requires_grad_()
    loss = registry.load("objectives", "kl").loss(
        Signals(s.labels, logits, s.teacher_logits, s.student_hidden, s.teacher_hidden, 2.0)
    )
    loss.backward()
    expected = (torch.softmax(logits / 2, -1) - torch.softmax(s.teacher_logits / 2, -1)) * 2 / ROWS
    assert torch.allclose(logits.grad, expected.detach(), atol=1e-6)
    same = Signals(s.labels, s.teacher_logits, s.teacher_logits, s.student_hidden, s.teacher_hidden, 2.0)
    assert float(registry.load("objectives", "kl").loss(same)) == pytest.approx(0.0, abs=1e-6)


def test_kl_without_teacher_logits_is_refused() -> None:
    s = signals()
    with pytest.raises(ValueError, match="teacher's logits"):
        registry.load("objectives", "kl").loss(
            Signals(s.labels, s.student_logits, None, s.student_hidden, s.teacher_hidden, 1.0)
        )
