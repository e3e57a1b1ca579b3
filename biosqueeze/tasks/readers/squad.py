"""Read span questions: SQuAD's and BioASQ's JSON files, or records (JSON lines, tables, `datasets`)."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from biosqueeze.data import hub
from biosqueeze.data.lines import numbered_lines
from biosqueeze.data.output_types import SPAN
from biosqueeze.data.splits import SPELLINGS, check_splits, find_split, open_directory
from biosqueeze.data.tables import SUFFIXES, read_records, splits_of
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.progress import note
from biosqueeze.tasks import Dataset
from biosqueeze.tasks.readers.questions import (
    Passage,
    PassageQuestion,
    Question,
    columns_of,
    grouped,
    listed,
    passage_question,
    questions_from_records,
)
from biosqueeze.tasks.readers.split_overlap import check_disjoint

_NAMED = {
    "train": re.compile(r"(?<![a-z])train"),
    "dev": re.compile(r"(?<![a-z])(dev|valid)"),
    "test": re.compile(r"(?<![a-z])test"),
}
_GOLDEN = re.compile(r"golden")
_OTHER_TYPES = re.compile(r"yes-?no|list|summary")
_BATCH = re.compile(r"[-_]?\d+$")  # BioASQ's test sets come in batches: ...-7b-1, ...-7b-2


def read_questions(source: str, splits: Sequence[str], column: Sequence[str]) -> Dataset:
    """Read splits of a data set of questions, and say what was taken for what.

    A .json with train, dev (or valid) or test in its name is SQuAD's format (data, paragraphs, qas) or BioASQ's
    (questions, snippets), as its content says; else the split is read as records.

    Args:
        source: a directory, or what `read_records` takes.
        splits: of train, dev and test.
        column: ROLE=COLUMN, for records.

    Raises:
        SqueezeError: a split is missing or empty, a file is damaged, an id comes twice, a context is empty, or an
            answer is not at its offset.
        UsageError: there is no such split, or columns are named for a file that has none.
    """
    check_splits(splits)
    read = {split: _split(source, split, column) for split in splits}
    if "train" in splits and "test" not in splits and _has(source, "test"):
        test = _texts(_split(source, "test", column))  # read now, so that what is wrong with it costs no training
        for split, questions in read.items():
            check_disjoint(split, _texts(questions), test, source)
    for split, questions in read.items():
        _say(source, split, questions)
    return Dataset(read, (), SPAN.name)


def _split(source: str, split: str, column: Sequence[str]) -> tuple[Question, ...]:
    if hub.is_hub(source) or hub.is_saved(open_directory(source)):
        return _records(source, split, column)
    directory = open_directory(source)
    contents = {path: _content(path) for path in _files(directory, split)}
    if not contents or not all(map(_is_ours, contents.values())):
        _check_there(directory, split)
        return _records(source, split, column)
    if column:
        raise UsageError(f"--column {column[0]} means nothing to {next(iter(contents)).name}; leave it out")
    note(f"{source}: {split} is {', '.join(path.name for path in contents)}")
    questions = _questions(contents, directory)
    if not questions:
        raise SqueezeError(f"{source} is empty: its {split} split holds no question; check that it was written in full")
    return questions


def _records(source: str, split: str, column: Sequence[str]) -> tuple[Question, ...]:
    columns = columns_of(column, labelled=True)
    return questions_from_records(read_records(source, (split,), header=columns.header)[split], columns)


def _check_there(directory: Path, split: str) -> None:
    if find_split(directory, split, SUFFIXES) is None:
        public = "; SQuAD's own test set is not public: evaluate with --split dev" if split == "test" else ""
        raise SqueezeError(
            f"{directory} has no {split} split: looked for a .json with {split} in its name (as in {split}-v1.1.json), "
            f"and for {', '.join(SPELLINGS[split])} with {', '.join(SUFFIXES)} (.gz allowed); rename the file{public}"
        )


def _has(source: str, split: str) -> bool:
    if hub.is_hub(source) or hub.is_saved(open_directory(source)):
        return split in splits_of(source)
    return split in splits_of(source) or bool(_files(open_directory(source), split))


def _texts(questions: Sequence[Question]) -> list[str]:
    """What tells examples apart: a question with its passages."""
    return [" ".join([question.text, *(passage.text for passage in question.passages)]) for question in questions]


def _files(directory: Path, split: str) -> list[Path]:
    """The .json files of a split: one, or the numbered batches of one; BioASQ's gold file where test has no other.

    Raises:
        SqueezeError: several files would do.
    """
    there = sorted(path for path in directory.iterdir() if re.search(r"\.json(\.gz)?$", path.name.lower()))
    golden = [path for path in there if _GOLDEN.search(path.name.lower())]
    found = [path for path in there if path not in golden and _NAMED[split].search(_stem(path))]
    if len(found) > 1:
        found = [path for path in found if "factoid" in _stem(path)] or found
        found = [path for path in found if not _OTHER_TYPES.search(_stem(path))] or found
    if split == "test" and not found:
        found = golden
    if len({_GOLDEN.sub("", _BATCH.sub("", _stem(path))) for path in found}) > 1 and found != golden:
        raise SqueezeError(
            f"{directory} has {len(found)} files that could be {split}: {', '.join(path.name for path in found)}; "
            "keep one set of files in a directory of its own, and name that"
        )
    return found


def _stem(path: Path) -> str:
    return re.sub(r"\.json(\.gz)?$", "", path.name.lower())


def _content(path: Path) -> Any:
    """The parsed JSON, or None for JSON lines that are called .json."""
    lines = [line for _, line in numbered_lines(path)]
    try:
        return json.loads("\n".join(lines))
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            return None
        raise SqueezeError(f"{path}:{error.lineno}: not JSON ({error.msg} at column {error.colno}); mend it") from error


def _is_ours(content: Any) -> bool:
    return isinstance(content, Mapping) and any(isinstance(content.get(key), list) for key in ("data", "questions"))


def _questions(contents: Mapping[Path, Mapping[str, Any]], directory: Path) -> tuple[Question, ...]:
    items: list[PassageQuestion] = []
    factoids: list[Question] = []
    for path, content in contents.items():
        if "questions" in content:
            factoids += _factoids(path, content)
        else:
            items += _squad(path, content)
    golden = _golden(directory) if any(item.answers is None for item in items) else {}
    questions = (*factoids, *grouped(items, golden))
    name, times = Counter(question.id for question in questions).most_common(1)[0] if questions else ("", 0)
    if times > 1:
        files = ", ".join(path.name for path in contents)
        raise SqueezeError(f"{files}: question {name} comes twice; keep one of the two")
    return questions


def _golden(directory: Path) -> dict[str, tuple[str, ...]]:
    """What BioASQ's files of gold answers say will do, by question."""
    answers: dict[str, tuple[str, ...]] = {}
    for path in sorted(directory.glob("*.json*")):
        if _GOLDEN.search(path.name.lower()):
            content = _content(path)
            if _is_ours(content) and "questions" in content:
                note(f"{directory}: gold answers are from {path.name}")
                answers |= {question.id: question.answers for question in _factoids(path, content)}
    return answers


def _squad(path: Path, content: Mapping[str, Any]) -> Iterator[PassageQuestion]:
    """Questions of SQuAD's format."""
    for article, where in _each(content, "data", str(path)):
        for paragraph, place in _each(article, "paragraphs", where):
            for item, spot in _each(paragraph, "qas", place):
                values = {"id": _id(item, spot), "question": item.get("question"), "context": paragraph.get("context")}
                yield passage_question(str(path), values, _squad_answers(item, f"{path}: question {item['id']}"))


def _squad_answers(item: Mapping[str, Any], where: str) -> list[tuple[str, Any]] | None:
    """Its answers, none where there is none, and None where the file does not say."""
    answers = listed(item.get("answers") or [], where)
    impossible = item.get("is_impossible")
    if impossible and answers:
        raise SqueezeError(f"{where} is_impossible, but has answers; correct one of the two")
    return answers if answers or impossible else None


def _factoids(path: Path, content: Mapping[str, Any]) -> list[Question]:
    """Factoid questions of BioASQ's format; each snippet is a passage.

    Raises:
        SqueezeError: there is none, or one has no exact answer.
    """
    kept = [(item, _id(item, where)) for item, where in _each(content, "questions", str(path))]
    factoids = [_factoid(item, f"{path}: question {name}") for item, name in kept if item.get("type") == "factoid"]
    if not factoids:
        raise SqueezeError(f"{path} holds no question of type factoid, the only one of BioASQ with a span; see --task")
    seen = sum(any(passage.answer for passage in question.passages) for question in factoids)
    note(
        f"{path.name}: {len(factoids):,} of {len(kept):,} questions are factoid; "
        f"{seen:,} of them have an exact answer in a snippet, letter by letter but for capitals"
    )
    return factoids


def _factoid(item: Mapping[str, Any], where: str) -> Question:
    answers = tuple(dict.fromkeys(_flat(item.get("exact_answer"))))
    body = item.get("body")
    if not answers:
        raise SqueezeError(f'{where} has no "exact_answer"; take the file with the gold answers (..._golden.json)')
    if not isinstance(body, str) or not body.strip():
        raise SqueezeError(f'{where} has no "body"; give the question there')
    snippets = (snippet.get("text") for snippet in item.get("snippets") or [] if isinstance(snippet, Mapping))
    texts = dict.fromkeys(text for text in snippets if isinstance(text, str) and text.strip())
    return Question(str(item["id"]), body, tuple(Passage(text, _found(answers, text)) for text in texts), answers)


def _flat(answer: Any) -> Iterator[str]:
    """The synonyms of an exact answer, which is a text, a list of them, or a list of lists."""
    if isinstance(answer, str) and answer.strip():
        yield answer
    elif isinstance(answer, list):
        for part in answer:
            yield from _flat(part)


def _found(answers: Sequence[str], text: str) -> tuple[int, int] | None:
    """Where the first synonym that occurs stands as whole words, whatever its capitals."""
    for answer in answers:
        match = re.search(rf"(?<!\w){re.escape(answer.strip())}(?!\w)", text, re.IGNORECASE)
        if match:
            return match.span()
    return None


def _each(node: Mapping[str, Any], key: str, where: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The objects of a list in an object, each with its place."""
    items = node.get(key)
    if not isinstance(items, list):
        raise SqueezeError(f"{where} has no list \"{key}\", as SQuAD's and BioASQ's formats do; convert the file")
    for number, item in enumerate(items):
        place = f"{where}: {key}[{number}]"
        if not isinstance(item, Mapping):
            raise SqueezeError(f"{place} is of type {type(item).__name__}, where an object was expected; mend it")
        yield item, place


def _id(item: Mapping[str, Any], where: str) -> str:
    if not str(item.get("id") or "").strip():
        raise SqueezeError(f'{where} has no "id"; give it one of its own')
    return str(item["id"])


def _say(source: str, split: str, questions: Sequence[Question]) -> None:
    passages = sum(len(question.passages) for question in questions)
    without = sum(not question.answers for question in questions)
    none = f", {without:,} without an answer" if without else ""
    note(f"{source} (span): {split} {len(questions):,} questions, {passages:,} passages{none}")
