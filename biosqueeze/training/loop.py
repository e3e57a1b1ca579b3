"""The training loop: a `Learner` (model and losses) is trained on an `ItemSource` (training data)."""

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any, TextIO

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import (
    DistributedDataParallelKwargs,
    InitProcessGroupKwargs,
    ProjectConfiguration,
    broadcast_object_list,
    set_seed,
)
from torch.optim.lr_scheduler import LambdaLR

from biosqueeze import processes
from biosqueeze.checkpoint import STATE_GLOB, UNFINISHED_STATE
from biosqueeze.errors import SqueezeError, UsageError, is_out_of_memory
from biosqueeze.models.attention import quick_to_train
from biosqueeze.progress import detail, note, track, warn
from biosqueeze.training import failures, state
from biosqueeze.training.autobatch import fitted
from biosqueeze.training.batches import Batch, group_batches, loader, single_item_batch
from biosqueeze.training.compilation import check_compiler, compiled
from biosqueeze.training.interrupt import interrupt_handler
from biosqueeze.training.job import TrainingJob, TrainingSummary, steps_of
from biosqueeze.training.learner import Learner
from biosqueeze.training.memory import keep_freed_memory
from biosqueeze.training.optimisation import checkpoint_activations, optimizer_of, set_rates, warm_up_and_decay
from biosqueeze.training.options import TrainingOptions
from biosqueeze.training.precision import precision_of
from biosqueeze.training.rng_state import RngState
from biosqueeze.training.step import Measured, Stepper
from biosqueeze.training.trackers import FOLDER, check_tracker, tracking

__all__ = ["METRICS_FILE", "Learner", "TrainingJob", "TrainingSummary", "precision_of", "train"]

METRICS_FILE = "metrics.jsonl"
# The other processes wait while the main one scores on dev or writes.
PATIENCE = timedelta(hours=6)


@processes.replicated()
def train(job: TrainingJob) -> TrainingSummary:
    """Train job.learner in place; the best weights by `judge`, if there is one, are in its model at the end.

    Started as several processes, all of them train; the main one alone judges, and has the whole model at the end.

    Raises:
        SqueezeError: the loss is no number any more or explodes, the memory does not suffice, the saved state does not
            fit, or the processes cannot be joined.
        UsageError: an option needs what this training does not have.
        KeyboardInterrupt: Ctrl-C; the state was saved first.
    """
    check_options(job.options, job.learner.model, judged=job.evaluate is not None)
    keep_freed_memory()
    accelerator = _accelerator(job)
    # Each process draws its own dropout; in the first it is that of the seed.
    set_seed(job.options.seed, device_specific=True)
    asked = job.options
    if asked.gradient_checkpointing:
        checkpoint_activations(job.learner.model)
    with quick_to_train(job.learner.model.base_model):
        if asked.auto_batch:
            job = fitted(job, accelerator)
        with interrupt_handler() as interrupt, compiled(job.learner.compiled(), asked=asked.compile):
            return _Loop(job, accelerator, precision_of(asked), interrupt).run()


def check_options(options: TrainingOptions, model: Any, *, judged: bool) -> None:
    """Say what cannot be done before anything is: no option is ignored in silence.

    Raises:
        UsageError: an option needs what this training does not have.
        SqueezeError: one needs what is not installed.
    """
    unjudged = [name for name in ("eval_every", "patience") if getattr(options, name) is not None]
    if unjudged and not judged:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in unjudged)
        raise UsageError(f"{flags} needs scores on a dev split, and this training has none; leave it out")
    if options.gradient_checkpointing and not model.supports_gradient_checkpointing:
        raise UsageError(f"--gradient-checkpointing does not work with a {type(model).__name__}")
    if options.compile:
        check_compiler()
    check_tracker(options)


def _accelerator(job: TrainingJob) -> Accelerator:
    """An accelerator that has joined all processes."""
    options = job.options
    together = processes.count()
    AcceleratorState._reset_state(reset_partial_state=True)  # one process may train twice, at two precisions
    accelerator = Accelerator(
        mixed_precision="bf16" if precision_of(options) == "bf16" else "no",
        step_scheduler_with_optimizer=False,
        log_with=options.tracker,
        project_config=ProjectConfiguration(str(job.directory), logging_dir=str(job.directory / FOLDER)),
        # Without this, Accelerate leaves processes on CPUs to themselves, except where its launcher was told --cpu.
        cpu=together > 1 and not torch.accelerator.is_available(),
        # A head may go without gradients where no loss reads it.
        kwargs_handlers=[
            DistributedDataParallelKwargs(find_unused_parameters=True),
            InitProcessGroupKwargs(timeout=PATIENCE),
        ],
    )
    if accelerator.num_processes != together:
        raise SqueezeError(
            f"{together} processes were started and cannot be joined; start them with `accelerate launch` or torchrun"
        )
    if together == 1 and os.environ.get("ACCELERATE_USE_CPU") == "True" and "MASTER_ADDR" in os.environ:
        warn(
            "`accelerate launch --cpu` starts a single process, whatever its --num_processes; for several on CPUs: "
            "accelerate launch --multi_gpu --num_processes 2 -m biosqueeze ..."
        )
    return accelerator


class _Loop:
    def __init__(self, job: TrainingJob, accelerator: Accelerator, precision: str, interrupt: threading.Event) -> None:
        self.job, self.options, self.accelerator, self.interrupt = job, job.options, accelerator, interrupt
        self.share = (accelerator.process_index, accelerator.num_processes)
        plan = job.schedule(*self.share)
        self.per_epoch, self.total = steps_of(self.options, plan.batches_per_epoch)
        optimizer = optimizer_of(job.learner, self.options)
        self.learner, prepared = accelerator.prepare(job.learner, optimizer)
        self.schedule = LambdaLR(optimizer, warm_up_and_decay(self.total, self.options.warmup))
        accelerator.register_for_checkpointing(self.schedule)
        company = single_item_batch(plan) if accelerator.num_processes > 1 else {}
        self.stepper = Stepper(accelerator, job.learner, self.learner, prepared, self.options.clip, company)
        self.progress = state.Progress(fingerprint=self._fingerprint())
        self.watch = failures.Watch({})
        self.last: Sequence[Batch] = ()
        self.best: state.Weights | None = None
        self.summary = TrainingSummary(
            self.total, 0, 0.0, precision, str(accelerator.device.type), chosen=self._chosen()
        )

    def _chosen(self) -> dict[str, int]:
        found = {"processes": self.share[1]} if self.share[1] > 1 else {}
        size = {"batch_size": self.options.batch_size, "accumulate": self.options.accumulate}
        return found | (size if self.options.auto_batch else {})

    def _fingerprint(self) -> dict[str, Any]:
        """What must be the same for a resumed run to be the run that was interrupted."""
        return {
            **self.options.fixed_on_resume(),
            "processes": self.share[1],
            "maskings": self.job.maskings,
            **self.job.identity,
            "steps": self.total,
            "steps_per_epoch": self.per_epoch,
        }

    def run(self) -> TrainingSummary:
        if self.options.resume:
            self._resume()
        elif self.accelerator.is_main_process:
            self._forget()
        started = time.monotonic() - self.progress.seconds
        self.learner.train()
        with ExitStack() as open_ones:
            log = open_ones.enter_context(self._open_log())
            open_ones.enter_context(tracking(self.accelerator, self.options, self.job.directory, self.progress.step))
            bar = open_ones.enter_context(track(self.job.what, self.total, self.progress.step))
            for terms, tokens in () if self.progress.stopped else self._steps():
                self._after_step(terms, tokens, log, started)
                speed = self.progress.tokens / self.progress.seconds
                bar.advance(1, loss=terms["loss"], speed=f"{speed:,.0f} tokens/s")
                if self.progress.stopped:
                    break
        self._finish(started)
        return self.summary

    def _open_log(self) -> Any:
        if not self.accelerator.is_main_process:
            return nullcontext()
        return (self.job.directory / METRICS_FILE).open("a", encoding="utf-8")

    def _forget(self) -> None:
        """Drop what a part of this run has logged that was killed before it saved a state."""
        (self.job.directory / METRICS_FILE).unlink(missing_ok=True)
        shutil.rmtree(self.job.directory / FOLDER, ignore_errors=True)

    def _resume(self) -> None:
        rates = list(self.schedule.base_lrs)
        self.progress, self.best = state.load(self.accelerator, self.job.directory, self._fingerprint())
        set_rates(self.schedule, rates)
        step = self.progress.step
        self.watch = failures.Watch(self.progress.means, self.progress.highest, step)
        if self.accelerator.is_main_process:
            state.cut_metrics(self.job.directory / METRICS_FILE, step)
        note(f"going on from step {step} of {self.total}")

    def _steps(self) -> Iterator[tuple[dict[str, float], int]]:
        """Do the optimiser steps that are left; yields the mean loss terms and the real tokens of each."""
        size = self.options.accumulate
        plan = self.job.schedule(*self.share, total=self.total * size, start=self.progress.step * size)
        for batches in group_batches(loader(plan, self.options.workers), size):
            self.chance = RngState(self.accelerator.device)
            measured = self._step(batches)
            self.last = batches
            yield measured.terms, measured.tokens

    def _step(self, batches: Sequence[Batch]) -> Measured:
        """One step, or an explained end before anything is changed by it."""
        try:
            measured = self.stepper.gradients(batches)
            trouble = self.watch.trouble(measured)
            if trouble is None:
                self.stepper.update()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise self._out_of_memory(batches) from error
        if trouble is not None:
            raise self._gone_wrong(trouble)
        self.watch.note(measured.terms)
        return measured

    def _gone_wrong(self, trouble: failures.Trouble) -> failures.TrainingError:
        """The loss or the gradient is of no use any more; the last state that was saved is kept."""
        # A state is saved now only where there is none, and where the weights do as well as before the last update.
        first = not any(self.job.directory.glob(STATE_GLOB))
        self.stepper.forget()
        if first and self.last and self.watch.trouble(self.stepper.look(self.last)) is None:
            self._save_as_before()
        step = state.mark_failed(self.job.directory) if self.accelerator.is_main_process else None
        advice = f"a lower --lr than {self.options.lr:g}, a longer --warmup, or --precision fp32"
        kept = f"the state at step {step} is kept: go on from it with --resume and" if step else "try"
        cause = f"{trouble.what} at step {self.progress.step + 1} ({trouble.where})"
        return failures.TrainingError(cause, f"{kept} {advice}")

    def _out_of_memory(self, batches: Sequence[Batch]) -> failures.TrainingError:
        """The memory of this process does not suffice; what others do by now cannot be known."""
        self.stepper.forget()
        first = not any(self.job.directory.glob(STATE_GLOB))
        if first and self.progress.step and self.accelerator.num_processes == 1:
            self._save_as_before()
        step = state.mark_failed(self.job.directory)
        kept = f" (with --resume it goes on from step {step})" if step else ""
        return failures.TrainingError(
            f"out of memory at step {self.progress.step + 1} with {failures.describe(batches)}",
            f"give {failures.ways_out_of_memory(self.options)}{kept}",
        )

    def _save_as_before(self) -> None:
        """Save the state after the last good step, random states included."""
        with self.chance.replay():
            self._save()

    def _after_step(self, terms: dict[str, float], tokens: int, log: TextIO | None, started: float) -> None:
        self.progress.step += 1
        self.progress.tokens += tokens
        self.progress.seconds = time.monotonic() - started
        self.summary.last = terms
        rate = self.schedule.get_last_lr()[0]
        self.schedule.step()
        self._log(log, terms | {"lr": rate, "tokens": tokens, "seconds": round(self.progress.seconds, 3)})
        step = self.progress.step
        if self.job.evaluate and (step % (self.options.eval_every or self.per_epoch) == 0 or step == self.total):
            self._judge(log)
        if self._anyone_interrupted():
            self._save()
            raise KeyboardInterrupt(f"the state at step {step} of {self.total} is saved; --resume goes on from there")
        if step % self.options.save_every == 0 and step < self.total:
            self._save()

    def _anyone_interrupted(self) -> bool:
        """Whether any process was asked to end; all get the same answer."""
        if self.accelerator.num_processes == 1:
            return self.interrupt.is_set()
        asked = torch.tensor(int(self.interrupt.is_set()), device=self.accelerator.device)
        return bool(self.accelerator.reduce(asked))

    def _log(self, log: TextIO | None, entry: Mapping[str, Any]) -> None:
        if log is not None:
            log.write(json.dumps({"step": self.progress.step, **entry}) + "\n")
            log.flush()
        scores = entry.get("dev")
        values = {f"dev/{name}": value for name, value in scores.items()} if scores else dict(entry)
        self.accelerator.log(values, step=self.progress.step)

    def _judge(self, log: TextIO | None) -> None:
        if self.job.evaluate is None:
            return
        model = self.job.learner.model
        self.learner.eval()
        scores = self._told(self.job.evaluate(model) if self.accelerator.is_main_process else {})
        self.learner.train()
        self._log(log, {"dev": scores})
        score = scores[self.job.metric]
        note(f"step {self.progress.step}: dev {self.job.metric} {score:.4f}")
        if self.progress.best_score is None or score > self.progress.best_score:
            self.progress.best_score, self.progress.best_step = score, self.progress.step
            if self.accelerator.is_main_process:
                self.best = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
            self.progress.best = scores
            self.progress.stale = 0
        else:
            self._lose_patience()

    def _told(self, scores: dict[str, float]) -> dict[str, float]:
        """The main process's scores, in every process."""
        told = [scores]
        if self.accelerator.num_processes > 1:
            broadcast_object_list(told)
        return told[0]

    def _lose_patience(self) -> None:
        self.progress.stale += 1
        patience, step = self.options.patience, self.progress.step
        if patience is not None and self.progress.stale >= patience and step < self.total:
            self.progress.stopped = True
            best = f"{self.progress.best_score:.4f} at step {self.progress.best_step}"
            note(f"stopped at step {step} of {self.total}, as --patience {patience} asks: the best on dev is {best}")

    def _save(self) -> None:
        progress = replace(self.progress, means=self.watch.means, highest=self.watch.highest)
        state.save(self.accelerator, self.job.directory, progress, self.best)
        detail(f"state saved at step {self.progress.step}")

    def _finish(self, started: float) -> None:
        if self.accelerator.is_main_process:  # left by a kill while saving
            shutil.rmtree(self.job.directory / UNFINISHED_STATE, ignore_errors=True)
        self.summary.tokens, self.summary.seconds = self.progress.tokens, time.monotonic() - started
        self.summary.best_step = self.progress.best_step
        self.summary.steps = self.progress.step
        if self.progress.best_score is not None:  # the scores may be those of before an interruption
            self.summary.best = self.progress.best or {self.job.metric: self.progress.best_score}
        model = self.job.learner.model
        if self.best is not None:
            model.load_state_dict(self.best)
        model.eval()
        self.job.learner.model = model.to("cpu")
