"""The arithmetic of one optimiser step: every micro-batch of every process weighs what it holds."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from biosqueeze.training.batches import Batch
from biosqueeze.training.learner import Learner

Factors = Mapping[str, float]


@dataclass(frozen=True)
class Measured:
    """What a step saw, over all its micro-batches and processes."""

    terms: dict[str, float]  # "loss" first, then each term's mean over its units
    tokens: int  # real ones
    gradient: float = 0.0  # its norm before clipping


@dataclass
class Stepper:
    """Gradients of the mean loss over micro-batches and processes, and the update by them.

    With n_m units of a term in micro-batch m, and n in all of them, its mean over all is the sum of mean_m * n_m / n:
    so however a batch is cut up, loss and gradients are those of the whole.
    """

    accelerator: Accelerator
    plain: Learner  # as it was before it was wrapped
    learner: Any  # wrapped for several processes, or the same
    optimizer: Any
    clip: float
    company: Batch  # what a process reads that has no item of its own in a micro-batch

    def gradients(self, batches: Sequence[Batch]) -> Measured:
        """Go forward and backward; the gradients are clipped and stay in the parameters."""
        measured = self._pass(batches, backward=True)
        norm = self.accelerator.clip_grad_norm_(self.learner.parameters(), self.clip)
        return Measured(measured.terms, measured.tokens, float(norm))

    def update(self) -> None:
        """Take the step and forget the gradients."""
        self.optimizer.step()
        self.forget()

    def forget(self) -> None:
        """Drop the gradients."""
        self.optimizer.zero_grad()

    @torch.no_grad()
    def look(self, batches: Sequence[Batch]) -> Measured:
        """The terms alone."""
        return self._pass(batches, backward=False)

    def _pass(self, batches: Sequence[Batch], *, backward: bool) -> Measured:
        factors, tokens = self._weigh(batches)
        values: dict[str, Tensor] = {}
        for number, (batch, factor) in enumerate(zip(batches, factors, strict=True), 1):
            with self._quiet(number < len(batches)):
                for name, value in self._terms(batch or self.company, factor, backward=backward).items():
                    values[name] = values[name] + value if name in values else value
        return Measured(self._over_processes(values), tokens)

    def _quiet(self, more: bool) -> AbstractContextManager[Any]:
        """Processes exchange gradients after the last micro-batch only."""
        return self.accelerator.no_sync(self.learner) if more else nullcontext()

    def _terms(self, batch: Batch, factor: Factors | None, *, backward: bool) -> dict[str, Tensor]:
        device = self.accelerator.device
        terms = self.learner(**{name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()})
        if factor is not None:
            terms = {name: term * factor[name] for name, term in terms.items()}
        loss = torch.stack([self.plain.weights[name] * term for name, term in terms.items()]).sum()
        if backward:
            together = self.accelerator.num_processes
            # Wrappers take the mean of the processes' gradients, and the factors make a sum of them.
            self.accelerator.backward(loss if together == 1 else loss * together)
        return {"loss": loss.detach(), **{name: term.detach() for name, term in terms.items()}}

    def _weigh(self, batches: Sequence[Batch]) -> tuple[list[Factors | None], int]:
        """Each micro-batch's share of the units of each term, and the real tokens of the step.

        A single micro-batch in a single process is the whole: its terms are left as they are.
        """
        tokens = sum(int(batch["attention_mask"].sum()) for batch in batches if batch)
        if len(batches) == self.accelerator.num_processes == 1:
            return [None], tokens
        counts = [self.plain.counts(batch) if batch else {} for batch in batches]
        names = list(self.plain.weights)
        sums = [tokens, *(sum(count.get(name, 0) for count in counts) for name in names)]
        if self.accelerator.num_processes > 1:
            sums = self.accelerator.reduce(torch.tensor(sums, device=self.accelerator.device)).tolist()
        whole = dict(zip(names, sums[1:], strict=True))
        return [{name: count.get(name, 0) / max(1, whole[name]) for name in names} for count in counts], sums[0]

    def _over_processes(self, values: Mapping[str, Tensor]) -> dict[str, float]:
        """The sums over all processes, fetched from the device at once."""
        together = torch.stack([value.float() for value in values.values()])
        if self.accelerator.num_processes > 1:
            together = self.accelerator.reduce(together)
        return dict(zip(values, together.tolist(), strict=True))
