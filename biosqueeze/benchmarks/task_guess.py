"""Which kind of task a data set might be for: whichever reader takes it, the more particular ones first."""

import io
import re
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biosqueeze import registry
from biosqueeze.errors import SqueezeError
from biosqueeze.tasks import Dataset, Formulation, Task, open_task
from biosqueeze.tasks.encoding.tag_schemes import split_tag

_FIRST = ("qa", "pico", "ner", "similarity", "relation", "nli", "classification")
_MOST_CLASSES = 5  # a score takes more values than that, or broken ones
_ELEMENTS = {"par", "int", "out", "p", "i", "o", "participants", "interventions", "outcomes"}
_NAMED = {
    "train": re.compile(r"(?<![a-z])train"),
    "dev": re.compile(r"(?<![a-z])(dev|valid)"),
    "test": re.compile(r"(?<![a-z])test"),
}
_TRIED = (
    ("train", "dev", "test"),
    ("train", "test"),
    ("train", "dev"),
    ("train",),
    ("dev", "test"),
    ("dev",),
    ("test",),
)


@dataclass(frozen=True)
class Guess:
    """A kind that reads the data, and what others would too."""

    kind: str
    others: tuple[str, ...]


def guess(source: str, form: Formulation) -> Guess:
    """Try every kind's reader in silence.

    Raises:
        SqueezeError: none reads it.
    """
    read = {kind: data for kind in _kinds() if (data := _try(kind, source, form)) is not None}
    if not read:
        raise SqueezeError(
            f"no kind of task reads {source}; say which it is to see what is wrong, as in --task ner "
            f"(kinds: {', '.join(registry.names('tasks'))})"
        )
    first = next((kind for kind, data in read.items() if _fits(kind, data)), next(iter(read)))
    return Guess(first, tuple(kind for kind in read if kind != first))


def read_there(task: Task, source: str) -> Dataset:
    """Read the splits that a data set has.

    Raises:
        SqueezeError: it has none, or one of them cannot be read.
    """
    return task.read(source, _splits_there(task, source))


def _kinds() -> list[str]:
    known = registry.names("tasks")
    return [kind for kind in (*_FIRST, *sorted(set(known) - set(_FIRST))) if kind in known]


def _try(kind: str, source: str, form: Formulation) -> Dataset | None:
    """The data, or None where the kind does not read them or knows nothing of an option that is set."""
    try:
        with redirect_stderr(io.StringIO()):
            return read_there(open_task(kind, form), source)
    except SqueezeError:
        return None


def _quietly(task: Task, source: str, splits: tuple[str, ...]) -> Dataset | None:
    try:
        with redirect_stderr(io.StringIO()):
            return task.read(source, splits)
    except SqueezeError:
        return None


def _splits_there(task: Task, source: str) -> tuple[str, ...]:
    """All splits if they can be read, else those that files are named after, else the most that can be read."""
    named = _splits_named(source)
    if named == _TRIED[0] or _quietly(task, source, _TRIED[0]) is not None:
        return _TRIED[0]
    if named:
        return named
    return next((tried for tried in _TRIED if _quietly(task, source, tried) is not None), _TRIED[0])


def _splits_named(source: str) -> tuple[str, ...]:
    """The splits that the names of a directory's files speak of, in order."""
    directory = Path(source).expanduser()
    files = [path.name.lower() for path in directory.iterdir() if path.is_file()] if directory.is_dir() else []
    return tuple(split for split, name in _NAMED.items() if any(name.search(file) for file in files))


def _fits(kind: str, data: Dataset) -> bool:
    """Whether what was read looks like the kind, where a reader takes more than that."""
    examples = [example for split in data.splits.values() for example in split]
    return _LOOKS[kind](examples) if kind in _LOOKS else True


def _has_entities(examples: list[Any]) -> bool:
    return any(example.mentions is not None or example.replaced for example in examples)


def _has_scores(examples: list[Any]) -> bool:
    values = {example.gold for example in examples}
    return len(values) > _MOST_CLASSES or any(value != int(value) for value in values)


def _has_elements(examples: list[Any]) -> bool:
    types = {split_tag(tag)[1].casefold() for example in examples for tag in example.gold} - {""}
    return bool(types) and types <= _ELEMENTS


_LOOKS: Mapping[str, Callable[[list[Any]], bool]] = {
    "pico": _has_elements,
    "relation": _has_entities,
    "similarity": _has_scores,
}
