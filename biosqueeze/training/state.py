"""Saved training states: a folder `state-STEP` in the output's partial directory, whole or not there at all."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file

from biosqueeze.checkpoint import STATE_GLOB, UNFINISHED_STATE, write_json
from biosqueeze.errors import SqueezeError

Weights = dict[str, torch.Tensor]

# After a loss that exploded, or memory that did not suffice, a run may go on with other values of these.
_MAY_CHANGE = {"lr", "warmup", "clip", "batch_size", "accumulate", "gradient_checkpointing", "precision"}
_PROGRESS = "progress.json"


@dataclass
class Progress:
    """How far a run is, beside what Accelerate saves (weights, optimiser, schedule, random states)."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0  # of training, in all parts of an interrupted run
    best_score: float | None = None
    best_step: int | None = None
    best: dict[str, float] = field(default_factory=dict)
    stale: int = 0  # scorings on dev in a row without a better one
    stopped: bool = False  # patience has run out: a resumed run takes no further step
    failed: bool = False  # the run went wrong after this state, so it may go on with other options
    means: dict[str, float] = field(default_factory=dict)  # see failures.Watch
    highest: float = 0.0
    fingerprint: dict[str, Any] = field(default_factory=dict)


def save(accelerator: Accelerator, directory: Path, progress: Progress, best: Weights | None) -> None:
    """Save the state at progress.step, then drop older ones: at every moment one whole state exists."""
    target = directory / f"state-{progress.step:08d}"
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
        (partial / _PROGRESS).write_text(json.dumps(asdict(progress)), encoding="utf-8")
        older = list(directory.glob(STATE_GLOB))
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
        for state in older:
            if state != target:
                shutil.rmtree(state)
    accelerator.wait_for_everyone()


def load(accelerator: Accelerator, directory: Path, fingerprint: Mapping[str, Any]) -> tuple[Progress, Weights | None]:
    """Load the newest state into the prepared model, optimiser and schedule.

    Raises:
        SqueezeError: there is none, or it belongs to a run with other options.
    """
    state = _newest(directory)
    progress = _read(state)
    changed = {key for key, value in fingerprint.items() if progress.fingerprint.get(key) != value}
    refused = changed - _may_change(changed) if progress.failed else changed
    if refused:
        named = refused - {"steps_per_epoch"} or refused  # it follows from the others
        raise SqueezeError(
            f"{directory} was started with other values of {', '.join(sorted(named))}; repeat the command as it was, "
            "or start over with --force instead of --resume"
        )
    accelerator.load_state(str(state))
    progress.fingerprint, progress.failed = dict(fingerprint), False
    best = state / "best.safetensors"
    return progress, load_file(best) if best.is_file() else None


def _may_change(changed: set[str]) -> set[str]:
    """What a run that failed may have changed, and what follows from that.

    Where a batch is cut, an epoch's last one may be cut into fewer, and other text may be drawn; where the precision is
    another, so may be words that a model proposes.
    """
    cut = {"steps", "steps_per_epoch"} if changed & {"batch_size", "accumulate"} else set()
    drawn = {"data or corpus"} if changed & {"batch_size", "accumulate", "precision"} else set()
    return _MAY_CHANGE | cut | drawn


@dataclass(frozen=True)
class Batching:
    """Batch size and accumulation of the run that was interrupted."""

    size: int
    accumulate: int
    failed: bool  # it went wrong: perhaps the batch is too large


def batch_of(directory: Path) -> Batching:
    """How the newest state was trained."""
    progress = _read(_newest(directory))
    return Batching(progress.fingerprint["batch_size"], progress.fingerprint["accumulate"], progress.failed)


def mark_failed(directory: Path) -> int | None:
    """Note that the run went wrong after its last state; that state's step, or None where there is no state."""
    if not any(directory.glob(STATE_GLOB)):
        return None
    state = _newest(directory)
    progress = _read(state)
    progress.failed = True
    write_json(state / _PROGRESS, asdict(progress))
    return progress.step


def _newest(directory: Path) -> Path:
    states = list(directory.glob(STATE_GLOB))
    if not states:
        raise SqueezeError(
            f"{directory} holds the state of a warm start alone; repeat the command as it was, with --warm-start "
            "finetune, or start over with --force instead of --resume"
        )
    return max(states)


def _read(state: Path) -> Progress:
    return Progress(**json.loads((state / _PROGRESS).read_text(encoding="utf-8")))


def cut_metrics(path: Path, step: int) -> None:
    """Drop the lines of metrics.jsonl that came after the saved step: they will be written again."""
    if path.is_file():
        kept = [line for line in path.read_text(encoding="utf-8").splitlines() if _step_of(line) <= step]
        path.write_text("".join(line + "\n" for line in kept), encoding="utf-8")


def _step_of(line: str) -> float:
    try:
        return int(json.loads(line)["step"])
    except ValueError:
        return float("inf")  # a line cut short by the kill
