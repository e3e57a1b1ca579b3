"""Read the yes-or-no questions of BioASQ's JSON files: a question, and its snippets joined."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from biosqueeze.data.lines import read_beginning, read_json_document
from biosqueeze.data.records.sample import SourceSample
from biosqueeze.data.records.splits import SPLITS, has_split_word
from biosqueeze.errors import SqueezeError
from biosqueeze.progress import note
from biosqueeze.tasks.encoding.sequences import TextExample
from biosqueeze.tasks.readers import rows as _rows
from biosqueeze.tasks.readers.split_overlap import with_test
from biosqueeze.tasks.readers.squad import each_object, snippets_of

NAME = "BioASQ's files"
ANSWERS = ("yes", "no")
_QUESTION_LIST = re.compile(r'\s*\{\s*"questions"\s*:\s*\[')
_YES_NO = re.compile(r'"type"\s*:\s*"yesno"')
_BEGINNING = 4096  # characters


def is_here(directory: Path) -> bool:
    """Return whether any .json of a directory is an object with a list "questions"."""
    return directory.is_dir() and any(map(_is_bioasq, directory.glob("*.json")))


def has_questions(directory: Path, sample: SourceSample) -> bool:
    """Return whether a directory has BioASQ's files, and a yes-or-no question in the sampled one."""
    return is_here(directory) and _YES_NO.search(sample.text) is not None


def read(directory: Path, splits: Sequence[str]) -> dict[str, list[TextExample]]:
    """Read splits, and with train the test split too, to check that the two are disjoint.

    The split of a file is in its name: train, dev or valid, test or golden (7B1_golden.json, ...: all batches
    together are the test split).

    Raises:
        SqueezeError: a split has no file or no yes-or-no question, or a file is damaged.
    """
    files = {split: _files(directory, split) for split in SPLITS}
    names: Sequence[str] = with_test(splits, [split for split, paths in files.items() if paths])
    for split in names:
        if not files[split]:
            raise SqueezeError(
                f"{directory} has no {split} split: looked for a .json of BioASQ's with {split} in its name; "
                f"rename it, or write some of train's questions to {split}.json"
            )
    if "test" not in splits and "test" in names and not _has_answers(files["test"]):
        note(f"{directory}: test has no answers and is not compared with train and dev")
        names = splits
    return {split: _split(directory, split, files[split]) for split in names}


def _files(directory: Path, split: str) -> list[Path]:
    named = (path for path in sorted(directory.glob("*.json")) if _is_of_split(path.stem, split))
    return [path for path in named if _is_bioasq(path)]


def _is_of_split(name: str, split: str) -> bool:
    return has_split_word(name, split) or (split == "test" and "golden" in name.lower())


def _is_bioasq(path: Path) -> bool:
    """Recognise a file by its beginning, because the files are large."""
    return _QUESTION_LIST.match(read_beginning(path, _BEGINNING)) is not None


def _has_answers(paths: Sequence[Path]) -> bool:
    """Return whether a question has its answer; the test sets of a running challenge have none."""
    return any("exact_answer" in item for item, _ in _items(paths))


def _items(paths: Sequence[Path]) -> Iterator[tuple[Mapping[str, Any], str]]:
    lists = (each_object(read_json_document(path), "questions", str(path)) for path in paths)
    return chain.from_iterable(lists)


def _split(directory: Path, split: str, paths: Sequence[Path]) -> list[TextExample]:
    items = list(_items(paths))
    examples = [_example(item, where) for item, where in items if item.get("type") == "yesno"]
    if not examples:
        raise SqueezeError(f"{paths[0]} holds no question of type yesno; name another directory")
    note(
        f"{directory}: {split} is {', '.join(path.name for path in paths)}: "
        f"{len(examples):,} of {len(items):,} questions are yes-or-no questions; their snippets are joined"
    )
    return examples


def _example(item: Mapping[str, Any], where: str) -> TextExample:
    row = _rows.RoleValues(where, {"first": item.get("body"), "second": snippets_of(item, where)})
    return TextExample(_rows.pair_of(row), _answer(item, where), str(item.get("id") or ""), where)


def _answer(item: Mapping[str, Any], where: str) -> str:
    value = item.get("exact_answer")
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    answer = str(value).strip().lower()
    if answer not in ANSWERS:
        raise SqueezeError(
            f"{where}: the exact_answer {value!r} is neither yes nor no; use the file with the gold answers"
        )
    return answer
