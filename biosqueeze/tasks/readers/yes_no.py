"""The yes-or-no questions of BioASQ's own JSON files: a question, and its snippets joined."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from biosqueeze.data.lines import numbered_lines
from biosqueeze.errors import SqueezeError
from biosqueeze.progress import note
from biosqueeze.tasks.encoding.sequences import TextExample
from biosqueeze.tasks.readers import rows as _rows

NAME = "BioASQ's files"
ANSWERS = ("yes", "no")
_NAMED = {
    "train": re.compile(r"(?<![a-z])train"),
    "dev": re.compile(r"(?<![a-z])(dev|valid)"),
    "test": re.compile(r"(?<![a-z])test|golden"),
}
_BEGINNING = 4096  # characters


def is_here(directory: Path) -> bool:
    """Whether any .json here is an object with a list "questions"."""
    return directory.is_dir() and any(map(_is_bioasq, directory.glob("*.json")))


def read(directory: Path, splits: Sequence[str]) -> dict[str, list[TextExample]]:
    """The splits that are asked for, and test too where it must be told apart from train.

    A file is of the split that its name has: train, dev or valid, test or golden (7B1_golden.json and so on: all
    batches together are the test split).

    Raises:
        SqueezeError: a split has no file or no yes-or-no question, or a file is damaged.
    """
    files = {split: _files(directory, split) for split in _NAMED}
    looked = _rows.to_read(splits, [split for split, paths in files.items() if paths])
    for split in looked:
        if not files[split]:
            raise SqueezeError(
                f"{directory} has no {split} split: looked for a .json of BioASQ's with {split} in its name; "
                f"rename it, or write some of train's questions to {split}.json"
            )
    return {split: _split(directory, split, files[split]) for split in looked}


def _files(directory: Path, split: str) -> list[Path]:
    named = (path for path in sorted(directory.glob("*.json")) if _NAMED[split].search(path.stem.lower()))
    return [path for path in named if _is_bioasq(path)]


def _is_bioasq(path: Path) -> bool:
    """Judged by its beginning: the files are large."""
    with path.open(encoding="utf-8", errors="replace") as stream:
        return re.match(r'\s*\{\s*"questions"\s*:\s*\[', stream.read(_BEGINNING)) is not None


def _split(directory: Path, split: str, paths: Sequence[Path]) -> list[TextExample]:
    items = [(item, where) for path in paths for item, where in _questions(path)]
    examples = [_example(item, where) for item, where in items if item.get("type") == "yesno"]
    if not examples:
        raise SqueezeError(f"{paths[0]} holds no question of type yesno; name another directory")
    note(
        f"{directory}: {split} is {', '.join(path.name for path in paths)}: "
        f"{len(examples):,} of {len(items):,} questions are yes or no; snippets are joined"
    )
    return examples


def _questions(path: Path) -> Iterator[tuple[Mapping[str, Any], str]]:
    try:
        content = json.loads("\n".join(line for _, line in numbered_lines(path)))
    except json.JSONDecodeError as error:
        raise SqueezeError(f"{path}:{error.lineno}: not JSON ({error.msg} at column {error.colno}); mend it") from error
    for number, item in enumerate(content["questions"]):
        where = f"{path}: questions[{number}]"
        if not isinstance(item, Mapping):
            raise SqueezeError(f"{where} is of type {type(item).__name__}, where an object was expected; mend it")
        yield item, where


def _example(item: Mapping[str, Any], where: str) -> TextExample:
    snippets = [snippet.get("text") for snippet in item.get("snippets") or [] if isinstance(snippet, Mapping)]
    row = _rows.RoleValues(where, {"first": item.get("body"), "second": snippets})
    return TextExample(_rows.pair_of(row), _answer(item, where), str(item.get("id") or ""), where)


def _answer(item: Mapping[str, Any], where: str) -> str:
    answer = item.get("exact_answer")
    if isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]
    said = str(answer).strip().lower()
    if said not in ANSWERS:
        raise SqueezeError(
            f"{where}: the exact_answer {answer!r} is neither yes nor no; take the file with the gold answers"
        )
    return said
