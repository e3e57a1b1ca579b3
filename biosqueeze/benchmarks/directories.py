"""The directories of benchmarks under a root directory with downloaded data."""

from collections.abc import Iterable
from pathlib import Path

from biosqueeze.benchmarks.suite import Benchmark
from biosqueeze.data.lines import is_beside_data
from biosqueeze.suggestions import plain_name


def locate(benchmark: Benchmark, root: Path) -> Path | None:
    """Return the benchmark's directory under a root: the first of its folders that contains data files, or None."""
    for folder in (*benchmark.folders, benchmark.name):
        for parent in (root / benchmark.suite, root):
            for directory in _matching(parent, folder.split("/")):
                if _has_data(directory, benchmark.folds):
                    return directory
    return None


def _matching(parent: Path, parts: list[str]) -> Iterable[Path]:
    """Return the directories under a parent whose path matches; case, -, _ and spaces do not count."""
    if not parts:
        return [parent]
    if not parent.is_dir():
        return []
    name = plain_name(parts[0])
    matching = sorted(path for path in parent.iterdir() if path.is_dir() and plain_name(path.name) == name)
    return [directory for path in matching for directory in _matching(path, parts[1:])]


def _has_data(directory: Path, folds: int) -> bool:
    if folds and any(path.name.isdecimal() and path.is_dir() for path in directory.iterdir()):
        return True
    return any(path.is_file() and not is_beside_data(path) for path in directory.iterdir())
