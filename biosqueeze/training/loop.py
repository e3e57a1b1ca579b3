"""The one training loop. A stage brings a `Learner` (what to learn) and a `Source` (from what); the rest is here."""

import json
import math
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import set_seed
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from transformers import PreTrainedModel

from biosqueeze.checkpoint import UNFINISHED_STATE
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.progress import detail, note, track
from biosqueeze.training import state
from biosqueeze.training.batches import Schedule, Source, loader
from biosqueeze.training.groups import Group, layered_groups, parameter_groups
from biosqueeze.training.interrupt import politely_interrupted
from biosqueeze.training.memory import keep_freed_memory
from biosqueeze.training.options import FineTuning, Training

METRICS_FILE = "metrics.jsonl"


class Learner(nn.Module):
    """What is trained: a model whose forward pass gives named loss terms, each a scalar."""

    model: Any  # a PreTrainedModel, or a HeadedEncoder that is used like one
    weights: Mapping[str, float]

    def forward(self, **batch: Tensor) -> dict[str, Tensor]:
        """The loss terms for one padded batch, (batch, length) each, before weighting."""
        raise NotImplementedError

    def scored(self, batch: Mapping[str, Tensor]) -> int:
        """How many items the terms are means over, so that accumulated batches weigh what they hold; 1: all alike."""
        del batch
        return 1


@dataclass(frozen=True)
class Job:
    """What the loop is given; `judge` scores the model on dev by `judge_by`, higher is better."""

    what: str
    learner: Learner
    source: Source
    options: Training
    directory: Path
    judge: Callable[[PreTrainedModel], dict[str, float]] | None = None
    judge_by: str = "f1"


@dataclass
class Summary:
    """How a run ended."""

    steps: int
    tokens: int
    seconds: float
    precision: str
    device: str
    last: dict[str, float] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    best_step: int | None = None

    def as_metrics(self) -> dict[str, Any]:
        """For the manifest."""
        speed = self.tokens / self.seconds if self.seconds else 0.0
        metrics: dict[str, Any] = {
            "steps": self.steps,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 1),
        }
        metrics |= {"tokens_per_second": round(speed, 1), "compute": self.precision, "device": self.device}
        metrics |= {"last_losses": {name: round(value, 6) for name, value in self.last.items()}}
        return metrics | ({"split": "dev", "best_step": self.best_step, **self.best} if self.best else {})


def has_bf16() -> bool:
    """Whether the GPU, or else the CPU, has units for bf16 matrix products."""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def precision_of(options: Training) -> str:
    """fp32 or bf16: what --precision asks for, `auto` decided by the hardware."""
    if options.precision != "auto":
        return options.precision
    return "bf16" if has_bf16() else "fp32"


def train(job: Job) -> Summary:
    """Train job.learner in place; the best weights by `judge`, if there is one, are in it at the end.

    Raises:
        SqueezeError: the loss is no number any more, or the saved state does not fit.
        UsageError: an option needs what this training does not have.
        KeyboardInterrupt: Ctrl-C; the state was saved first.
    """
    _refuse_idle_options(job)
    keep_freed_memory()
    set_seed(job.options.seed)
    precision = precision_of(job.options)
    AcceleratorState._reset_state(reset_partial_state=True)  # one process may train twice, at two precisions
    accelerator = Accelerator(
        mixed_precision="bf16" if precision == "bf16" else "no",
        gradient_accumulation_steps=job.options.accumulate,
        step_scheduler_with_optimizer=False,
    )
    with politely_interrupted() as interrupt:
        return _Loop(job, accelerator, precision, interrupt).run()


def _refuse_idle_options(job: Job) -> None:
    """No option is ignored in silence."""
    unjudged = [name for name in ("eval_every", "patience") if getattr(job.options, name) is not None]
    if unjudged and job.judge is None:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in unjudged)
        raise UsageError(f"{flags} needs a dev split to score on, and this training has none; leave it out")
    if job.options.gradient_checkpointing and not job.learner.model.supports_gradient_checkpointing:
        raise UsageError(f"--gradient-checkpointing does not work with a {type(job.learner.model).__name__}")


class _Loop:
    def __init__(self, job: Job, accelerator: Accelerator, precision: str, interrupt: threading.Event) -> None:
        self.job, self.options, self.accelerator, self.interrupt = job, job.options, accelerator, interrupt
        plan = Schedule(job.source, self.options.batch_size, self.options.seed, 0)
        self.per_epoch = math.ceil(plan.batches_per_epoch / self.options.accumulate)
        self.total = self.options.steps or max(1, round(self.options.epochs * self.per_epoch))
        if self.options.gradient_checkpointing:
            _checkpoint_activations(job.learner.model)
        optimizer = AdamW(self._groups(), lr=self.options.lr, fused=True)
        self.learner, self.optimizer = accelerator.prepare(job.learner, optimizer)
        self.schedule = LambdaLR(optimizer, _warm_up_and_decay(self.total, self.options.warmup))
        accelerator.register_for_checkpointing(self.schedule)
        self.progress = state.Progress(fingerprint=self._fingerprint())
        self.best: state.Weights | None = None
        self.summary = Summary(self.total, 0, 0.0, precision, str(accelerator.device.type))

    def _groups(self) -> list[Group]:
        learner, options = self.job.learner, self.options
        if isinstance(options, FineTuning) and options.layer_decay != 1:
            return layered_groups(learner, learner.model, options.weight_decay, options.lr, options.layer_decay)
        return parameter_groups(learner, options.weight_decay)

    def _fingerprint(self) -> dict[str, Any]:
        """What must be the same for a resumed run to be the run that was interrupted."""
        names = ("batch_size", "accumulate", "lr", "warmup", "weight_decay", "clip", "seed", "max_length")
        fixed = {name: getattr(self.options, name) for name in names}
        return {**fixed, **self.options.changed(), "steps": self.total, "steps_per_epoch": self.per_epoch}

    def run(self) -> Summary:
        if self.options.resume:
            self.progress, self.best = state.load(self.accelerator, self.job.directory, self._fingerprint())
            state.cut_metrics(self.job.directory / METRICS_FILE, self.progress.step)
            note(f"going on from step {self.progress.step} of {self.total}")
        started = time.monotonic()
        self.learner.train()
        path = self.job.directory / METRICS_FILE
        with (
            path.open("a", encoding="utf-8") as log,
            track(self.job.what, self.total, self.progress.step) as bar,
        ):
            for terms, tokens in () if self.progress.stopped else self._steps():
                self._after_step(terms, tokens, log, started)
                speed = self.summary.tokens / (time.monotonic() - started)
                bar.advance(1, loss=terms["loss"], speed=f"{speed:,.0f} tokens/s")
                if self.progress.stopped:
                    break
        self._finish(started)
        return self.summary

    def _steps(self) -> Iterator[tuple[dict[str, float], int]]:
        """Do the optimiser steps that are left; yields the mean loss terms and the real tokens of each."""
        options = self.options
        plan = Schedule(
            self.job.source,
            options.batch_size,
            options.seed,
            total=self.total * options.accumulate,
            start=self.progress.step * options.accumulate,
        )
        batches = self.accelerator.prepare(loader(plan, options.workers))
        sums: dict[str, float] = {}
        tokens = scored = 0
        for batch in batches:
            weight = self.job.learner.scored(batch) if options.accumulate > 1 else 1
            scored += weight
            with self.accelerator.accumulate(self.learner):
                terms = self._backward(batch, weight)
                if self.accelerator.sync_gradients:
                    self._scale_gradients(options.accumulate / max(1, scored))
                    self.accelerator.clip_grad_norm_(self.learner.parameters(), options.clip)
                self.optimizer.step()
                self.optimizer.zero_grad()
            for name, value in terms.items():
                sums[name] = sums.get(name, 0.0) + value * weight
            tokens += int(batch["attention_mask"].sum())
            if self.accelerator.sync_gradients:
                yield {name: value / max(1, scored) for name, value in sums.items()}, tokens
                sums, tokens, scored = {}, 0, 0

    def _scale_gradients(self, factor: float) -> None:
        """From the sum over accumulated batches, each by its items, to the mean over all their items."""
        if factor == 1:
            return
        for parameter in self.learner.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(factor)

    def _backward(self, batch: dict[str, Tensor], weight: int) -> dict[str, float]:
        terms = self.learner(**batch)
        weights = self.job.learner.weights
        loss = torch.stack([weights[name] * term for name, term in terms.items()]).sum()
        values = {"loss": float(loss.detach()), **{name: float(term.detach()) for name, term in terms.items()}}
        self._refuse_nan(values)
        self.accelerator.backward(loss if weight == 1 else loss * weight)
        return values

    def _refuse_nan(self, values: Mapping[str, float]) -> None:
        broken = [name for name, value in values.items() if not math.isfinite(value) and name != "loss"]
        if broken:
            step, lr = self.progress.step + 1, self.options.lr
            raise SqueezeError(
                f"the loss is no number any more at step {step} ({', '.join(broken)}); "
                f"try a lower --lr than {lr:g}, a longer --warmup, or --precision fp32"
            )

    def _after_step(self, terms: dict[str, float], tokens: int, log: TextIO, started: float) -> None:
        self.progress.step += 1
        self.progress.tokens += tokens
        self.summary.tokens += tokens
        self.summary.last = terms
        rate = self.schedule.get_last_lr()[0]
        self.schedule.step()
        self._log(log, terms | {"lr": rate, "tokens": tokens, "seconds": round(time.monotonic() - started, 3)})
        step = self.progress.step
        if self.job.judge and (step % (self.options.eval_every or self.per_epoch) == 0 or step == self.total):
            self._judge(log)
        if self.interrupt.is_set():
            self._save()
            raise KeyboardInterrupt(f"the state at step {step} of {self.total} is saved; --resume goes on from there")
        if step % self.options.save_every == 0 and step < self.total:
            self._save()

    def _log(self, log: TextIO, entry: Mapping[str, Any]) -> None:
        if self.accelerator.is_main_process:
            log.write(json.dumps({"step": self.progress.step, **entry}) + "\n")
            log.flush()

    def _judge(self, log: TextIO) -> None:
        if self.job.judge is None:
            return
        model = self.accelerator.unwrap_model(self.learner).model
        self.learner.eval()
        scores = self.job.judge(model)
        self.learner.train()
        self._log(log, {"dev": scores})
        score = scores[self.job.judge_by]
        note(f"step {self.progress.step}: dev {self.job.judge_by} {score:.4f}")
        if self.progress.best_score is None or score > self.progress.best_score:
            self.progress.best_score, self.progress.best_step = score, self.progress.step
            self.best = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
            self.summary.best = self.progress.best = scores
            self.progress.stale = 0
        else:
            self._lose_patience()

    def _lose_patience(self) -> None:
        self.progress.stale += 1
        patience, step = self.options.patience, self.progress.step
        if patience is not None and self.progress.stale >= patience and step < self.total:
            self.progress.stopped = True
            best = f"{self.progress.best_score:.4f} at step {self.progress.best_step}"
            note(f"stopped at step {step} of {self.total}, as --patience {patience} asks: the best on dev is {best}")

    def _save(self) -> None:
        state.save(self.accelerator, self.job.directory, self.progress, self.best)
        detail(f"state saved at step {self.progress.step}")

    def _finish(self, started: float) -> None:
        shutil.rmtree(self.job.directory / UNFINISHED_STATE, ignore_errors=True)  # left by a kill while saving
        self.summary.seconds = time.monotonic() - started
        self.summary.best_step = self.progress.best_step
        self.summary.steps = self.progress.step
        model = self.accelerator.unwrap_model(self.learner).model
        if self.best is not None:
            model.load_state_dict(self.best)
            if not self.summary.best:  # the best was found before the interruption
                known = {self.job.judge_by: self.progress.best_score or 0.0}
                self.summary.best = self.progress.best or known
        model.eval()
        model.to("cpu")


def _checkpoint_activations(model: Any) -> None:
    """Let each layer be computed anew in the backward pass; dropout drops the same units again."""
    # transformers 5.2x renamed it, and warns of the older name.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def _warm_up_and_decay(total: int, warmup: float) -> Callable[[int], float]:
    """The learning rate's factor at a step: 0 to 1 over the warm-up, then to 0 at the end, in straight lines."""
    rising = max(1, round(total * warmup))

    def factor(step: int) -> float:
        if step < rising:
            return (step + 1) / rising
        return max(0.0, (total - step) / max(1, total - rising))

    return factor
