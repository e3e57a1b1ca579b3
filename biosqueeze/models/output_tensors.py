"""The output types of `data.output_types` in torch: rows of logits, their labels, supervised losses and distances.

A batch has the label features that `data.output_types` lists, batched: `labels` (batch, length) for tokens, and so on.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from biosqueeze.data.feature_keys import ATTENTION_MASK, ENDS, INPUT_IDS, LABELS, STARTS, TARGETS
from biosqueeze.data.output_types import MULTI, SCORE, SINGLE, SPAN, TOKENS, OutputType
from biosqueeze.models.row_kinds import EACH_CLASS, NUMBER, ONE_CLASS, RowKind, symmetric_divergence

Batch = Mapping[str, Tensor]

# The logit of a span's start or end in the padding.
IMPOSSIBLE = -30_000.0


@dataclass(frozen=True)
class OutputTensors(ABC):
    """Operations on the logits and labels of one output type. By default, a row is a sequence."""

    output_type: ClassVar[OutputType]
    row_kind: ClassVar[RowKind]

    @abstractmethod
    def row_labels(self, batch: Batch, positions: Tensor) -> Tensor:
        """Return the label of each row, as `objectives.LogitRows` describes them.

        Args:
            batch: with label features.
            positions: bool (batch, length), the tokens that are rows if tokens are.
        """

    @abstractmethod
    def loss(self, logits: Tensor, batch: Batch, weights: Tensor | None = None) -> Tensor:
        """Return the mean loss of fine-tuning. Scalar.

        Args:
            logits: as the model gives them, see `data.output_types`.
            batch: with label features.
            weights: of classes, see `finetuning.class_weights`; unused where labels are not classes.
        """

    def rows(self, logits: Tensor, positions: Tensor) -> Tensor:
        """Return the rows of a head's logits: (rows, classes).

        Args:
            logits: as the model gives them, see `data.output_types`.
            positions: bool (batch, length), the tokens that are rows if tokens are; real tokens otherwise.
        """
        del positions
        return logits

    def row_counts(self, positions: Tensor) -> Tensor:
        """Return how many rows each sequence has, (batch,), from the positions (batch, length)."""
        return torch.ones_like(positions[:, 0], dtype=torch.int64)

    def scored(self, batch: Batch) -> int:
        """Return how many items the mean of `loss` is over."""
        return len(batch[INPUT_IDS])

    def mean_distance(self, moved: Tensor, clean: Tensor, batch: Batch) -> Tensor:
        """Return the mean distance of two predictions over what the loss scores. Scalar.

        Args:
            moved: logits as the model gives them, see `data.output_types`.
            clean: the same shape.
            batch: with label features.
        """
        del batch
        return self.row_kind.mean_distance(moved, clean)


@dataclass(frozen=True)
class TokenTensors(OutputTensors):
    """Logits (batch, length, classes); a row is a token."""

    output_type: ClassVar[OutputType] = TOKENS
    row_kind: ClassVar[RowKind] = ONE_CLASS

    def rows(self, logits: Tensor, positions: Tensor) -> Tensor:
        """Return the logits at the positions, (rows, classes)."""
        return logits[positions]

    def row_labels(self, batch: Batch, positions: Tensor) -> Tensor:
        """Return the class ids at the positions, (rows,)."""
        return batch[LABELS][positions]

    def row_counts(self, positions: Tensor) -> Tensor:
        """Return the number of positions in each sequence, (batch,)."""
        return positions.sum(dim=1)

    def scored(self, batch: Batch) -> int:
        """Return the number of tokens with a label."""
        return int((batch[LABELS] >= 0).sum())

    def loss(self, logits: Tensor, batch: Batch, weights: Tensor | None = None) -> Tensor:
        """Return the mean cross entropy over the tokens with a label.

        The weights, (classes,), scale each token's loss and not the number that it is divided by: over the whole
        training set their mean is 1.
        """
        labels = batch[LABELS]  # (batch, length)
        total = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), weight=weights, reduction="sum")
        return total / (labels >= 0).sum().clamp(min=1)

    def mean_distance(self, moved: Tensor, clean: Tensor, batch: Batch) -> Tensor:
        """Return the mean symmetric divergence over the tokens with a label."""
        scored = batch[LABELS] >= 0
        return symmetric_divergence(moved[scored], clean[scored]).sum() / scored.sum().clamp(min=1)


@dataclass(frozen=True)
class SingleTensors(OutputTensors):
    """Logits (batch, classes) of one class for each sequence."""

    output_type: ClassVar[OutputType] = SINGLE
    row_kind: ClassVar[RowKind] = ONE_CLASS

    def row_labels(self, batch: Batch, positions: Tensor) -> Tensor:
        """Return the class ids, (batch,)."""
        del positions
        return batch[LABELS]

    def loss(self, logits: Tensor, batch: Batch, weights: Tensor | None = None) -> Tensor:
        """Return the mean cross entropy; weights (classes,)."""
        if weights is None:
            return functional.cross_entropy(logits, batch[LABELS])
        return functional.cross_entropy(logits, batch[LABELS], weight=weights, reduction="sum") / len(logits)


@dataclass(frozen=True)
class MultiTensors(OutputTensors):
    """Logits (batch, classes) of independent classes for each sequence."""

    output_type: ClassVar[OutputType] = MULTI
    row_kind: ClassVar[RowKind] = EACH_CLASS

    def row_labels(self, batch: Batch, positions: Tensor) -> Tensor:
        """Return the targets, (batch, classes)."""
        del positions
        return batch[TARGETS]

    def loss(self, logits: Tensor, batch: Batch, weights: Tensor | None = None) -> Tensor:
        """Return the mean binary cross entropy over all pairs of a sequence and a class; weights (2, classes)."""
        targets = batch[TARGETS].float()  # (batch, classes)
        each = None if weights is None else torch.where(targets > 0.5, weights[1], weights[0])  # (batch, classes)
        return functional.binary_cross_entropy_with_logits(logits, targets, weight=each)


@dataclass(frozen=True)
class ScoreTensors(OutputTensors):
    """Logits (batch, 1): a number for each sequence."""

    output_type: ClassVar[OutputType] = SCORE
    row_kind: ClassVar[RowKind] = NUMBER

    def scored(self, batch: Batch) -> int:
        """Return the number of scores: a batch may have a row of tokens for each of two texts."""
        return len(batch[TARGETS])

    def row_labels(self, batch: Batch, positions: Tensor) -> Tensor:
        """Return the gold numbers, (batch,)."""
        del positions
        return batch[TARGETS]

    def loss(self, logits: Tensor, batch: Batch, weights: Tensor | None = None) -> Tensor:
        """Return the mean squared error."""
        del weights
        return functional.mse_loss(logits.squeeze(-1), batch[TARGETS].float())


@dataclass(frozen=True)
class SpanTensors(OutputTensors):
    """Logits (batch, length, 2); each sequence has a row for its start and one for its end, with a class per token."""

    output_type: ClassVar[OutputType] = SPAN
    row_kind: ClassVar[RowKind] = ONE_CLASS

    def rows(self, logits: Tensor, positions: Tensor) -> Tensor:
        """Return start and end of each sequence in turn, (2 batch, length)."""
        return logits.masked_fill(~positions.unsqueeze(-1), IMPOSSIBLE).transpose(1, 2).flatten(0, 1)

    def row_labels(self, batch: Batch, positions: Tensor) -> Tensor:
        """Return the token positions of start and end of each sequence in turn, (2 batch,)."""
        del positions
        return torch.stack([batch[STARTS], batch[ENDS]], dim=1).flatten()

    def row_counts(self, positions: Tensor) -> Tensor:
        """Return 2 for each sequence, (batch,)."""
        return 2 * super().row_counts(positions)

    def loss(self, logits: Tensor, batch: Batch, weights: Tensor | None = None) -> Tensor:
        """Return the mean of the cross entropies of start and end over the real tokens."""
        del weights
        starts, ends = _without_padding(logits, batch).unbind(-1)  # (batch, length) each
        return (functional.cross_entropy(starts, batch[STARTS]) + functional.cross_entropy(ends, batch[ENDS])) / 2

    def mean_distance(self, moved: Tensor, clean: Tensor, batch: Batch) -> Tensor:
        """Return the mean symmetric divergence of starts and ends over the real tokens."""
        sides = (_without_padding(logits, batch).transpose(1, 2) for logits in (moved, clean))  # (batch, 2, length)
        return symmetric_divergence(*sides).mean()


def _without_padding(logits: Tensor, batch: Batch) -> Tensor:
    """Give padding the lowest logit of the type: (batch, length, 2)."""
    real = batch[ATTENTION_MASK].bool().unsqueeze(-1)  # (batch, length, 1)
    return logits.masked_fill(~real, torch.finfo(logits.dtype).min)


_TENSORS: Mapping[str, OutputTensors] = {
    each.output_type.name: each
    for each in (TokenTensors(), SingleTensors(), MultiTensors(), ScoreTensors(), SpanTensors())
}


def tensors_of(output_type: OutputType) -> OutputTensors:
    """Return the operations of an output type."""
    return _TENSORS[output_type.name]
