"""The state file of a recipe's run: what each step wrote, with hashes, so that an unchanged step is skipped."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from biosqueeze.cli.recipe_file import STATE_FILE
from biosqueeze.cli.recipe_output import mark
from biosqueeze.errors import SqueezeError
from biosqueeze.files import read_json, write_json
from biosqueeze.options import StageOptions, WritingOptions
from biosqueeze.system.locks import exclusive_lock


@dataclass
class RecipeRun:
    """The state of a recipe's run: its directory, the entries of the state file, outputs and facts by step."""

    directory: Path
    entries: dict[str, dict[str, Any]]
    outputs: dict[str, Path] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Read the state file of a directory; without one, nothing is done yet."""
        path = directory / STATE_FILE
        entries = _read_entries(path) if path.is_file() else {}
        return cls(directory, {step: _moved(entry, directory) for step, entry in entries.items()})

    def begin(self, step: str, key: str, options: StageOptions) -> None:
        """Record that a step is about to run, and what it replaces.

        The rest of the old entry stays until the step has succeeded: a failure at its start changes nothing.
        """
        replaces = mark(Path(str(options.out))) if isinstance(options, WritingOptions) else None
        self.record(step, **{**self.entries.get(step, {}), "begun": key, "replaces": replaces})

    def record(self, step: str, **entry: Any) -> None:
        """Set the entry of a step and write the state file."""
        self.entries[step] = {**entry, "directory": str(self.directory)}
        self.write()

    def write(self) -> None:
        """Write the state file."""
        self.directory.mkdir(parents=True, exist_ok=True)
        write_json(self.directory / STATE_FILE, self.entries)


@contextmanager
def locked_run(directory: Path) -> Iterator[RecipeRun]:
    """Open the run of a directory, which is made; raise SqueezeError where another process runs a recipe there."""

    def refuse() -> None:
        raise SqueezeError(f"another biosqueeze is running a recipe in {directory}; wait for it, or give another --out")

    directory.mkdir(parents=True, exist_ok=True)
    with exclusive_lock((directory / STATE_FILE).with_suffix(".lock"), refuse):
        yield RecipeRun.open(directory)


def _read_entries(path: Path) -> dict[str, dict[str, Any]]:
    """Read the state file.

    Raises:
        SqueezeError: it is damaged.
    """
    entries = read_json(path)
    for step, entry in entries.items():
        if not _is_entry(entry):
            raise SqueezeError(f"{path} is damaged at {step!r}; delete it to run all steps again")
        if isinstance(entry.get("results"), list):  # of an earlier version, without hashes: measured again
            entry["results"] = dict.fromkeys(entry["results"], "")
    return entries


def _moved(entry: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Return an entry with its paths in the run's directory as that is named now: it may have been moved or copied."""
    former = entry.get("directory")
    if former is None:  # of an earlier version
        return entry

    def now(path: str) -> str:
        inside = Path(path).is_relative_to(former)
        return str(directory / Path(path).relative_to(former)) if inside else path

    results: Mapping[str, str] = entry.get("results", {})
    moved = {**entry, "directory": str(directory), "results": {now(path): digest for path, digest in results.items()}}
    return moved | {"path": now(entry["path"])} if "path" in entry else moved


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("results", {}), dict | list):
        return False
    results = entry.get("results", {})
    texts = [*(entry.get(name, "") for name in ("key", "path", "content", "directory")), *results]
    texts += results.values() if isinstance(results, dict) else []
    is_whole = "path" not in entry or isinstance(entry.get("facts"), dict)
    return is_whole and all(isinstance(text, str) for text in texts)
