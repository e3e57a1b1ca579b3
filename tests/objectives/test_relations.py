"""Losses on attention and relations against naive versions: text by text, head by head, without masks."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from biosqueeze import registry
from biosqueeze.objectives import LayerPair, LayerStates
from tests.objectives.signals import LAYOUTS, Layout, Shape, cast, padding, pair, spans, value_and_gradients

Head = tuple[Tensor, Tensor]  # one head of one text, (tokens, head size): queries and keys, or a relation's two sides


def heads_of(layer: LayerStates, layout: Layout, left: str, right: str) -> Iterator[list[Head]]:
    """Yield the heads of each text, cut to its length."""
    for row, where in spans(layout):
        one, two = getattr(layer, left)[row], getattr(layer, right)[row]
        yield [(one[head, where], two[head, where]) for head in range(len(one))]


def regrouped(layer: LayerStates, layout: Layout, part: str, count: int) -> Iterator[list[Head]]:
    """Yield the relation heads of each text: its heads concatenated token by token, and regrouped."""
    for heads in heads_of(layer, layout, part, part):
        joined = torch.stack([torch.cat([one[token] for one, _ in heads]) for token in range(len(heads[0][0]))])
        size = joined.shape[1] // count
        yield [(joined[:, size * n : size * (n + 1)],) * 2 for n in range(count)]


def naive_scores(head: Head) -> list[list[Tensor]]:
    left, right = head
    return [[(a * b).sum() / math.sqrt(len(a)) for b in right] for a in left]


def naive_divergence(student: list[Head], teacher: list[Head]) -> Tensor:
    """Sum the divergence over the tokens of one text; mean over heads."""
    total = torch.zeros((), dtype=torch.float64)
    for student_head, teacher_head in zip(student, teacher, strict=True):
        for ours, target in zip(naive_scores(student_head), naive_scores(teacher_head), strict=True):
            q, p = torch.softmax(torch.stack(ours), 0), torch.softmax(torch.stack(target), 0)
            total = total + (p * (p / q).log()).sum()
    return total / len(student)


def naive_map_squares(student: list[Head], teacher: list[Head]) -> Tensor:
    """Sum the squared differences of probabilities over the pairs of one text; mean over heads."""
    total = torch.zeros((), dtype=torch.float64)
    for student_head, teacher_head in zip(student, teacher, strict=True):
        for ours, target in zip(naive_scores(student_head), naive_scores(teacher_head), strict=True):
            total = total + ((torch.softmax(torch.stack(ours), 0) - torch.softmax(torch.stack(target), 0)) ** 2).sum()
    return total / len(student)


def naive_squares(student: list[Head], teacher: list[Head]) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for student_head, teacher_head in zip(student, teacher, strict=True):
        for ours, target in zip(naive_scores(student_head), naive_scores(teacher_head), strict=True):
            total = total + sum((a - b) ** 2 for a, b in zip(ours, target, strict=True))
    return total / len(student)


def over_texts(
    pair: LayerPair, layout: Layout, left: str, right: str, each: Callable[[list[Head], list[Head]], Tensor]
) -> Tensor:
    texts = zip(heads_of(pair.student, layout, left, right), heads_of(pair.teacher, layout, left, right), strict=True)
    return sum((each(student, teacher) for student, teacher in texts), torch.zeros((), dtype=torch.float64))


def naive_attention(pair: LayerPair, layout: Layout) -> Tensor:
    return over_texts(pair, layout, "query", "key", naive_squares)


def naive_attention_kl(pair: LayerPair, layout: Layout) -> Tensor:
    return over_texts(pair, layout, "query", "key", naive_divergence)


def naive_attention_maps(pair: LayerPair, layout: Layout) -> Tensor:
    return over_texts(pair, layout, "query", "key", naive_map_squares)


def naive_reverse_attention_kl(pair: LayerPair, layout: Layout) -> Tensor:
    return over_texts(pair, layout, "query", "key", lambda student, teacher: naive_divergence(teacher, student))


def naive_minilm(pair: LayerPair, layout: Layout) -> Tensor:
    return naive_attention_kl(pair, layout) + over_texts(pair, layout, "value", "value", naive_divergence)


def naive_minilmv2(pair: LayerPair, layout: Layout) -> Tensor:
    count = pair.relation_heads or pair.teacher.query.shape[1]
    total = torch.zeros((), dtype=torch.float64)
    for part in ("query", "key", "value"):
        texts = zip(
            regrouped(pair.student, layout, part, count), regrouped(pair.teacher, layout, part, count), strict=True
        )
        total = total + sum(naive_divergence(student, teacher) for student, teacher in texts)
    return total


NAIVE = {
    "attention": naive_attention,
    "attention-kl": naive_attention_kl,
    "attention-kl-mean": naive_attention_kl,
    "attention-maps": naive_attention_maps,
    "reverse-attention-kl": naive_reverse_attention_kl,
    "minilm": naive_minilm,
    "minilmv2": naive_minilmv2,
}


def agrees(name: str, pair: LayerPair, layout: Layout) -> None:
    """Compare value and gradient with the naive version."""
    loss, gradients = value_and_gradients(registry.load("objectives", name), pair)
    leaves = [getattr(pair.student, part).clone().requires_grad_() for part in ("query", "key", "value")]
    expected = NAIVE[name](replace(pair, student=LayerStates(None, *leaves)), layout)
    slopes = torch.autograd.grad(expected, leaves, allow_unused=True)
    assert float(loss) == pytest.approx(float(expected.detach()), rel=1e-10)
    for gradient, slope in zip(gradients, slopes, strict=True):
        naive = torch.zeros_like(gradient) if slope is None else slope
        torch.testing.assert_close(gradient, naive, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("name", NAIVE)
def test_loss_and_gradient_equal_the_naive_ones(name: str, layout: Layout) -> None:
    agrees(name, pair(layout, Shape(2, 3), Shape(2, 3)), layout)


@pytest.mark.parametrize("name", NAIVE)
def test_sizes_of_heads_may_differ(name: str) -> None:
    agrees(name, pair(LAYOUTS["mixed"], Shape(2, 2), Shape(2, 5)), LAYOUTS["mixed"])


@pytest.mark.parametrize("relation_heads", [0, 1, 3, 6])
def test_relation_heads_with_other_heads_and_widths(relation_heads: int) -> None:
    layout = LAYOUTS["packed"]
    agrees("minilmv2", pair(layout, Shape(2, 6), Shape(3, 8), relation_heads=relation_heads), layout)


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(sorted(NAIVE)),
    layout=st.lists(st.lists(st.integers(1, 4), max_size=3), min_size=1, max_size=3),
    heads=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_any_layout_agrees(name: str, layout: Layout, heads: int, seed: int) -> None:
    if any(layout):
        agrees(name, pair(layout, Shape(heads, 2), Shape(heads, 3), seed=seed), layout)


def repadded(layer: LayerStates, layout: Layout, fill: float) -> LayerStates:
    """Fill the padding with noise."""
    blank = padding(layout)[:, None, :, None]
    noise = {part: torch.randn_like(getattr(layer, part)) * fill for part in ("query", "key", "value")}
    return replace(layer, **{part: getattr(layer, part).where(~blank, noise[part]) for part in noise})


@pytest.mark.parametrize("fill", [0.0, 7.0, 1e30])
@pytest.mark.parametrize("layout", ["ragged", "packed", "mixed"])
@pytest.mark.parametrize("name", NAIVE)
def test_padding_changes_no_bit_of_loss_or_gradient(name: str, layout: str, fill: float) -> None:
    module, texts = registry.load("objectives", name), LAYOUTS[layout]
    signals = cast(pair(texts, Shape(2, 4), Shape(2, 4)), torch.float32)
    other = replace(
        signals, student=repadded(signals.student, texts, fill), teacher=repadded(signals.teacher, texts, -fill)
    )
    loss, gradients = value_and_gradients(module, signals)
    same, same_gradients = value_and_gradients(module, other)
    assert torch.equal(loss, same)
    for gradient, other_gradient in zip(gradients, same_gradients, strict=True):
        assert torch.equal(gradient, other_gradient)
        assert not gradient.transpose(1, 2)[padding(texts)].any()


@pytest.mark.parametrize("name", NAIVE)
def test_packed_texts_equal_separate_texts(name: str) -> None:
    module = registry.load("objectives", name)
    block = pair([[3, 4]], Shape(2, 3), Shape(2, 3))
    alone = [
        LayerPair(
            _cut(block.student, where), _cut(block.teacher, where), torch.ones(1, *[where.stop - where.start] * 2) > 0
        )
        for _, where in spans([[3, 4]])
    ]
    assert float(module.loss(block)) == pytest.approx(float(sum(module.loss(text) for text in alone)), rel=1e-12)


def _cut(layer: LayerStates, where: slice) -> LayerStates:
    return LayerStates(None, layer.query[:, :, where], layer.key[:, :, where], layer.value[:, :, where])


@pytest.mark.parametrize("name", NAIVE)
def test_equal_models_have_zero_loss(name: str) -> None:
    signals = pair(LAYOUTS["packed"], Shape(2, 3), Shape(2, 3))
    loss, gradients = value_and_gradients(registry.load("objectives", name), replace(signals, teacher=signals.student))
    assert loss == 0
    assert all(gradient.abs().max() < 1e-12 for gradient in gradients)


@pytest.mark.parametrize("name", ["attention", "attention-kl", "attention-maps", "reverse-attention-kl"])
def test_a_key_that_no_query_may_attend_to_adds_nothing(name: str) -> None:
    module, signals = registry.load("objectives", name), pair([[4]], Shape(2, 3), Shape(2, 3))
    causal = signals.allowed.tril()
    causal[:, 3, 3] = False  # now nothing attends to the last text token, which still attends to the others
    _, (_, key, _) = value_and_gradients(module, replace(signals, allowed=causal))
    assert key[:, :, :3].any(dim=-1).all()
    assert not key[:, :, 3].any()
