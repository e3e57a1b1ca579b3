"""Signals drawn at random: rows of logits, and layers of ragged batches whose texts lie padded or side by side."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from types import ModuleType
from typing import TypeVar

import torch
from torch import Tensor

from biosqueeze.models.row_kinds import EACH_CLASS, NUMBER, ONE_CLASS, RowKind
from biosqueeze.objectives import Layer, Pair, Rows, TopK

Signals = TypeVar("Signals", Rows, Pair)

# Lengths of the texts in each row of a batch: padded ones, packed blocks, a row that is all padding, one token alone.
Layout = Sequence[Sequence[int]]
LAYOUTS: dict[str, Layout] = {
    "even": [[4], [4]],
    "ragged": [[5], [2], [1]],
    "packed": [[2, 3], [4, 1, 1]],
    "mixed": [[1, 2, 2], [], [6]],
}


@dataclass(frozen=True)
class Shape:
    """Heads and the size of each."""

    heads: int
    size: int


def normal(*shape: int, seed: int, scale: float = 2.0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale


def spans(layout: Layout) -> Iterator[tuple[int, slice]]:
    """The row and the positions of every text."""
    for row, lengths in enumerate(layout):
        for stop, length in zip(itertools.accumulate(lengths), lengths, strict=True):
            yield row, slice(stop - length, stop)


def padding(layout: Layout) -> Tensor:
    """Which positions are no text's, (batch, length), with one more column than any text needs."""
    blank = torch.ones(len(layout), max(map(sum, layout)) + 1, dtype=torch.bool)
    for row, where in spans(layout):
        blank[row, where] = False
    return blank


def allowed(layout: Layout) -> Tensor:
    """Which token may look at which, (batch, length, length)."""
    batch, length = padding(layout).shape
    pairs = torch.zeros(batch, length, length, dtype=torch.bool)
    for row, where in spans(layout):
        pairs[row, where, where] = True
    return pairs


def layer(layout: Layout, shape: Shape, seed: int) -> Layer:
    """Queries, keys and values, padding included."""
    batch, length = padding(layout).shape
    return Layer(None, *(normal(batch, shape.heads, length, shape.size, seed=seed + part) for part in range(3)))


def pair(layout: Layout, student: Shape, teacher: Shape, *, seed: int = 0, relation_heads: int = 0) -> Pair:
    return Pair(layer(layout, student, seed), layer(layout, teacher, seed + 10), allowed(layout), relation_heads)


def hidden_pair(tokens: int = 7, width: int = 5, seed: int = 0) -> Pair:
    """Hidden states are given without padding."""
    student, teacher = normal(tokens, width, seed=seed), normal(tokens, width, seed=seed + 1)
    return Pair(Layer(student), Layer(teacher), torch.ones(1, tokens, tokens, dtype=torch.bool))


def rows(kind: RowKind = ONE_CLASS, *, count: int = 6, classes: int = 5, temperature: float = 1.0) -> Rows:
    """All labels known."""
    width = 1 if kind is NUMBER else classes
    drawn = normal(count, classes, seed=3)
    labels = {ONE_CLASS: drawn.argmax(-1), EACH_CLASS: (drawn > 0).double(), NUMBER: drawn[:, 0]}[kind]
    return Rows(normal(count, width, seed=1), normal(count, width, seed=2), labels, temperature, kind)


def signals_for(module: ModuleType) -> Rows | Pair:
    """Something that a loss can read."""
    if module.READS == "rows":
        return rows()
    if module.READS == "hidden":
        return hidden_pair()
    return pair(LAYOUTS["mixed"], Shape(2, 3), Shape(2, 3))


def student_leaves(signals: Rows | Pair) -> tuple[Tensor, ...]:
    """What the student said."""
    return (signals.student,) if isinstance(signals, Rows) else _parts(signals.student)


def with_student(signals: Signals, *tensors: Tensor) -> Signals:
    """The same signals with another student."""
    if isinstance(signals, Rows):
        return replace(signals, student=tensors[0])
    return replace(signals, student=_rebuilt(signals.student, tensors))


def cast(signals: Signals, dtype: torch.dtype) -> Signals:
    """The same signals in another precision, of both models."""
    moved = with_student(signals, *(tensor.to(dtype) for tensor in student_leaves(signals)))
    if isinstance(moved, Pair):
        teacher = _rebuilt(moved.teacher, [tensor.to(dtype) for tensor in _parts(moved.teacher)])
        return replace(moved, teacher=teacher)
    return replace(moved, teacher=moved.teacher.to(dtype) if isinstance(moved.teacher, Tensor) else moved.teacher)


def value_and_gradients(module: ModuleType, signals: Rows | Pair) -> tuple[Tensor, list[Tensor]]:
    """The loss, and its gradient to what the student said (zero where it read nothing of it)."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in student_leaves(signals)]
    loss = module.loss(with_student(signals, *leaves))
    loss.backward()
    return loss.detach(), [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]


def top_k(logits: Tensor, k: int, temperature: float = 1.0) -> TopK:
    """The likeliest classes of each row and what is left: (rows, classes)."""
    probabilities, ids = torch.softmax(logits.double() / temperature, -1).sort(descending=True)
    return TopK(ids[:, :k], probabilities[:, :k].log(), probabilities[:, k:].sum(-1).log())


def _parts(layer: Layer) -> tuple[Tensor, ...]:
    return tuple(part for field in fields(layer) if (part := getattr(layer, field.name)) is not None)


def _rebuilt(layer: Layer, tensors: Sequence[Tensor]) -> Layer:
    names = [field.name for field in fields(layer) if getattr(layer, field.name) is not None]
    return replace(layer, **dict(zip(names, tensors, strict=True)))
