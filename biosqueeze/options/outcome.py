"""The plan and the result of a stage."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from biosqueeze.text_table import TextTable

Block = str | TextTable
"""A piece of what a query prints: lines of text, or a table."""


@dataclass(frozen=True)
class Plan:
    """What a stage would do, for --dry-run."""

    out: Path | None
    steps: tuple[str, ...]
    parameters_before: int | None = None
    parameters_after: int | None = None


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What is said at the end of a stage, on standard error; the time it took is added."""

    result: str = ""
    """What came out, such as the step that was kept and its score."""
    machine: str = ""
    """Precision and device."""
    size: str = ""
    next_words: tuple[str, ...] = ()
    """The command to type next, without the name of the program."""


@dataclass(frozen=True)
class Outcome:
    """The result of a stage: the path for standard output, and the facts for --json."""

    path: Path
    facts: dict[str, Any] = field(default_factory=dict)
    lines: Generator[str, None, None] | None = None
    """Of a stage whose result is data: whole lines for standard output in place of the path, as they are computed."""
    blocks: tuple[Block, ...] | None = None
    """Of a query, which writes nothing: what is printed on standard output in place of the path."""
    rows: tuple[Mapping[str, Any], ...] = ()
    """Of a stage that has --table: the rows, with equal keys, for standard output in place of the path."""
    results: tuple[Path, ...] = ()
    """Of a stage that measures: the files that it added to checkpoints."""
    summary: Summary | None = None
