"""The losses of distillation: one file each, a pure function of what student and teacher said about the same batch.

A file NAME.py is the loss called NAME. It has

- `KINDS`: the kinds of distillation that it fits: "mlm", "task";
- `READS`: what its `loss` takes: "rows" for `Rows`; "hidden", "attention" or "relations" for a `Pair` of layers;
- `UNIT`: what it is a mean over: "rows", "labelled" (rows with a label, see `labelled`), "tokens", or "pairs" of tokens
  that may look at each other;
- `LAYERS`, unless it reads rows: on which pairs of the layer map it acts: "all", "last", or "embeddings";
- `SAME_HEADS`, if it reads attention or relations: whether student and teacher must have as many heads;
- `NEEDS_TEACHER_LOGITS`;
- `loss(signals) -> Tensor`: the sum over its units, a scalar of float32 (of float64 where the signals are). The engine
  divides it by the number of units in the whole step, over accumulated batches and processes, so that how a step is cut
  up changes nothing; it adds up the pairs of layers, each with the weight that the user gives it.

Padding counts for nothing: rows and tokens are real ones only, and a `Pair` says which positions may look at which.
"""

from dataclasses import dataclass

from torch import Tensor

from biosqueeze.models.row_kinds import ONE_CLASS, RowKind


@dataclass(frozen=True)
class TopK:
    """The likeliest classes of each row, as a teacher's answers are kept on disk, at the temperature of the run."""

    ids: Tensor  # (rows, k) int64, different ones in each row
    log_probabilities: Tensor  # (rows, k)
    rest: Tensor  # (rows,) logarithm of the probability of all other classes together


@dataclass(frozen=True)
class Rows:
    """What was predicted: masked positions, real tokens, sequences, or starts and ends of spans."""

    student: Tensor  # (rows, classes) logits; (rows, 1) for a score
    teacher: Tensor | TopK | None  # the same of the teacher; None where no loss reads it
    labels: Tensor  # (rows,) class, -100 unknown; multi: (rows, classes); score: (rows,); NaN unknown in both
    temperature: float = 1.0
    kind: RowKind = ONE_CLASS


@dataclass(frozen=True)
class Layer:
    """What one model had inside at one depth. Queries, keys and values are there only where a loss reads them."""

    hidden: Tensor | None = None  # (tokens, hidden size), padding cut away; the student's projected where widths differ
    query: Tensor | None = None  # (batch, heads, length, head size)
    key: Tensor | None = None  # (batch, heads, length, head size)
    value: Tensor | None = None  # (batch, heads, length, head size)


@dataclass(frozen=True)
class Pair:
    """A layer of the student beside the layer of the teacher that it learns from."""

    student: Layer
    teacher: Layer
    allowed: Tensor  # (batch, length, length) bool: which query may look at which key; no padding in either
    relation_heads: int = 0  # into how many heads relations are split anew; 0 is the teacher's number


def states_of(pair: Pair, part: str) -> tuple[Tensor, Tensor]:
    """One part of both layers, student first.

    Raises:
        ValueError: the engine did not read it.
    """
    student, teacher = getattr(pair.student, part), getattr(pair.teacher, part)
    if student is None or teacher is None:
        raise ValueError(f"{part} was not read from both models")
    return student, teacher


def labelled(labels: Tensor) -> Tensor:
    """Which rows have a label, bool (rows,): no class below 0, and nothing that is NaN."""
    known = ~labels.isnan() if labels.is_floating_point() else labels >= 0
    return known.all(dim=-1) if known.dim() > 1 else known


def full(tensor: Tensor) -> Tensor:
    """At least float32, in which all losses are computed."""
    return tensor.float() if tensor.element_size() < 4 else tensor
