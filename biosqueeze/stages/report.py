"""Write one HTML page about a checkpoint: its facts, history, training curves and results."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.errors import SqueezeError, UsageError, require
from biosqueeze.files import write_text
from biosqueeze.options import (
    CheckpointArgument,
    OnDisk,
    Outcome,
    Plan,
    Purpose,
    Short,
    StageOptions,
)
from biosqueeze.progress import note
from biosqueeze.reporting import FILE_NAME, GENERATOR
from biosqueeze.system.os_errors import explained_writes

PURPOSE = Purpose.MEASURE
EXAMPLES = (("Write one page and open it in a browser", "biosqueeze report ncbi-student -o student.html"),)
_HEAD_BYTES = 1000


@dataclass(frozen=True, kw_only=True)
class Options(StageOptions):
    """Draw an HTML page: history, training curves, scores, speed.

    The page is a single file that refers to nothing outside of it; its path is printed. An earlier report is replaced;
    any other file only with --force. Parents that still exist where the history names them are drawn too. Needs the
    extra `report`.
    """

    READS_RESULTS: ClassVar[bool] = True

    checkpoint: CheckpointArgument
    html: Annotated[
        str | None, "File to write. Default: report.html in the checkpoint.", Short("o"), OnDisk(is_output=True)
    ] = None
    force: Annotated[bool, "Replace the file even if it is not a report of biosqueeze."] = False


def plan(options: Options) -> Plan:
    """Describe the run: the file that would be written."""
    checkpoint, target = _resolve(options)
    return Plan(out=None, steps=(f"draw a page about {checkpoint.name} and write it to {target}",))


def run(options: Options) -> Outcome:
    """Read the files of the checkpoint and its parents, draw the page, and write it.

    Raises:
        SqueezeError: matplotlib is not installed, or the file may not be written.
        UsageError: the file's name does not end in .html.
    """
    checkpoint, target = _resolve(options)
    from biosqueeze.reporting.page import render
    from biosqueeze.reporting.report_data import gather

    page = render(gather(checkpoint))
    elsewhere = "give another place with --html"
    with explained_writes(str(target), remedy=elsewhere, when_full=f"free some space, or {elsewhere}"):
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, page)
    note(f"{len(page) / 1e6:.2f} MB in one file; open it in a browser")
    return Outcome(target, {"report": str(target), "checkpoint": str(checkpoint.path)})


def _resolve(options: Options) -> tuple[Checkpoint, Path]:
    """Return the checkpoint, and the file to write."""
    for library in ("matplotlib", "jinja2"):
        require(library, "report")
    checkpoint = open_checkpoint(options.checkpoint, slim=True)
    if options.html is None and not checkpoint.is_writable:
        raise SqueezeError(f"{checkpoint.name} is read-only; name the file to write with --html FILE")
    target = Path(options.html).expanduser() if options.html is not None else checkpoint.path / FILE_NAME
    if target.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--html {options.html} is not the name of an HTML file; let it end in .html")
    if target.is_dir():
        raise SqueezeError(f"{target} is a directory; name a file with --html")
    if target.exists() and not options.force and not _is_report(target):
        raise SqueezeError(
            f"{target} exists and is not an earlier report; give --force to replace it, or another --html"
        )
    return checkpoint, target


def _is_report(path: Path) -> bool:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return GENERATOR.encode() in file.read(_HEAD_BYTES)
    return False
