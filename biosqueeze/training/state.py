"""Saved training states: a folder `state-STEP` in the output's partial directory, whole or not there at all."""

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file

from biosqueeze.checkpoint import STATE_GLOB, UNFINISHED_STATE
from biosqueeze.errors import SqueezeError

Weights = dict[str, torch.Tensor]


@dataclass
class Progress:
    """How far a run is, beside what Accelerate saves (weights, optimiser, schedule, random states)."""

    step: int = 0
    tokens: int = 0
    best_score: float | None = None
    best_step: int | None = None
    best: dict[str, float] = field(default_factory=dict)
    stale: int = 0  # scorings on dev in a row without a better one
    stopped: bool = False  # patience has run out: a resumed run takes no further step
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
    if accelerator.is_main_process:
        if best is not None:
            save_file(best, partial / "best.safetensors")
        (partial / "progress.json").write_text(json.dumps(asdict(progress)), encoding="utf-8")
        older = list(directory.glob(STATE_GLOB))
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
        for state in older:
            if state != target:
                shutil.rmtree(state)
    accelerator.wait_for_everyone()


def load(accelerator: Accelerator, directory: Path, fingerprint: dict[str, Any]) -> tuple[Progress, Weights | None]:
    """Load the newest state into the prepared model, optimiser and schedule.

    Raises:
        SqueezeError: the state belongs to a run with other options.
    """
    state = max(directory.glob(STATE_GLOB))
    progress = Progress(**json.loads((state / "progress.json").read_text(encoding="utf-8")))
    changed = [key for key, value in fingerprint.items() if progress.fingerprint.get(key) != value]
    if changed:
        raise SqueezeError(
            f"{directory} was started with other values of {', '.join(changed)}; repeat the command as it was, "
            "or start over with --force"
        )
    accelerator.load_state(str(state))
    best = state / "best.safetensors"
    return progress, load_file(best) if best.is_file() else None


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
