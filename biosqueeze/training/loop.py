"""The training loop: train a `Learner` (model and losses) on an `ItemSource` (training data)."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from biosqueeze.errors import is_out_of_memory
from biosqueeze.files.saved_states import UNFINISHED_STATE, complete_states
from biosqueeze.progress import detail, note, track, warn
from biosqueeze.system import processes
from biosqueeze.system.memory import keep_freed_memory, limit_to_available_memory, limited_memory
from biosqueeze.training import failures
from biosqueeze.training.accelerator import build_accelerator
from biosqueeze.training.autobatch import fit_batch_size
from biosqueeze.training.batches import Batch, explained_workers, group_batches, loader, single_item_batch
from biosqueeze.training.best_weights import BestWeights
from biosqueeze.training.compilation import compiled
from biosqueeze.training.encoder_layers import training_layers
from biosqueeze.training.job import Probe, TrainingJob, TrainingSummary, steps_of
from biosqueeze.training.metrics_log import MetricsLog
from biosqueeze.training.optimiser.averaged_weights import AveragedWeights
from biosqueeze.training.optimiser.optimisation import checkpoint_activations, optimizer_of
from biosqueeze.training.optimiser.schedules import (
    FixedSchedule,
    PlateauSchedule,
    evaluations_of_plateau,
    set_rates,
)
from biosqueeze.training.option_checks import check_supported, check_training_options
from biosqueeze.training.options import PLATEAU
from biosqueeze.training.precision import precision_of
from biosqueeze.training.resuming import state
from biosqueeze.training.resuming.fingerprint import fingerprint_of
from biosqueeze.training.resuming.interrupt import interrupt_handler
from biosqueeze.training.resuming.rng_state import RngState
from biosqueeze.training.sharding import ShardedLearner
from biosqueeze.training.step import Stepper, StepResult
from biosqueeze.training.trackers import tracking


@processes.replicated()
def train(job: TrainingJob) -> TrainingSummary:
    """Train job.learner in place; with `evaluate`, its model has the weights of the best dev score at the end.

    Where several processes were started, all of them train; only the main process evaluates, and only in the main
    process the model has the best weights at the end.

    Raises:
        TrainingError: the loss is NaN, infinite or explodes, or memory is exhausted.
        SqueezeError: the saved state does not fit, something is not installed, the processes cannot be joined, or one
            that prepares batches has failed.
        UsageError: an option needs what this training does not have.
        KeyboardInterrupt: Ctrl-C; the state was saved first.
    """
    check_training_options(job.options, evaluated=job.evaluate is not None)
    check_supported(job.options, job.learner.model)
    accelerator = build_accelerator(job)
    # Each process draws its own dropout masks; those of the first process follow from the seed alone.
    set_seed(job.options.seed, device_specific=True)
    options = job.options
    with ExitStack() as contexts:
        contexts.enter_context(limited_memory(accelerator.device.type))
        contexts.enter_context(training_layers(job.learner, options, accelerator.num_processes))
        for encoder in job.learner.encoders():
            if options.gradient_checkpointing:
                checkpoint_activations(encoder)
        if options.auto_batch:
            job = fit_batch_size(job, accelerator)
        if job.options.batch_size == options.batch_size:  # a smaller one was found because memory is scarce
            keep_freed_memory()
        modules = job.learner.modules_to_compile()
        with interrupt_handler() as interrupt, compiled(modules, enabled=options.compile), explained_workers():
            return TrainingLoop(job, accelerator, interrupt).run()


_MOST_STEPS = 1_000_000  # with --hours


class TrainingLoop:
    """The steps of one training, with its saved states, logs and evaluations."""

    def __init__(self, job: TrainingJob, accelerator: Accelerator, interrupt: threading.Event) -> None:
        self.job, self.options, self.accelerator, self.interrupt = job, job.options, accelerator, interrupt
        self.share = (accelerator.process_index, accelerator.num_processes)
        batches = job.schedule(*self.share)
        self.per_epoch, most = steps_of(self.options, batches.batches_per_epoch)
        if self.options.ends_by_time:
            most = _MOST_STEPS
        self.plateau = PlateauSchedule(most, self.options) if self.options.schedule == PLATEAU else None
        self.schedule = self.plateau or FixedSchedule(most, self.options)
        self.eval_every = self.options.eval_every or self.per_epoch
        if self.plateau:
            tokens = batches.mean_tokens * self.options.accumulate
            self.evaluations = evaluations_of_plateau(
                self.options, self.per_epoch, dev_sequences=job.dev_sequences, tokens=tokens
            )
            self.eval_every = self.evaluations.every
        self.rates = LambdaLR(self._prepare(), self.schedule.factor)
        self.average = AveragedWeights(job.learner.model) if self.plateau else None
        accelerator.register_for_checkpointing(self.rates, *([self.average] if self.average else []))
        placeholder = single_item_batch(batches) if accelerator.num_processes > 1 else {}
        self.stepper = Stepper(accelerator, job.learner, self.learner, self.optimizer, self.options.clip, placeholder)
        self.progress = state.Progress(fingerprint=self._fingerprint())
        self.probing = 0.0  # seconds that are no part of the training
        self.monitor = failures.LossMonitor({})
        self.last_batches: Sequence[Batch] = ()
        self.best = BestWeights(job, accelerator)
        self.log = MetricsLog(accelerator, job.directory)
        precision, device = precision_of(self.options), str(accelerator.device.type)
        self.summary = TrainingSummary(most, 0, 0.0, precision, device, chosen=self._chosen())

    @property
    def total(self) -> int:
        """The steps of the training: the most, where the end depends on the dev scores."""
        return self.schedule.total

    def _prepare(self) -> Optimizer:
        """Copy the learner to every process or shard it over them; return torch's optimiser."""
        self.sharded = ShardedLearner(self.job.learner, self.accelerator, self.options) if self.job.sharded else None
        if self.sharded:
            self.learner, self.optimizer = self.sharded.sharded, self.sharded.optimizer
            return self.sharded.optimizer
        optimizer = optimizer_of(self.job.learner, self.options)
        self.learner, self.optimizer = self.accelerator.prepare(self.job.learner, optimizer)
        return optimizer

    def _whole(self) -> AbstractContextManager[None]:
        """Have all current weights in job.learner of the main process, inside the block."""
        return self.sharded.gathered() if self.sharded else nullcontext()

    def _chosen(self) -> dict[str, int]:
        chosen = {"processes": self.share[1]} if self.share[1] > 1 else {}
        batch = {"batch_size": self.options.batch_size, "accumulate": self.options.accumulate}
        return chosen | (batch if self.options.auto_batch else {})

    def _fingerprint(self) -> dict[str, Any]:
        run = {"processes": self.share[1], "sharded": self.job.sharded or None, "maskings": self.job.maskings}
        steps = {"steps": self.total, "steps_per_epoch": self.per_epoch}
        identity = {**run, **self.job.identity, **steps}
        return fingerprint_of(self.options, identity=identity, uncompared=self.job.uncompared)

    def run(self) -> TrainingSummary:
        """Take all steps that are left; return the summary."""
        if self.job.probe:
            self.job.probe.check(self.total)
        if self.options.resume:
            self._resume()
        else:
            self.log.discard()
        started = time.monotonic() - self.progress.seconds
        self.learner.train()
        with ExitStack() as contexts:
            contexts.enter_context(self.log.opened())
            contexts.enter_context(tracking(self.accelerator, self.options, self.job.directory, self.progress.step))
            shown = track(self.job.title, self.total, self.progress.step, at_most=self._may_end_early())
            bar = contexts.enter_context(shown)
            if self.job.keeps_better_start and self.progress.step == 0:
                self._evaluate(self.best.begin)
            if self.job.probe and self.progress.probe_is_left:
                self._probe(self.job.probe)
                self._end_if_interrupted()
            for result in () if self.progress.stopped else self._steps():
                self._after_step(result, started)
                speed = self.progress.tokens / self.progress.seconds
                bar.set_total(self._expected_steps(), at_most=self._may_end_early())
                bar.advance(1, loss=result.terms["loss"], speed=f"{speed:,.0f} tokens/s")
                if self._has_ended():
                    break
        self._finish(started)
        return self.summary

    def _has_ended(self) -> bool:
        return self.progress.stopped or self.progress.step >= self.total

    def _expected_steps(self) -> int:
        """Return the steps of the training, at most; with --hours those that fit into the time."""
        if not self.options.hours or not self.plateau or self.plateau.falls_from is not None:
            return self.total
        steps_per_second = self.progress.step / self.progress.seconds
        return min(self.total, round(steps_per_second * self.options.hours * 3600))

    def _may_end_early(self) -> bool:
        """Return whether the training ends before its last step if dev scores stop rising."""
        if self.plateau:
            return self.plateau.falls_from is None
        return self.options.patience is not None

    def _resume(self) -> None:
        peak_rates = list(self.rates.base_lrs)
        self.progress, self.best.weights = state.load(self.accelerator, self.job.directory, self._fingerprint())
        if self.plateau:
            self.plateau.falls_from = self.progress.falls_from
        set_rates(self.rates, peak_rates)
        step = self.progress.step
        self.monitor = failures.LossMonitor(self.progress.means, self.progress.highest, step)
        self.log.cut_after(step)
        note(f"going on from step {step} of {self.total}")

    def _steps(self) -> Iterator[StepResult]:
        """Take the optimiser steps that are left; yield the result of each."""
        size = self.options.accumulate
        phases = self.job.phases(*self.share, steps=self.total, start=self.progress.step)
        stream = chain.from_iterable(loader(schedule, self.options.workers) for schedule in phases)
        for batches in group_batches(stream, size):
            self.rng_before_step = RngState(self.accelerator.device)
            result = self._step(batches)
            self.last_batches = batches
            yield result

    def _step(self, batches: Sequence[Batch]) -> StepResult:
        """Take one step, or raise an explained error before the weights are changed."""
        limit_to_available_memory(self.accelerator.device.type)
        try:
            result = self.stepper.gradients(batches)
            anomaly = self.monitor.anomaly(result)
            if anomaly is None:
                self.stepper.update()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise self._out_of_memory(batches) from error
        if anomaly is not None:
            raise self._failed(anomaly)
        self.monitor.update(result.terms)
        return result

    def _failed(self, anomaly: failures.Anomaly) -> failures.TrainingError:
        """Return the error for a useless loss or gradient; the last saved state is kept."""
        # A state is saved now only where there is none, and where the loss of the last good batch is still normal.
        is_first_state = not complete_states(self.job.directory)
        self.stepper.clear_gradients()
        last = self.last_batches
        if is_first_state and last and self.monitor.anomaly(self.stepper.losses(last)) is None:
            self._save_as_before_step()
        step = state.mark_failed(self.job.directory) if self.accelerator.is_main_process else None
        other = "a lower --clip" if precision_of(self.options) == "fp32" else "--precision fp32"
        advice = f"a lower --lr than {self.options.lr:g}, a longer --warmup, or {other}"
        kept = f"the state at step {step} is kept: go on from it with --resume and" if step else "try"
        cause = f"{anomaly.kind} at step {self.progress.step + 1} ({anomaly.details})"
        return failures.TrainingError(cause, f"{kept} {advice}")

    def _out_of_memory(self, batches: Sequence[Batch]) -> failures.TrainingError:
        """Return the error for exhausted memory in this process; the state of other processes is unknown."""
        self.stepper.clear_gradients()
        is_first_state = not complete_states(self.job.directory)
        if is_first_state and self.progress.step and self.accelerator.num_processes == 1:
            self._save_as_before_step()
        step = state.mark_failed(self.job.directory)
        return failures.TrainingError(
            f"out of memory at step {self.progress.step + 1} with {failures.describe_batches(batches)}",
            f"give {failures.memory_advice(self.job, step)}",
        )

    def _save_as_before_step(self) -> None:
        """Save the state after the last good step, random states included."""
        with self.rng_before_step.replay():
            self._save()

    def _after_step(self, result: StepResult, started: float) -> None:
        self.progress.step += 1
        self.progress.tokens += result.tokens
        self.progress.seconds = time.monotonic() - started - self.probing
        self.progress.last = result.terms
        rate = self.rates.get_last_lr()[0]
        self.rates.step()
        if self.average:
            self.average.update()
        step, seconds = self.progress.step, round(self.progress.seconds, 3)
        self.log.write(step, result.terms | {"lr": rate, "tokens": result.tokens, "seconds": seconds})
        if self.job.evaluate and (step % self.eval_every == 0 or step == self.total):
            self._evaluate(self.best.update)
            self._check_patience()
        if self._has_to_fall():
            self._fall()
        if self.job.probe and self.job.probe.is_due(step, self.total):
            self._probe(self.job.probe)
        self._end_if_interrupted()
        if step % self.options.save_every == 0 and step < self.total:
            self._save()

    def _end_if_interrupted(self) -> None:
        """Save the state and raise KeyboardInterrupt after Ctrl-C or a signal in any process."""
        if self._in_any_process(self.interrupt.is_set()):
            self._save()
            step = self.progress.step
            raise KeyboardInterrupt(f"the state at step {step} of {self.total} is saved; --resume goes on from there")

    def _evaluate(self, compare: Callable[[dict[str, float], state.Progress], None]) -> None:
        """Score the model on dev; `compare` keeps the best weights."""
        with self._whole(), self.average.applied() if self.average else nullcontext():
            scores = self.best.evaluate(self.learner)
            self.log.write(self.progress.step, {"dev": scores})
            self.progress.held_out = scores if self.job.metric is None else {}
            compare(scores, self.progress)

    def _check_patience(self) -> None:
        """End the training where dev scores have not risen for long enough, unless the rate falls already."""
        progress, patience = self.progress, self._patience()
        if patience is None or progress.stale < patience or progress.step >= self.total:
            return
        if self.plateau is None or self.plateau.falls_from is None:
            progress.stopped = True
            best = f"{progress.best_score:.4f} at step {progress.best_step}"
            note(f"stopped at step {progress.step}: the best score on dev is still {best}")

    def _patience(self) -> int | None:
        """Return how many evaluations in a row without a better score are enough; None for any number."""
        if self.plateau is None:
            return self.options.patience
        return self.evaluations.patience_at(self.progress.best_trained, self.job.goal)

    def _has_to_fall(self) -> bool:
        """Return whether a constant rate has to fall now for the training to end within --steps or --hours."""
        if self.plateau is None or self.plateau.falls_from is not None or self._has_ended():
            return False
        hours = self.progress.seconds / 3600
        is_late = self.options.hours is not None and hours >= self.plateau.share_before_fall * self.options.hours
        return self._in_any_process(is_late) or self.progress.step >= self.plateau.latest_fall

    def _fall(self) -> None:
        """Let the rate of a plateau fall from now on."""
        assert self.plateau
        self.plateau.falls_from = self.progress.falls_from = self.progress.step
        note(f"step {self.progress.step}: the learning rate falls to 0 until step {self.total}, the last one")

    def _probe(self, probe: Probe) -> None:
        began = time.monotonic()
        with self._whole():
            if self.accelerator.is_main_process:
                scores = probe.scores(self.progress.step, self.interrupt)
                self.progress.probe_is_left = scores is None
                if scores is not None:
                    self.log.write(self.progress.step, {"probe": scores})
        self.accelerator.wait_for_everyone()
        self.probing += time.monotonic() - began

    def _in_any_process(self, condition: bool) -> bool:
        """Return whether a condition holds in any process; the result is the same in all processes."""
        if self.accelerator.num_processes == 1:
            return condition
        return bool(self.accelerator.reduce(torch.tensor(int(condition), device=self.accelerator.device)))

    def _save(self) -> None:
        progress = replace(self.progress, means=self.monitor.means, highest=self.monitor.highest)
        state.save(self.accelerator, self.job.directory, progress, self.best.weights)
        detail(f"state saved at step {self.progress.step}")

    def _finish(self, started: float) -> None:
        if self.accelerator.is_main_process:  # left by a process that was killed while it saved
            shutil.rmtree(self.job.directory / UNFINISHED_STATE, ignore_errors=True)
        progress = self.progress
        self.summary.tokens, self.summary.seconds = progress.tokens, time.monotonic() - started - self.probing
        if progress.best_step == 0:
            self._average_with_start()
        with self._whole():  # the last weights
            model = self.job.learner.model
        self.summary.steps, self.summary.best_step = progress.step, progress.best_step
        self.summary.start_score, self.summary.falls_from = progress.start_score, progress.falls_from
        self.summary.best, self.summary.last, self.summary.held_out = progress.best, progress.last, progress.held_out
        if self.best.weights is not None:
            model.load_state_dict(self.best.weights)
        model.eval()
        self.job.learner.model = model.to("cpu")

    def _average_with_start(self) -> None:
        """Keep the mean of the first and the last weights, where it scores about as high on dev as the first."""
        before, start = replace(self.progress), self.best.weights
        with self._whole(), self.average.applied() if self.average else nullcontext():
            self.summary.is_mean_with_start = self.best.average_with_start(self.learner, self.progress)
        if self._in_any_process(self.interrupt.is_set()):
            self.progress, self.best.weights = before, start  # a resumed run scores the mean again
            self._end_if_interrupted()
        if not self.summary.is_mean_with_start:
            warn(
                f"no step scored as high on dev as the weights before the training, which are kept; a lower --lr than "
                f"{self.options.lr:g} or a longer training may help"
            )
