"""Where the splits of a data set lie: their files in a directory, and the folds of a cross-validated set."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.progress import warn
from biosqueeze.registry import closest

STEMS = {
    "train": ("train",),
    "dev": ("dev", "devel", "valid", "validation"),
    "test": ("test",),
}
"""The names that a split's file may have, without what comes after the first dot."""


def check_splits(splits: Iterable[str]) -> None:
    """Refuse a name that is no split.

    Raises:
        UsageError: it is none of train, dev and test.
    """
    for split in splits:
        if split not in STEMS:
            raise UsageError(f"there is no split {split!r}.{closest(split, STEMS)} Known: {', '.join(STEMS)}")


def open_directory(source: str) -> Path:
    """The directory of a data set.

    Raises:
        SqueezeError: there is none of that name.
    """
    directory = Path(source).expanduser()
    if directory.is_file():
        raise SqueezeError(
            f"{source} is a file, where a directory with train, dev and test was expected; "
            f"name the directory: {directory.parent}"
        )
    if not directory.is_dir():
        raise SqueezeError(f"there is no directory {source}; name one with files called train, dev and test")
    return directory


def find_split(directory: Path, split: str, suffixes: Sequence[str]) -> Path | None:
    """The file of a split, or None; says so where several would do.

    Args:
        directory: where to look.
        split: one of train, dev and test.
        suffixes: such as .tsv; the earlier wins. Each is also looked for with .gz behind it.
    """
    found = [directory / name for name in _names(split, suffixes) if (directory / name).is_file()]
    if len(found) > 1:
        others = ", ".join(path.name for path in found[1:])
        warn(f"{directory}: {found[0].name} is read as {split}; {others} could be it too, and is left out")
    return found[0] if found else None


def require_split(directory: Path, split: str, suffixes: Sequence[str]) -> Path:
    """As `find_split`, where the split is needed.

    Raises:
        SqueezeError: the split is missing; the message names what was looked for and what is there.
    """
    found = find_split(directory, split, suffixes)
    if found is None:
        raise SqueezeError(
            f"{directory} has no {split} split: looked for {', '.join(STEMS[split])} with "
            f"{', '.join(suffixes)} (.gz allowed); {_way_out(directory, split, suffixes)}"
        )
    return found


def folds(directory: Path) -> tuple[Path, ...]:
    """The folds of a cross-validated set in their order: sub-directories 1, 2, ... that each hold splits.

    Returns:
        () where there is no such sub-directory.
    """
    if not directory.is_dir():
        return ()
    numbered = [path for path in directory.iterdir() if path.name.isdecimal() and path.is_dir()]
    return tuple(sorted((path for path in numbered if _has_splits(path)), key=lambda path: int(path.name)))


def _has_splits(directory: Path) -> bool:
    return any(path.is_file() and path.name.split(".")[0] in STEMS["train"] for path in directory.iterdir())


def _names(split: str, suffixes: Sequence[str]) -> list[str]:
    return [stem + suffix + packed for suffix in suffixes for stem in STEMS[split] for packed in ("", ".gz")]


def _way_out(directory: Path, split: str, suffixes: Sequence[str]) -> str:
    within = folds(directory)
    if within:
        return f"it holds {len(within)} folds; name one of them, such as {within[0]}"
    near = sorted(path.name for path in directory.iterdir() if path.name.lower().startswith(STEMS[split]))
    if near:
        return f"there is {_some(near)}, which is not taken for it: rename it, or name another directory"
    below = sorted(_below(directory, split, suffixes))
    if below:
        return f"there is {below[0]}; name its directory: {(directory / below[0]).parent}"
    there = sorted(path.name for path in directory.iterdir())
    return f"it holds {_some(there) if there else 'nothing'}; rename the file, or name another directory"


def _below(directory: Path, split: str, suffixes: Sequence[str]) -> Iterator[str]:
    names = _names(split, suffixes)
    for folder in directory.iterdir():
        if folder.is_dir():
            yield from (f"{folder.name}/{name}" for name in names if (folder / name).is_file())


def _some(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
