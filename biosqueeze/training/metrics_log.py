"""metrics.jsonl in the output directory: one line for each step and for each evaluation on dev."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from accelerate import Accelerator

from biosqueeze.errors import first_line
from biosqueeze.files import write_text
from biosqueeze.progress import warn
from biosqueeze.training.trackers import FOLDER

METRICS_FILE = "metrics.jsonl"
_NOT_IN_NAMES = re.compile(r"[^\w/.\- :]")  # MLflow refuses other characters, which labels may have


class MetricsLog:
    """Writes entries to metrics.jsonl (the main process) and to the tracker."""

    def __init__(self, accelerator: Accelerator, directory: Path) -> None:
        self.accelerator, self.directory = accelerator, directory
        self._file: TextIO | None = None
        self._tracker_failed = False

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open the file for appending in the main process."""
        if not self.accelerator.is_main_process:
            yield
            return
        with (self.directory / METRICS_FILE).open("a", encoding="utf-8") as self._file:
            yield

    def write(self, step: int, entry: Mapping[str, Any]) -> None:
        """Write the values of a step, or the scores under the key `dev` or `probe`."""
        if self._file is not None:
            self._file.write(json.dumps({"step": step, **entry}) + "\n")
            self._file.flush()
        kind = next((name for name in ("dev", "probe") if name in entry), None)
        values = {f"{kind}/{name}": value for name, value in entry[kind].items()} if kind else dict(entry)
        self._track({_NOT_IN_NAMES.sub("_", name): value for name, value in values.items()}, step)

    def _track(self, values: Mapping[str, Any], step: int) -> None:
        """Log values to the tracker, until it fails: the training goes on without it."""
        if self._tracker_failed:
            return
        try:
            self.accelerator.log(dict(values), step=step)
        except Exception as error:  # each library has its own
            self._tracker_failed = True
            cause = first_line(error)
            warn(f"the tracker failed at step {step} ({cause}), and is no longer used; {METRICS_FILE} has everything")

    def discard(self) -> None:
        """Remove the logs of an earlier part of this run that was killed before it saved a state."""
        if self.accelerator.is_main_process:
            (self.directory / METRICS_FILE).unlink(missing_ok=True)
            shutil.rmtree(self.directory / FOLDER, ignore_errors=True)

    def cut_after(self, step: int) -> None:
        """Remove the lines of metrics.jsonl after a saved step: they will be written again."""
        path = self.directory / METRICS_FILE
        if self.accelerator.is_main_process and path.is_file():
            lines = [line for line in path.read_text(encoding="utf-8").splitlines() if _step_of(line) <= step]
            write_text(path, "".join(line + "\n" for line in lines))


def _step_of(line: str) -> float:
    try:
        return int(json.loads(line)["step"])
    except ValueError:
        return float("inf")  # a line that a kill cut short
