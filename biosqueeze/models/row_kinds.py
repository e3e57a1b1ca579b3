"""What a row of logits means: one class of many, independent classes, or a number; losses, means and distances."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class RowKind(ABC):
    """Operations on rows of logits; `classes` is 1 for numbers."""

    name: ClassVar[str]
    has_probabilities: ClassVar[bool] = True  # else the logits are numbers, to which no temperature applies
    has_one_class: ClassVar[bool] = False  # whether a row is a distribution over its classes

    @abstractmethod
    def label_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the sum over rows of the loss against their labels, the mean over independent classes. Scalar.

        Args:
            logits: (rows, classes).
            labels: of rows that all have one: (rows,) class ids or numbers, or (rows, classes) of 0 and 1.
        """

    @abstractmethod
    def mean_logits(self, logits: Tensor, shares: Tensor) -> Tensor:
        """Return logits whose distribution is the weighted mean of several: (models, rows, classes) -> (rows, classes).

        Args:
            logits: of several models.
            shares: (models, 1, 1), with the sum 1.
        """

    @abstractmethod
    def mean_distance(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the mean distance of two predictions, (..., classes) each: SMART's symmetric divergence. Scalar."""

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """Return the logarithms of the probabilities of all events: of each class, or of each class and its opposite.

        Args:
            logits: (rows, classes), at the temperature.

        Returns:
            (rows, classes), or (rows, classes, 2) for independent classes.

        Raises:
            ValueError: the logits are numbers.
        """
        raise ValueError(f"the logits of a {self.name} are not those of probabilities: {tuple(logits.shape)}")

    def decisions(self, classes: int) -> int:
        """Return the number of decisions in a row, over which its loss is averaged."""
        del classes
        return 1


@dataclass(frozen=True)
class OneClassRows(RowKind):
    """A row is a distribution over classes, or over the positions of a span's start or end."""

    name: ClassVar[str] = "class"
    has_one_class: ClassVar[bool] = True

    def label_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the sum of the cross entropies."""
        return functional.cross_entropy(logits, labels, reduction="sum")

    def mean_logits(self, logits: Tensor, shares: Tensor) -> Tensor:
        """Return the log of the weighted mean of the softmax distributions."""
        return (logits.log_softmax(dim=-1) + shares.log()).logsumexp(dim=0)

    def mean_distance(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the mean of both Kullback-Leibler divergences, added."""
        return symmetric_divergence(first, second).mean()

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """Return log softmax, (rows, classes)."""
        return functional.log_softmax(logits, dim=-1)


@dataclass(frozen=True)
class EachClassRows(RowKind):
    """Every class of a row is decided independently, with a sigmoid."""

    name: ClassVar[str] = "multi"

    def label_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the sum of the binary cross entropies over the number of classes."""
        targets = labels.to(logits.dtype)
        return functional.binary_cross_entropy_with_logits(logits, targets, reduction="sum") / logits.shape[-1]

    def mean_logits(self, logits: Tensor, shares: Tensor) -> Tensor:
        """Return the logits of the weighted mean of the sigmoids."""
        holds = (functional.logsigmoid(logits) + shares.log()).logsumexp(dim=0)
        fails = (functional.logsigmoid(-logits) + shares.log()).logsumexp(dim=0)
        return holds - fails

    def mean_distance(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the mean over rows and classes of both Kullback-Leibler divergences, added."""
        return ((first.sigmoid() - second.sigmoid()) * (first - second)).mean()

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """Return the log probability that a class holds, and that it does not: (rows, classes, 2)."""
        return torch.stack((functional.logsigmoid(logits), functional.logsigmoid(-logits)), dim=-1)

    def decisions(self, classes: int) -> int:
        """Return the number of classes."""
        return classes


@dataclass(frozen=True)
class NumberRows(RowKind):
    """A row is a number, (rows, 1)."""

    name: ClassVar[str] = "score"
    has_probabilities: ClassVar[bool] = False

    def label_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the sum of the squared differences."""
        return functional.mse_loss(logits.squeeze(-1), labels.to(logits.dtype), reduction="sum")

    def mean_logits(self, logits: Tensor, shares: Tensor) -> Tensor:
        """Return the weighted mean."""
        return (shares * logits).sum(dim=0)

    def mean_distance(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the mean squared difference."""
        return functional.mse_loss(first, second)


ONE_CLASS, EACH_CLASS, NUMBER = OneClassRows(), EachClassRows(), NumberRows()


def symmetric_divergence(first: Tensor, second: Tensor) -> Tensor:
    """Return D(first || second) + D(second || first) of two rows of logits: (..., classes) -> (...)."""
    log_first, log_second = first.log_softmax(-1), second.log_softmax(-1)
    return ((log_first.exp() - log_second.exp()) * (log_first - log_second)).sum(-1)
