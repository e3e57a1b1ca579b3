"""Random inputs of losses: rows of logits, and layers of ragged batches whose texts are padded or packed."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from types import ModuleType
from typing import TypeVar

import torch
from torch import Tensor

from biosqueeze.models.row_kinds import EACH_CLASS, NUMBER, ONE_CLASS, RowKind
from biosqueeze.objectives import LayerPair, LayerStates, LogitRows, TopK

Signals = TypeVar("Signals", LogitRows, LayerPair)

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
    """Number of heads, and the size of each."""

    heads: int
    size: int


def normal(*shape: int, seed: int, scale: float = 2.0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale


def spans(layout: Layout) -> Iterator[tuple[int, slice]]:
    """Yield the row and the positions of every text."""
    for row, lengths in enumerate(layout):
        for stop, length in zip(itertools.accumulate(lengths), lengths, strict=True):
            yield row, slice(stop - length, stop)


def padding(layout: Layout) -> Tensor:
    """Return the padding mask, bool (batch, length), one column longer than the longest row."""
    blank = torch.ones(len(layout), max(map(sum, layout)) + 1, dtype=torch.bool)
    for row, where in spans(layout):
        blank[row, where] = False
    return blank


def allowed(layout: Layout) -> Tensor:
    """Return the attention mask, bool (batch, length, length): tokens of one text see each other."""
    batch, length = padding(layout).shape
    pairs = torch.zeros(batch, length, length, dtype=torch.bool)
    for row, where in spans(layout):
        pairs[row, where, where] = True
    return pairs


def layer(layout: Layout, shape: Shape, seed: int) -> LayerStates:
    """Draw queries, keys and values, padding included."""
    batch, length = padding(layout).shape
    return LayerStates(None, *(normal(batch, shape.heads, length, shape.size, seed=seed + part) for part in range(3)))


def pair(layout: Layout, student: Shape, teacher: Shape, *, seed: int = 0, relation_heads: int = 0) -> LayerPair:
    return LayerPair(layer(layout, student, seed), layer(layout, teacher, seed + 10), allowed(layout), relation_heads)


def hidden_pair(tokens: int = 7, width: int = 5, seed: int = 0) -> LayerPair:
    """Draw hidden states, without padding."""
    student, teacher = normal(tokens, width, seed=seed), normal(tokens, width, seed=seed + 1)
    return LayerPair(LayerStates(student), LayerStates(teacher), torch.ones(1, tokens, tokens, dtype=torch.bool))


def rows(kind: RowKind = ONE_CLASS, *, count: int = 6, classes: int = 5, temperature: float = 1.0) -> LogitRows:
    """Draw rows that all have labels."""
    width = 1 if kind is NUMBER else classes
    drawn = normal(count, classes, seed=3)
    labels = {ONE_CLASS: drawn.argmax(-1), EACH_CLASS: (drawn > 0).double(), NUMBER: drawn[:, 0]}[kind]
    return LogitRows(normal(count, width, seed=1), normal(count, width, seed=2), labels, temperature, kind)


def signals_for(module: ModuleType) -> LogitRows | LayerPair:
    """Draw the input that a loss reads."""
    if module.READS == "rows":
        return rows()
    if module.READS == "hidden":
        return hidden_pair()
    return pair(LAYOUTS["mixed"], Shape(2, 3), Shape(2, 3))


def student_leaves(signals: LogitRows | LayerPair) -> tuple[Tensor, ...]:
    """Return the student's tensors."""
    return (signals.student,) if isinstance(signals, LogitRows) else _parts(signals.student)


def with_student(signals: Signals, *tensors: Tensor) -> Signals:
    """Replace the student's tensors."""
    if isinstance(signals, LogitRows):
        return replace(signals, student=tensors[0])
    return replace(signals, student=_rebuilt(signals.student, tensors))


def cast(signals: Signals, dtype: torch.dtype) -> Signals:
    """Convert both models' tensors to another type."""
    moved = with_student(signals, *(tensor.to(dtype) for tensor in student_leaves(signals)))
    if isinstance(moved, LayerPair):
        teacher = _rebuilt(moved.teacher, [tensor.to(dtype) for tensor in _parts(moved.teacher)])
        return replace(moved, teacher=teacher)
    return replace(moved, teacher=moved.teacher.to(dtype) if isinstance(moved.teacher, Tensor) else moved.teacher)


def value_and_gradients(module: ModuleType, signals: LogitRows | LayerPair) -> tuple[Tensor, list[Tensor]]:
    """Return the loss, and its gradient for each student tensor (zero where unused)."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in student_leaves(signals)]
    loss = module.loss(with_student(signals, *leaves))
    loss.backward()
    return loss.detach(), [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]


def top_k(logits: Tensor, k: int, temperature: float = 1.0) -> TopK:
    """Return the k most probable classes of each row and the rest: from logits (rows, classes)."""
    probabilities, ids = torch.softmax(logits.double() / temperature, -1).sort(descending=True)
    return TopK(ids[:, :k], probabilities[:, :k].log(), probabilities[:, k:].sum(-1).log())


def _parts(layer: LayerStates) -> tuple[Tensor, ...]:
    return tuple(part for field in fields(layer) if (part := getattr(layer, field.name)) is not None)


def _rebuilt(layer: LayerStates, tensors: Sequence[Tensor]) -> LayerStates:
    names = [field.name for field in fields(layer) if getattr(layer, field.name) is not None]
    return replace(layer, **dict(zip(names, tensors, strict=True)))
