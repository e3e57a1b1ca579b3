"""Losses on rows of logits against naive versions: class by class, in Python floats."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from biosqueeze import registry
from biosqueeze.models.row_kinds import EACH_CLASS, NUMBER, ONE_CLASS, RowKind
from biosqueeze.objectives import LogitRows, TopK
from tests.objectives.signals import cast, normal, rows, top_k, value_and_gradients

ROW_KINDS = (ONE_CLASS, EACH_CLASS, NUMBER)
SOFT = ("kl", "reverse-kl", "soft")
with_soft_labels = pytest.mark.parametrize("name", SOFT)


def softmax(logits: list[float]) -> list[float]:
    powers = [math.exp(logit - max(logits)) for logit in logits]
    return [power / sum(powers) for power in powers]


def cross_entropy(p: list[float], q: list[float]) -> float:
    return -sum(a * math.log(b) for a, b in zip(p, q, strict=True) if a)


def divergence(p: list[float], q: list[float]) -> float:
    return cross_entropy(p, q) - cross_entropy(p, p)


def yes_or_no(logit: float) -> list[float]:
    return [1 / (1 + math.exp(-logit)), 1 / (1 + math.exp(logit))]


def naive_hard(rows: LogitRows) -> float:
    total = 0.0
    for logits, label in zip(rows.student.tolist(), rows.labels.tolist(), strict=True):
        if rows.kind is ONE_CLASS and label >= 0:
            total -= math.log(softmax(logits)[label])
        elif rows.kind is NUMBER and not math.isnan(label):
            total += (logits[0] - label) ** 2
        elif rows.kind is EACH_CLASS and not any(map(math.isnan, label)):
            each = [cross_entropy([y, 1 - y], yes_or_no(z)) for z, y in zip(logits, label, strict=True)]
            total += sum(each) / len(each)
    return total


def naive_soft_labels(rows: LogitRows, compare: Callable[[list[float], list[float]], float]) -> float:
    total, temperature = 0.0, rows.temperature
    for student, teacher in zip(rows.student.tolist(), rows.teacher.tolist(), strict=True):
        ours, theirs = [z / temperature for z in student], [z / temperature for z in teacher]
        if rows.kind is ONE_CLASS:
            total += compare(softmax(theirs), softmax(ours)) * temperature**2
        elif rows.kind is NUMBER:
            total += (student[0] - teacher[0]) ** 2
        else:
            each = [compare(yes_or_no(t), yes_or_no(s)) for s, t in zip(ours, theirs, strict=True)]
            total += sum(each) / len(each) * temperature**2
    return total


def naive_kl(rows: LogitRows) -> float:
    return naive_soft_labels(rows, divergence)


def naive_reverse_kl(rows: LogitRows) -> float:
    return naive_soft_labels(rows, lambda teacher, student: divergence(student, teacher))


def naive_soft(rows: LogitRows) -> float:
    return naive_soft_labels(rows, cross_entropy)


NAIVE = {"mlm": naive_hard, "hard": naive_hard, "kl": naive_kl, "reverse-kl": naive_reverse_kl, "soft": naive_soft}


def loss_of(name: str, rows: LogitRows) -> float:
    return float(registry.load("objectives", name).loss(rows))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
@pytest.mark.parametrize(
    ("name", "kind"), [("mlm", ONE_CLASS), *((name, kind) for name in ("hard", *SOFT) for kind in ROW_KINDS)]
)
def test_loss_equals_the_naive_sum_over_rows(name: str, kind: RowKind, temperature: float) -> None:
    signals = rows(kind, temperature=temperature)
    assert loss_of(name, signals) == pytest.approx(NAIVE[name](signals), rel=1e-10)


@pytest.mark.parametrize(("name", "kind"), [("mlm", ONE_CLASS), *(("hard", kind) for kind in ROW_KINDS)])
@pytest.mark.parametrize("blank", [[1, 4], [0, 1, 2, 3, 4, 5]])
def test_unlabelled_rows_add_nothing(name: str, kind: RowKind, blank: list[int]) -> None:
    signals = rows(kind)
    signals.labels[blank] = -100 if kind is ONE_CLASS else math.nan
    loss, (gradient,) = value_and_gradients(registry.load("objectives", name), signals)
    assert float(loss) == pytest.approx(NAIVE[name](signals), rel=1e-10)
    assert not gradient[blank].any()
    assert gradient.isfinite().all()
    rest = [row for row in range(6) if row not in blank]
    assert (gradient[rest] != 0).any(-1).all()


def test_partly_labelled_row_counts_as_unlabelled() -> None:
    signals = rows(EACH_CLASS)
    signals.labels[2, 3] = math.nan
    known = [0, 1, 3, 4, 5]
    expected = naive_hard(replace(signals, student=signals.student[known], labels=signals.labels[known]))
    assert loss_of("hard", signals) == pytest.approx(expected, rel=1e-10)


@with_soft_labels
@pytest.mark.parametrize("kind", [EACH_CLASS, NUMBER])
def test_soft_label_gradients_equal_finite_differences(name: str, kind: RowKind) -> None:
    signals = rows(kind, temperature=2.0)
    loss = registry.load("objectives", name).loss
    assert torch.autograd.gradcheck(
        lambda student: loss(replace(signals, student=student)), signals.student.requires_grad_()
    )


@pytest.mark.parametrize("kind", [EACH_CLASS, NUMBER])
def test_hard_label_gradients_equal_finite_differences(kind: RowKind) -> None:
    signals = rows(kind)
    loss = registry.load("objectives", "hard").loss
    assert torch.autograd.gradcheck(
        lambda student: loss(replace(signals, student=student)), signals.student.requires_grad_()
    )


@pytest.mark.parametrize("name", ["kl", "soft"])
def test_gradient_is_probability_difference_times_temperature(name: str) -> None:
    signals = rows(temperature=2.0)
    _, (gradient,) = value_and_gradients(registry.load("objectives", name), signals)
    expected = (torch.softmax(signals.student / 2, -1) - torch.softmax(signals.teacher / 2, -1)) * 2
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("kind", ROW_KINDS)
def test_equal_logits_have_zero_divergence(kind: RowKind) -> None:
    signals = rows(kind, temperature=2.0)
    assert loss_of("kl", replace(signals, teacher=signals.student)) == 0


@with_soft_labels
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("fill", [-30_000.0, torch.finfo(torch.bfloat16).min, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("stored", [None, 4, 7])
def test_masked_classes_add_nothing(name: str, temperature: float, fill: float, stored: int | None) -> None:
    """Like padding positions in a row of span logits: 7 classes, of which 3 are possible."""
    possible = cast(rows(classes=3, temperature=temperature), torch.float32)
    beside = torch.full((6, 4), fill)
    wide = replace(
        possible,
        student=torch.cat((possible.student, beside), -1),
        teacher=torch.cat((possible.teacher, beside), -1),
    )
    if stored:
        wide = replace(wide, teacher=top_k(wide.teacher, stored, temperature))
    module = registry.load("objectives", name)
    loss, (gradient,) = value_and_gradients(module, wide)
    expected, (expected_gradient,) = value_and_gradients(module, possible)
    torch.testing.assert_close(loss.float(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient[:, :3], expected_gradient, rtol=1e-4, atol=1e-6)
    assert torch.equal(gradient[:, 3:], torch.zeros(6, 4))


@with_soft_labels
@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("k", [4, 5])
def test_top_k_of_all_classes_equals_full_logits(name: str, temperature: float, k: int) -> None:
    """Of five classes: all five, or four and the rest, which is then the fifth."""
    dense = rows(temperature=temperature)
    module = registry.load("objectives", name)
    loss, (gradient,) = value_and_gradients(module, replace(dense, teacher=top_k(dense.teacher, k, temperature)))
    expected, (expected_gradient,) = value_and_gradients(module, dense)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-9, atol=1e-12)


def naive_top_k(rows: LogitRows, compare: Callable[[list[float], list[float]], float]) -> float:
    teacher, total = rows.teacher, 0.0
    for logits, ids, likely, rest in zip(
        rows.student.tolist(), teacher.ids.tolist(), teacher.log_probabilities.tolist(), teacher.rest.tolist(),
        strict=True,
    ):  # fmt: skip
        q = softmax([z / rows.temperature for z in logits])
        others = sum(q[n] for n in range(len(q)) if n not in ids)
        p = [math.exp(x) for x in (*likely, rest)]
        total += compare(p, [*(q[n] for n in ids), others]) * rows.temperature**2
    return total


@settings(max_examples=40, deadline=None)
@given(
    k=st.integers(1, 8),
    temperature=st.sampled_from([1.0, 2.0, 4.0]),
    scale=st.sampled_from([0.1, 2.0, 20.0]),
    seed=st.integers(0, 1000),
)
def test_top_k_equals_the_naive_version(k: int, temperature: float, scale: float, seed: int) -> None:
    student, teacher = normal(4, 9, seed=seed, scale=scale), normal(4, 9, seed=seed + 1, scale=scale)
    signals = LogitRows(student, top_k(teacher, k, temperature), torch.zeros(4, dtype=torch.int64), temperature)
    assert loss_of("kl", signals) == pytest.approx(naive_top_k(signals, divergence), rel=1e-8, abs=1e-10)
    assert loss_of("soft", signals) == pytest.approx(naive_top_k(signals, cross_entropy), rel=1e-8, abs=1e-10)
    assert loss_of("kl", signals) <= loss_of("kl", replace(signals, teacher=teacher)) + 1e-9


@with_soft_labels
def test_top_k_gradients_equal_finite_differences(name: str) -> None:
    signals = rows(temperature=2.0)
    stored = replace(signals, teacher=top_k(signals.teacher, 2, 2.0))
    loss = registry.load("objectives", name).loss
    assert torch.autograd.gradcheck(
        lambda student: loss(replace(stored, student=student)), signals.student.requires_grad_()
    )


def test_rest_far_below_rounding_is_kept() -> None:
    """The other classes have a probability of about e-60; one minus the stored ones would be 0 in any precision."""
    student = torch.zeros(1, 100)
    student[0, 0] = 65.0
    teacher = TopK(torch.tensor([[0]]), torch.tensor([[0.5]]).log(), torch.tensor([0.5]).log())
    signals = LogitRows(student, teacher, torch.zeros(1, dtype=torch.int64))
    loss, (gradient,) = value_and_gradients(registry.load("objectives", "kl"), signals)
    assert float(loss) == pytest.approx(math.log(0.5) + 0.5 * (65 - math.log(99)), rel=1e-6)
    assert gradient[0, 0] == pytest.approx(0.5, rel=1e-6)
    assert gradient[0, 1:].tolist() == pytest.approx([-0.5 / 99] * 99, rel=1e-5)


def test_fp16_rounded_probabilities_are_normalized() -> None:
    logits = normal(50, 30, seed=5)
    exact = top_k(logits, 8)
    rounded = TopK(exact.ids, exact.log_probabilities.half(), exact.rest.half())
    labels = torch.zeros(50, dtype=torch.int64)
    loss, (gradient,) = value_and_gradients(registry.load("objectives", "kl"), LogitRows(logits, rounded, labels))
    assert 0 <= float(loss) < 1e-4
    assert gradient.sum(-1).abs().max() < 1e-12


@with_soft_labels
@pytest.mark.parametrize("kind", [EACH_CLASS, NUMBER])
def test_top_k_needs_single_label_outputs(name: str, kind: RowKind) -> None:
    signals = replace(rows(kind), teacher=top_k(rows().teacher, 2))
    with pytest.raises(ValueError, match=r"top-k logits|teacher's scores"):
        loss_of(name, signals)


@with_soft_labels
@pytest.mark.parametrize("kind", ROW_KINDS)
def test_extreme_logits_stay_finite(name: str, kind: RowKind) -> None:
    signals = cast(rows(kind, temperature=2.0), torch.float32)
    loss, (gradient,) = value_and_gradients(
        registry.load("objectives", name),
        replace(signals, student=signals.student * 1e4, teacher=signals.teacher * -1e4),
    )
    assert loss.isfinite()
    assert gradient.isfinite().all()
