"""Saved training states: folders `state-STEP` in the output's partial directory, written completely or not at all."""

import json
import shutil
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import RNG_STATE_NAME
from accelerate.utils import load as load_checked
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from biosqueeze.errors import SqueezeError, is_out_of_memory
from biosqueeze.files import publish_directory, read_json, write_json
from biosqueeze.files.json_object import JsonObject
from biosqueeze.files.saved_states import PROGRESS_FILE, UNFINISHED_STATE, complete_states, remove_states, state_folder
from biosqueeze.training.options import TrainingOptions
from biosqueeze.training.resuming.fingerprint import differing, fingerprint_of

Weights = dict[str, torch.Tensor]

# Options in whose place a fingerprint has values of the job, see `fingerprint_of`.
_OF_THE_JOB = ("steps", "maskings")
# What torch, safetensors and pickle raise for a file that is not what they wrote.
_DAMAGE = (
    *(OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError, EOFError),
    *(UnpicklingError, SafetensorError),
)


@dataclass
class Progress:
    """The state of a run, beside what Accelerate saves (weights, optimiser, schedule, random states)."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0  # of training, in all parts of an interrupted run
    start_score: float | None = None  # on dev before the first step, if its weights may be kept
    best_score: float | None = None
    best_step: int | None = None  # 0: no step scores as high as the start
    best_trained: float | None = None  # the best score after the first step
    best: dict[str, float] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)  # loss terms of the step
    held_out: dict[str, float] = field(default_factory=dict)  # scores of the last evaluation, where none is the best
    stale: int = 0  # evaluations on dev in a row without a better score than `best_trained`
    falls_from: int | None = None  # the step from which the rate of `plateau` falls
    probe_is_left: bool = False  # the probe at this step was interrupted
    stopped: bool = False  # stopped early by dev scores: a resumed run takes no further step
    failed: bool = False  # the run failed after this state, so some options may differ on --resume
    means: dict[str, float] = field(default_factory=dict)  # see failures.LossMonitor
    highest: float = 0.0
    fingerprint: dict[str, Any] = field(default_factory=dict)  # see fingerprint.fingerprint_of


def save(accelerator: Accelerator, directory: Path, progress: Progress, best: Weights | None) -> None:
    """Save the state at progress.step, then remove older states: at any moment one complete state exists."""
    target = state_folder(directory, progress.step)
    partial = directory / UNFINISHED_STATE
    if accelerator.is_main_process:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    accelerator.wait_for_everyone()
    accelerator.save_state(str(partial))
    accelerator.wait_for_everyone()  # each process has written its random states
    if accelerator.is_main_process:
        if best is not None:
            save_file(best, partial / "best.safetensors")
        (partial / PROGRESS_FILE).write_text(json.dumps(asdict(progress)), encoding="utf-8")
        publish_directory(partial, target)
        remove_states(directory, keep=target)
    accelerator.wait_for_everyone()


def check_options(directory: Path, options: TrainingOptions, uncompared: Collection[str]) -> None:
    """Check the options that resume a training, before its data are read; `load` checks the rest.

    Args:
        directory: of the states; without any, nothing is checked.
        options: of the stage.
        uncompared: see `fingerprint_of`.

    Raises:
        SqueezeError: the newest state is damaged, or belongs to a run with other options.
    """
    if not (options.resume and complete_states(directory)):
        return
    found = ("batch_size", "accumulate") if options.auto_batch else ()
    left_out = {*uncompared, *_OF_THE_JOB, *found}
    _check(directory, _read(_newest(directory)), fingerprint_of(options, identity={}, uncompared=left_out))


def load(accelerator: Accelerator, directory: Path, fingerprint: Mapping[str, Any]) -> tuple[Progress, Weights | None]:
    """Load the newest state into the prepared model, optimiser and schedule.

    Raises:
        SqueezeError: there is none, it is damaged, or it belongs to a run with other options.
    """
    state = _newest(directory)
    progress = _read(state)
    _check(directory, progress, fingerprint)
    best = state / "best.safetensors"
    try:
        accelerator.load_state(str(state))
        _check_random_states(state / f"{RNG_STATE_NAME}_{accelerator.process_index}.pkl")
        weights = load_file(best) if best.is_file() else None
    except _DAMAGE as error:
        if is_out_of_memory(error):
            raise
        raise SqueezeError(f"{state} is damaged; {_remedy(state)}") from error
    progress.fingerprint, progress.failed = dict(fingerprint), False
    return progress, weights


def _check(directory: Path, progress: Progress, fingerprint: Mapping[str, Any]) -> None:
    names = differing(progress.fingerprint, fingerprint, failed=progress.failed)
    if names:
        raise SqueezeError(
            f"{directory} was started with other values of {', '.join(names)}; repeat the command as it was, "
            "or start over with --force instead of --resume"
        )


def _check_random_states(path: Path) -> None:
    """Raise an error unless the random states were loaded: Accelerate goes on without those that it cannot read."""
    if not torch.equal(load_checked(path)["torch_manual_seed"], torch.get_rng_state()):
        raise ValueError(f"{path} was not loaded")


@dataclass(frozen=True)
class SavedBatchSize:
    """Batch size and accumulation of a saved state."""

    batch_size: int
    accumulate: int
    failed: bool  # the run failed after the state was saved: perhaps the batch is too large


def saved_batch_size(directory: Path) -> SavedBatchSize:
    """Return the batch size of the newest state."""
    state = _newest(directory)
    progress = _read(state)
    saved = JsonObject(progress.fingerprint, str(state / PROGRESS_FILE), _remedy(state), "fingerprint.")
    return SavedBatchSize(saved.get("batch_size", int), saved.get("accumulate", int), progress.failed)


def saved_identity(directory: Path, name: str) -> Any:
    """Return a value of the identity in the newest state; None where an older version wrote it, or without a state."""
    return _read(_newest(directory)).fingerprint.get(name) if complete_states(directory) else None


def mark_failed(directory: Path) -> int | None:
    """Record in the newest state that the run failed after it; return its step, or None where there is no state."""
    if not complete_states(directory):
        return None
    state = _newest(directory)
    progress = _read(state)
    progress.failed = True
    write_json(state / PROGRESS_FILE, asdict(progress))
    return progress.step


def _newest(directory: Path) -> Path:
    states = complete_states(directory)
    if not states:
        raise SqueezeError(
            f"{directory} holds the state of a warm start alone; repeat the command as it was, with --warm-start "
            "finetune, or start over with --force instead of --resume"
        )
    return states[-1]


def _read(state: Path) -> Progress:
    """Read progress.json.

    Raises:
        SqueezeError: it is damaged.
    """
    path = state / PROGRESS_FILE
    saved = JsonObject(read_json(path), str(path), _remedy(state))
    return Progress(
        step=saved.get("step", int),
        tokens=saved.get("tokens", int),
        seconds=saved.get("seconds", float),
        start_score=saved.optional("start_score", float),
        best_score=saved.optional("best_score", float),
        best_step=saved.optional("best_step", int),
        best_trained=saved.optional("best_trained", float),
        best=saved.mapping("best", float),
        last=_numbers(saved, "last"),
        held_out=_numbers(saved, "held_out"),
        stale=saved.get("stale", int),
        falls_from=saved.optional("falls_from", int),
        probe_is_left=bool(saved.optional("probe_is_left", bool)),
        stopped=saved.get("stopped", bool),
        failed=saved.get("failed", bool),
        means=saved.mapping("means", float),
        highest=saved.get("highest", float),
        fingerprint=saved.get("fingerprint", dict),
    )


def _numbers(saved: JsonObject, key: str) -> dict[str, float]:
    """Return an object of numbers; none where an older version wrote the state."""
    return saved.mapping(key, float) if key in saved.values else {}


def _remedy(state: Path) -> str:
    return f"remove {state} and start over with --force"
