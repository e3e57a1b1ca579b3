"""Read span questions: SQuAD's and BioASQ's JSON files, or records (JSON lines, tables, `datasets`)."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from biosqueeze.data.lines import data_suffix, invalid_json, read_document
from biosqueeze.data.output_types import SPAN
from biosqueeze.data.records import hub
from biosqueeze.data.records.sample import SourceSample
from biosqueeze.data.records.splits import SPELLINGS, SUFFIXES, check_splits, find_split, has_split_word, open_directory
from biosqueeze.data.records.tables import read_records, splits_of
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.files.parsing import parse_json
from biosqueeze.progress import note
from biosqueeze.tasks import Dataset
from biosqueeze.tasks.readers.questions import (
    Passage,
    PassageQuestion,
    Question,
    answer_pairs,
    columns_of,
    grouped,
    have_answers,
    passage_question,
    questions_from_records,
)
from biosqueeze.tasks.readers.split_overlap import check_disjoint

_GOLDEN = re.compile(r"golden")
_OTHER_TYPES = re.compile(r"yes-?no|list|summary")
_BATCH = re.compile(r"[-_]?\d+$")  # BioASQ's test sets come in batches: ...-7b-1, ...-7b-2
_SQUAD_KEYS = re.compile(r'"paragraphs"\s*:\s*\[')
_BIOASQ_KEYS = re.compile(r'"type"\s*:\s*"factoid"')


def read_questions(source: str, splits: Sequence[str], column: Sequence[str]) -> Dataset:
    """Read splits of a data set of questions, and log their files and counts.

    A .json with train, dev (or valid) or test in its name has SQuAD's format (data, paragraphs, qas) or BioASQ's
    (questions, snippets), according to its content; otherwise the split is read as records.

    Args:
        source: a directory, or any source of `read_records`.
        splits: of train, dev and test.
        column: ROLE=COLUMN, for records.

    Raises:
        SqueezeError: a split is missing or empty, a file is damaged, an id occurs twice, a context is empty, or an
            answer is not at its offset.
        UsageError: there is no such split, or columns are named for a file that has none.
    """
    check_splits(splits)
    read = {split: _split(source, split, column) for split in splits}
    if "train" in splits and "test" not in splits and _has_test(source):
        test = _test_texts(source, column)  # read before training, so that errors in it are found first
        for split, questions in read.items() if test else ():
            check_disjoint(split, _texts(questions), test, source)
    for split, questions in read.items():
        _log(source, split, questions)
    return Dataset(read, (), SPAN.name)


def sniff_questions(sample: SourceSample, column: Sequence[str]) -> bool:
    """Return whether a source has SQuAD's format, BioASQ's with factoid questions, or records of questions.

    Raises:
        SqueezeError: records lack a column or are malformed.
    """
    path = sample.path
    if path is not None and data_suffix(path) == ".json" and sample.text.lstrip().startswith("{"):
        is_named = _GOLDEN.search(path.name.lower()) or any(has_split_word(path.name, split) for split in SPELLINGS)
        if is_named and not column and any(keys.search(sample.text) for keys in (_SQUAD_KEYS, _BIOASQ_KEYS)):
            return True
    columns = columns_of(column, labelled=True)
    records = sample.records(columns.header)
    return bool(records) and bool(questions_from_records(records, columns))


def _split(source: str, split: str, column: Sequence[str]) -> tuple[Question, ...]:
    if hub.is_hub_or_saved(source):
        return _records(source, split, column)
    directory = open_directory(source)
    contents = {path: _content(path) for path in _files(directory, split)}
    if not contents or not all(map(_has_known_format, contents.values())):
        _check_split(directory, split)
        return _records(source, split, column)
    if column:
        raise UsageError(f"--column {column[0]} does not apply to {next(iter(contents)).name}; leave it out")
    note(f"{source}: {split} is {', '.join(path.name for path in contents)}")
    questions = _questions(contents, directory)
    if not questions:
        raise SqueezeError(f"{source} is empty: its {split} split holds no question; check that it was written in full")
    return questions


def _test_texts(source: str, column: Sequence[str]) -> list[str]:
    """Return the texts of the test split; [] for one without any answer, as published test sets may be.

    Raises:
        SqueezeError: it has answers, and is damaged.
    """
    try:
        return _texts(_split(source, "test", column))
    except SqueezeError:
        if _is_test_answered(source, column):
            raise
    note(f"{source}: test has no answers and is not compared with train and dev")
    return []


def _is_test_answered(source: str, column: Sequence[str]) -> bool:
    """Return whether any question of the test split has an answer."""
    files = () if hub.is_hub_or_saved(source) else _files(open_directory(source), "test")
    contents = list(map(_content, files))
    if contents and all(map(_has_known_format, contents)):
        return any(map(_gives_answers, contents))
    header = columns_of(column, labelled=True).header
    return have_answers(read_records(source, ("test",), header=header)["test"], column)


def _gives_answers(node: Any) -> bool:
    """Return whether a value of SQuAD's or BioASQ's format has an answer, or says that there is none."""
    if isinstance(node, Mapping):
        is_given = any(node.get(key) for key in ("answers", "is_impossible", "exact_answer"))
        return is_given or any(map(_gives_answers, node.values()))
    return isinstance(node, list) and any(map(_gives_answers, node))


def _records(source: str, split: str, column: Sequence[str]) -> tuple[Question, ...]:
    columns = columns_of(column, labelled=True)
    return questions_from_records(read_records(source, (split,), header=columns.header)[split], columns)


def _check_split(directory: Path, split: str) -> None:
    if find_split(directory, split, SUFFIXES) is None:
        public = "; SQuAD's own test set is not public: evaluate with --split dev" if split == "test" else ""
        raise SqueezeError(
            f"{directory} has no {split} split: looked for a .json with {split} in its name (as in {split}-v1.1.json), "
            f"and for {', '.join(SPELLINGS[split])} with {', '.join(SUFFIXES)} (.gz allowed); rename the file{public}"
        )


def _has_test(source: str) -> bool:
    if "test" in splits_of(source):
        return True
    return not hub.is_hub_or_saved(source) and bool(_files(open_directory(source), "test"))


def _texts(questions: Sequence[Question]) -> list[str]:
    """Return what distinguishes examples: a question with its passages."""
    return [" ".join([question.text, *(passage.text for passage in question.passages)]) for question in questions]


def _files(directory: Path, split: str) -> list[Path]:
    """Return the .json files of a split: one, or the numbered batches of one; for test also BioASQ's gold files.

    Raises:
        SqueezeError: several files match.
    """
    json_files = sorted(path for path in directory.iterdir() if re.search(r"\.json(\.gz)?$", path.name.lower()))
    golden = [path for path in json_files if _GOLDEN.search(path.name.lower())]
    matches = [path for path in json_files if path not in golden and has_split_word(_stem(path), split)]
    if len(matches) > 1:
        matches = [path for path in matches if "factoid" in _stem(path)] or matches
        matches = [path for path in matches if not _OTHER_TYPES.search(_stem(path))] or matches
    if split == "test" and not matches:
        matches = golden
    if len({_GOLDEN.sub("", _BATCH.sub("", _stem(path))) for path in matches}) > 1 and matches != golden:
        raise SqueezeError(
            f"{directory} has {len(matches)} files that could be {split}: {', '.join(path.name for path in matches)}; "
            "keep one set of files in a separate directory, and name that"
        )
    return matches


def _stem(path: Path) -> str:
    return re.sub(r"\.json(\.gz)?$", "", path.name.lower())


def _content(path: Path) -> Any:
    """Return the parsed JSON, or None for JSON lines that are named .json."""
    try:
        return parse_json("\n".join(read_document(path)))
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            return None
        raise invalid_json(path, error) from error


def _has_known_format(content: Any) -> bool:
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
        raise SqueezeError(f"{files}: question {name} occurs twice; keep one of the two")
    return questions


def _golden(directory: Path) -> dict[str, tuple[str, ...]]:
    """Return the accepted answers by question, from BioASQ's files of gold answers."""
    answers: dict[str, tuple[str, ...]] = {}
    for path in sorted(directory.glob("*.json*")):
        if _GOLDEN.search(path.name.lower()):
            content = _content(path)
            if _has_known_format(content) and "questions" in content:
                note(f"{directory}: gold answers are from {path.name}")
                answers |= {question.id: question.answers for question in _factoids(path, content)}
    return answers


def _squad(path: Path, content: Mapping[str, Any]) -> Iterator[PassageQuestion]:
    """Parse the questions of SQuAD's format."""
    for article, article_place in each_object(content, "data", str(path)):
        for paragraph, paragraph_place in each_object(article, "paragraphs", article_place):
            for item, where in each_object(paragraph, "qas", paragraph_place):
                values = {"id": _id(item, where), "question": item.get("question"), "context": paragraph.get("context")}
                yield passage_question(str(path), values, _squad_answers(item, f"{path}: question {item['id']}"))


def _squad_answers(item: Mapping[str, Any], where: str) -> list[tuple[str, Any]] | None:
    """Return the answers of a question, [] if it has none, and None if the file does not give them."""
    answers = answer_pairs(item.get("answers") or [], where)
    impossible = item.get("is_impossible")
    if impossible and answers:
        raise SqueezeError(f"{where} is_impossible, but has answers; correct one of the two")
    return answers if answers or impossible else None


def _factoids(path: Path, content: Mapping[str, Any]) -> list[Question]:
    """Parse the factoid questions of BioASQ's format; each snippet is a passage.

    Raises:
        SqueezeError: there is none, or one has no exact answer.
    """
    items = [(item, _id(item, where)) for item, where in each_object(content, "questions", str(path))]
    factoids = [_factoid(item, f"{path}: question {name}") for item, name in items if item.get("type") == "factoid"]
    if not factoids:
        raise SqueezeError(f"{path} holds no question of type factoid, the only one of BioASQ with a span; see --task")
    answered = sum(any(passage.answer for passage in question.passages) for question in factoids)
    note(
        f"{path.name}: {len(factoids):,} of {len(items):,} questions are factoid; "
        f"{answered:,} of them have an exact answer in a snippet, letter case ignored"
    )
    return factoids


def _factoid(item: Mapping[str, Any], where: str) -> Question:
    answers = tuple(dict.fromkeys(_synonyms(item.get("exact_answer"))))
    body = item.get("body")
    if not answers:
        raise SqueezeError(f'{where} has no "exact_answer"; use the file with the gold answers (..._golden.json)')
    if not isinstance(body, str) or not body.strip():
        raise SqueezeError(f'{where} has no "body"; add the text of the question there')
    texts = dict.fromkeys(text for text in snippets_of(item, where) if isinstance(text, str) and text.strip())
    return Question(str(item["id"]), body, tuple(Passage(text, _first_span(answers, text)) for text in texts), answers)


def _synonyms(answer: Any) -> Iterator[str]:
    """Flatten an exact answer, which is a text, a list of synonyms, or a list of such lists."""
    if isinstance(answer, str) and answer.strip():
        yield answer
    elif isinstance(answer, list):
        for part in answer:
            yield from _synonyms(part)


def _first_span(answers: Sequence[str], text: str) -> tuple[int, int] | None:
    """Return the characters of the first synonym that occurs as whole words; letter case is ignored."""
    for answer in answers:
        match = re.search(rf"(?<!\w){re.escape(answer.strip())}(?!\w)", text, re.IGNORECASE)
        if match:
            return match.span()
    return None


def snippets_of(item: Mapping[str, Any], where: str) -> list[Any]:
    """Return the texts of the snippets of a question of BioASQ; [] if it has none.

    Raises:
        SqueezeError: the snippets are no list of objects.
    """
    none = item.get("snippets") is None
    return [] if none else [snippet.get("text") for snippet, _ in each_object(item, "snippets", where)]


def each_object(node: Mapping[str, Any], key: str, where: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Return the objects of a list in an object, each with its place.

    Raises:
        SqueezeError: there is no such list, or it has other values.
    """
    items = node.get(key)
    if not isinstance(items, list):
        raise SqueezeError(f"{where} has no list \"{key}\", which SQuAD's and BioASQ's formats have; convert the file")
    for number, item in enumerate(items):
        place = f"{where}: {key}[{number}]"
        if not isinstance(item, Mapping):
            raise SqueezeError(f"{place} is of type {type(item).__name__}, but an object was expected; correct it")
        yield item, place


def _id(item: Mapping[str, Any], where: str) -> str:
    if not str(item.get("id") or "").strip():
        raise SqueezeError(f'{where} has no "id"; add a unique one')
    return str(item["id"])


def _log(source: str, split: str, questions: Sequence[Question]) -> None:
    passages = sum(len(question.passages) for question in questions)
    without = sum(not question.answers for question in questions)
    none = f", {without:,} without an answer" if without else ""
    note(f"{source} (span): {split} {len(questions):,} questions, {passages:,} passages{none}")
