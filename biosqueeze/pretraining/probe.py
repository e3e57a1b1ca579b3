"""--probe: fine-tune a copy of the model at chosen steps of its pretraining, each in a process of its own."""

import json
import re
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.finetuning.data import certain_task
from biosqueeze.finetuning.run_processes import RunProcesses
from biosqueeze.manifest import read_manifest
from biosqueeze.options import whole_numbers
from biosqueeze.progress import note, warn
from biosqueeze.system import processes
from biosqueeze.tasks.formulation import Formulation

_FOLDER = "probe"
_POLL_SECONDS = 0.2
_NAME = re.compile(r"\w[\w.-]*")


def parse_probes(texts: Sequence[str]) -> dict[str, str]:
    """Return the data of each probe by its name, from NAME=DIR.

    Raises:
        UsageError: a name is missing or repeated, or the data fit no task, or several.
        SqueezeError: there are no such data.
    """
    probes: dict[str, str] = {}
    for text in texts:
        name, _, data = text.partition("=")
        if not _NAME.fullmatch(name) or not data:
            raise UsageError(f"--probe {text!r}: write NAME=DIR, such as ncbi-disease=data/NCBI-disease")
        if name in probes:
            raise UsageError(f"--probe: {name} is given twice; give each probe a name of its own")
        certain_task(data, Formulation())
        probes[name] = data
    return probes


def probe_steps(probe_at: str | None) -> tuple[int, ...]:
    """Return the steps of --probe-at; without any there is one probe, at the last step."""
    return whole_numbers(probe_at) if probe_at else ()


def check_probe_steps(chosen: Sequence[int], total: int | None) -> None:
    """Refuse --probe-at after the last step, where it is known which that is.

    Raises:
        UsageError: a step does not come.
    """
    latest = max(chosen, default=0)
    if total and latest > total:
        raise UsageError(
            f"--probe-at {latest} is after the last of {total} steps; give a step up to that, or more steps"
        )


@dataclass(frozen=True)
class FineTuningProbe:
    """Fine-tunes copies with the defaults of `biosqueeze finetune`, or those of BIOSQUEEZE_FINETUNE_*.

    A process of its own leaves the training as it is: random states, memory and the group of processes.
    """

    data: Mapping[str, str]
    steps: tuple[int, ...]  # none: the last step
    save: Callable[[Path], None]  # writes a checkpoint with the current weights
    directory: Path  # for temporary files
    flags: tuple[str, ...] = ()  # further options of finetune

    def check(self, total: int) -> None:
        """Refuse steps after the last one of the whole run.

        Raises:
            UsageError: a step does not come.
        """
        check_probe_steps(self.steps, total)

    def is_due(self, step: int, total: int) -> bool:
        """Return whether the model is scored after a step."""
        return step in self.steps if self.steps else step == total

    def scores(self, step: int, interrupt: threading.Event) -> dict[str, float] | None:
        """Fine-tune one copy for each data set; return the dev scores. One that fails is left out with a warning.

        What is left is the output of each fine-tuning that failed, which the warning names: probe/NAME.log.

        Args:
            step: of the training.
            interrupt: ends the fine-tunings that are left; then there are no scores.
        """
        folder = self.directory / _FOLDER
        copy, tuned = folder / "model", folder / "tuned"
        self._remove(copy, tuned)
        copy.mkdir(parents=True)
        self.save(copy)
        scores: dict[str, float] = {}
        for name, data in self.data.items():
            try:
                scores[name] = self._score(name, data, copy, tuned / name, interrupt)
            except SqueezeError as error:
                if interrupt.is_set():
                    self._remove(copy, tuned)
                    return None
                warn(f"step {step}: no score of the probe {name}: {error}")
        if scores:
            note(f"step {step}: probe " + ", ".join(f"{name} {score:.4f}" for name, score in scores.items()))
        self._remove(copy, tuned)
        return scores

    def _remove(self, *directories: Path) -> None:
        """Remove these, and what is around them where nothing else is there."""
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)
        with suppress(OSError):
            (self.directory / _FOLDER).rmdir()

    def _score(self, name: str, data: str, copy: Path, out: Path, interrupt: threading.Event) -> float:
        log = self.directory / _FOLDER / f"{name}.log"
        arguments = ["finetune", str(copy), "--data", data, "--out", str(out), *self.flags]
        fine_tuning = RunProcesses(dropped=processes.LAUNCHER)
        with ThreadPoolExecutor(max_workers=1) as pool:  # this thread handles signals
            call = pool.submit(fine_tuning.call, f"probe {name}", arguments, {}, log)
            while not wait([call], timeout=_POLL_SECONDS).done:
                if interrupt.is_set() and not fine_tuning.interrupted.is_set():
                    fine_tuning.interrupt()
            call.result()
        written = read_manifest(out)
        metric = written.task.metric if written and written.task else None
        if written is None or metric is None:
            raise SqueezeError("the fine-tuning wrote no score")
        log.unlink(missing_ok=True)
        return float(written.metrics[metric])


def read_probes(log: Path) -> dict[str, dict[str, float]]:
    """Return the scores of the probes in metrics.jsonl by step, for the manifest."""
    lines = (json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if '"probe"' in line)
    return {str(line["step"]): line["probe"] for line in lines}
