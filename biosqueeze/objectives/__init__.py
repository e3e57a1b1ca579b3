"""Distillation losses: one file each, a pure function of student and teacher outputs on the same batch.

A file NAME.py is the loss called NAME. It defines

- `KINDS`: the kinds of distillation that it fits: "mlm", "task";
- `READS`: the input of its `loss`: "rows" for `LogitRows`; "hidden", "attention" or "relations" for a `LayerPair`;
- `UNIT`: the unit that its mean is taken over: "rows", "labelled" (rows with a label, see `labelled`), "tokens", or
  "pairs" of tokens of one text, also for a layer whose window allows fewer, which therefore weighs less;
- `LAYERS`, unless it reads rows: the pairs of the layer map that it uses: "all", "last", or "embeddings";
- `SAME_HEADS`, if it reads attention or relations: whether student and teacher must have equally many heads;
- `NEEDS_TEACHER_LOGITS`: whether it reads the teacher's logits;
- `loss(signals) -> Tensor`: the sum over its units, a scalar of float32 (float64 for float64 inputs). The training
  engine divides it by the number of units in the whole step, over accumulated batches and processes, so the result does
  not depend on how a step is split. It adds up the layer pairs, each multiplied by its weight from --layer-weights.

Padding never contributes: rows and tokens are real ones only, and `LayerPair.allowed` masks the positions of attention.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from biosqueeze.models.row_kinds import ONE_CLASS, RowKind


@dataclass(frozen=True)
class TopK:
    """The most probable classes of each row, as the teacher cache stores them, at the temperature of the run."""

    ids: Tensor  # (rows, k) int64, distinct in each row
    log_probabilities: Tensor  # (rows, k)
    rest: Tensor  # (rows,) logarithm of the summed probability of all other classes


@dataclass(frozen=True)
class LogitRows:
    """Logits and labels of the predicted units: masked positions, real tokens, sequences, or span starts and ends."""

    student: Tensor  # (rows, classes) logits; (rows, 1) for a score
    teacher: Tensor | TopK | None  # the teacher's, of the same shape; None where no loss reads them
    labels: Tensor  # (rows,) class, -100 unlabelled; multi: (rows, classes); score: (rows,); NaN unlabelled in both
    temperature: float = 1.0
    kind: RowKind = ONE_CLASS  # the meaning of a row


@dataclass(frozen=True)
class LayerStates:
    """Internal states of one model at one depth. Only the parts that a loss reads are set."""

    hidden: Tensor | None = None  # (tokens, hidden size) without padding; projected to the teacher's width if needed
    query: Tensor | None = None  # (batch, heads, length, head size)
    key: Tensor | None = None  # (batch, heads, length, head size)
    value: Tensor | None = None  # (batch, heads, length, head size)
    bias: Tensor | None = None  # (batch, heads, query, key), added to the scores by relative positions; None is zero

    def of_heads(self, heads: Sequence[int]) -> "LayerStates":
        """Return these states with some of the heads."""
        parts = {name: getattr(self, name) for name in ("query", "key", "value", "bias")}
        return replace(self, **{name: part[:, list(heads)] for name, part in parts.items() if part is not None})


@dataclass(frozen=True)
class LayerPair:
    """A student layer and the teacher layer that it is compared with."""

    student: LayerStates
    teacher: LayerStates
    allowed: Tensor  # (batch, length, length) bool: which query attends to which key; False for padding on either side
    relation_heads: int = 0  # number of heads into which relations are regrouped; 0 is the teacher's number of heads


def states_of(pair: LayerPair, part: str) -> tuple[Tensor, Tensor]:
    """Return one part ("hidden", "query", "key", "value") of the student's and the teacher's layer.

    Raises:
        ValueError: the part was not recorded for both models.
    """
    student, teacher = getattr(pair.student, part), getattr(pair.teacher, part)
    if student is None or teacher is None:
        raise ValueError(f"{part} was not recorded for both models")
    return student, teacher


def labelled(labels: Tensor) -> Tensor:
    """Return which rows have a label, bool (rows,): no negative class and no NaN."""
    known = ~labels.isnan() if labels.is_floating_point() else labels >= 0
    return known.all(dim=-1) if known.dim() > 1 else known
