"""The Accelerate object of a training, joined with the other processes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedDataParallelKwargs, InitProcessGroupKwargs, ProjectConfiguration

from biosqueeze.errors import SqueezeError
from biosqueeze.models.device import is_selected, own_device, warn_of_slow_bf16
from biosqueeze.progress import warn
from biosqueeze.system import processes
from biosqueeze.training.job import TrainingJob
from biosqueeze.training.precision import precision_of
from biosqueeze.training.trackers import FOLDER

_DEVICE = "ACCELERATE_TORCH_DEVICE"
# The other processes wait for so long while the main process evaluates on dev or writes.
BARRIER_TIMEOUT = timedelta(hours=6)


def build_accelerator(job: TrainingJob) -> Accelerator:
    """Return an accelerator that has joined all processes.

    Raises:
        SqueezeError: several processes were started in a way that they cannot be joined.
    """
    count = processes.count()
    AcceleratorState._reset_state(reset_partial_state=True)  # one process may train twice, at two precisions
    try:
        with processes.hidden_stray_rank(), _selected_device():
            accelerator = _accelerator(job)
    except ValueError as error:  # a variable of the launcher is missing
        if count == 1:
            raise
        raise _not_joined(count) from error
    if accelerator.num_processes != count:
        raise _not_joined(count)
    if count == 1 and os.environ.get("ACCELERATE_USE_CPU") == "True" and "MASTER_ADDR" in os.environ:
        warn(
            "`accelerate launch --cpu` starts a single process, whatever its --num_processes; for several on CPUs: "
            "accelerate launch --multi_gpu --num_processes 2 -m biosqueeze ..."
        )
    return accelerator


def _accelerator(job: TrainingJob) -> Accelerator:
    options = job.options
    if options.precision == "bf16":
        warn_of_slow_bf16("--precision auto")
    return Accelerator(
        mixed_precision="bf16" if precision_of(options) == "bf16" else "no",
        step_scheduler_with_optimizer=False,
        log_with=options.tracker,
        project_config=ProjectConfiguration(str(job.directory), logging_dir=str(job.directory / FOLDER)),
        # Without this, Accelerate does not join processes on CPUs, unless its launcher was started with --cpu.
        cpu=_needs_cpu(),
        # A head has no gradients where no loss depends on it.
        kwargs_handlers=[
            DistributedDataParallelKwargs(find_unused_parameters=True),
            InitProcessGroupKwargs(timeout=BARRIER_TIMEOUT),
        ],
    )


def _needs_cpu() -> bool:
    return own_device().type == "cpu" and (processes.count() > 1 or torch.accelerator.is_available())


@contextmanager
def _selected_device() -> Iterator[None]:
    """Have Accelerate take the device of --device."""
    former = os.environ.get(_DEVICE)
    if is_selected() and own_device().type != "cpu":
        os.environ[_DEVICE] = str(own_device())
    try:
        yield
    finally:
        os.environ.pop(_DEVICE, None)
        if former is not None:
            os.environ[_DEVICE] = former


def _not_joined(count: int) -> SqueezeError:
    return SqueezeError(
        f"{count} processes were started and cannot be joined; start them with `accelerate launch` or torchrun"
    )
