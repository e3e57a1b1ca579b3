"""One optimiser step: every micro-batch of every process is weighted by the units that it holds."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor
from torch.distributed.tensor import DTensor

from biosqueeze.training.batches import Batch
from biosqueeze.training.learner import Learner

Factors = Mapping[str, float]


@dataclass(frozen=True)
class StepResult:
    """Loss terms and sizes of one step, over all its micro-batches and processes."""

    terms: dict[str, float]  # "loss" first, then the mean of each term over its units
    tokens: int  # without padding
    gradient_norm: float = 0.0  # before clipping


@dataclass
class Stepper:
    """Gradients of the mean loss over micro-batches and processes, and the update by them.

    With n_m units of a term in micro-batch m, and n in all of them, its mean over all is the sum of mean_m * n_m / n.
    So loss and gradients do not depend on how a batch is split.
    """

    accelerator: Accelerator
    unwrapped: Learner
    learner: Any  # wrapped for several processes, or the same
    optimizer: Any
    clip: float
    placeholder: Batch  # forward input of a process that has no item of its own in a micro-batch; its factor is 0

    def gradients(self, batches: Sequence[Batch]) -> StepResult:
        """Run forward and backward passes; the clipped gradients stay in the parameters."""
        result = self._pass(batches, backward=True)
        norm = self.accelerator.clip_grad_norm_(self.learner.parameters(), self.clip)
        return StepResult(result.terms, result.tokens, float(norm.full_tensor() if isinstance(norm, DTensor) else norm))

    def update(self) -> None:
        """Update the weights and clear the gradients."""
        self.optimizer.step()
        self.clear_gradients()

    def clear_gradients(self) -> None:
        """Clear the gradients."""
        self.optimizer.zero_grad()

    @torch.no_grad()
    def losses(self, batches: Sequence[Batch]) -> StepResult:
        """Compute the loss terms without gradients."""
        return self._pass(batches, backward=False)

    def _pass(self, batches: Sequence[Batch], *, backward: bool) -> StepResult:
        factors, tokens = self._factors(batches)
        sums: dict[str, Tensor] = {}
        for number, (batch, factor) in enumerate(zip(batches, factors, strict=True), 1):
            with self._synchronised(is_last=number == len(batches)):
                for name, value in self._terms(batch or self.placeholder, factor, backward=backward).items():
                    sums[name] = sums[name] + value if name in sums else value
        return StepResult(self._sum_over_processes(sums), tokens)

    def _synchronised(self, *, is_last: bool) -> AbstractContextManager[Any]:
        """Exchange gradients between processes after the last micro-batch only."""
        return nullcontext() if is_last else self.accelerator.no_sync(self.learner)

    def _terms(self, batch: Batch, factor: Factors | None, *, backward: bool) -> dict[str, Tensor]:
        device = self.accelerator.device
        terms = self.learner(**{name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()})
        if factor is not None:
            terms = {name: term * factor[name] for name, term in terms.items()}
        loss = self.unwrapped.weighted_sum(terms)
        if backward:
            processes = self.accelerator.num_processes
            # DDP averages the gradients of the processes, and with these factors they are to be added.
            self.accelerator.backward(loss if processes == 1 else loss * processes)
        return {"loss": loss.detach(), **{name: term.detach() for name, term in terms.items()}}

    def _factors(self, batches: Sequence[Batch]) -> tuple[list[Factors | None], int]:
        """Return each micro-batch's share of the units of each term, and the real tokens of the step.

        A single micro-batch in a single process has all units: its factor is None, and its terms stay unchanged.
        """
        tokens = sum(int(batch["attention_mask"].sum()) for batch in batches if batch)
        if len(batches) == self.accelerator.num_processes == 1:
            return [None], tokens
        counts = [self.unwrapped.counts(batch) if batch else {} for batch in batches]
        names = list(self.unwrapped.weights)
        sums = [tokens, *(sum(count.get(name, 0) for count in counts) for name in names)]
        if self.accelerator.num_processes > 1:
            sums = self.accelerator.reduce(torch.tensor(sums, device=self.accelerator.device)).tolist()
        totals = dict(zip(names, sums[1:], strict=True))
        return [{name: count.get(name, 0) / max(1, totals[name]) for name in names} for count in counts], sums[0]

    def _sum_over_processes(self, values: Mapping[str, Tensor]) -> dict[str, float]:
        """Add the values of all processes, and copy them from the device in one transfer."""
        stacked = torch.stack([value.float() for value in values.values()])
        if self.accelerator.num_processes > 1:
            stacked = self.accelerator.reduce(stacked)
        return dict(zip(values, stacked.tolist(), strict=True))
