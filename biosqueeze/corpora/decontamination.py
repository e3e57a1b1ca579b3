"""Find documents that contain a test sentence of a benchmark."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from biosqueeze.corpora.parquet_records import read_records
from biosqueeze.corpora.sources import is_parquet
from biosqueeze.corpora.xml_stream import DamagedSourceError
from biosqueeze.data.annotations.documents import detect_format, read_documents
from biosqueeze.data.lines import data_suffix, is_beside_data, numbered_lines, read_beginning, read_document
from biosqueeze.data.records.columns import delimiter_of
from biosqueeze.data.records.incoming_tables import TAG
from biosqueeze.data.records.splits import SPELLINGS, WORD_SUFFIXES, has_split_word
from biosqueeze.data.records.tables import csv_rows, tab_rows
from biosqueeze.data.sentences import sentences_of
from biosqueeze.errors import SqueezeError
from biosqueeze.files.parsing import parse_json
from biosqueeze.progress import note, warn

_MOST_NAMED = 5
_TEST_WORDS = ("test", "golden")  # BioASQ's test sets are called 7B1_golden.json
LEAST_WORDS = 8  # a shorter sentence ("No adverse events were seen .") may be anybody's
_WORD = re.compile(r"[a-z0-9]+")
_ACCENTS = re.compile("[\u0300-\u036f]+")
_APART = {"can not": "cannot", " n't": "n't", " n\u2019t": "n\u2019t"}  # as tokenizers of treebanks write them
_TABLES = {".tsv", ".csv", ".txt", *WORD_SUFFIXES}
_JSON = {".json", ".jsonl", ".ndjson"}
_DOCUMENTS = {".xml", ".pubtator"}
_ANNOTATIONS = {".ann", ".a1", ".a2"}  # of brat; their texts are files of their own
_MASK = re.compile(r"@[^\s@$]+\$")  # BLURB publishes relations with @GENE$ in place of a name
_ENTITY_MARK = re.compile(r"\[/?E[12]\]|</?e[12]>")  # around the two entities of a relation


def plain_words(text: str) -> list[str]:
    """Return the words of a text in small letters, without punctuation and accents, for tokenised text as for raw."""
    text = text.lower()
    for apart, joined in _APART.items():
        text = text.replace(apart, joined)
    if not text.isascii():
        text = _ACCENTS.sub("", unicodedata.normalize("NFD", text))
    return _WORD.findall(text)


@dataclass
class TestSentences:
    """The test sentences of benchmarks, indexed by their first words."""

    __test__ = False  # not a test class

    _by_beginning: dict[tuple[str, ...], list[tuple[tuple[str, ...], str]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    sentences: int = 0

    def add(self, text: str, place: str) -> None:
        """Index the sentences of a text that have at least `LEAST_WORDS` words.

        Of a sentence with masked names (@GENE$) the longest part without any is indexed; marks of entities ([E1]) are
        no words of it.

        Args:
            text: of a test split, raw or tokenised.
            place: file and line, for the list of what was dropped.
        """
        text = _ENTITY_MARK.sub(" ", text)
        for start, end in sentences_of(text):
            words = max((tuple(plain_words(part)) for part in _MASK.split(text[start:end])), key=len)
            if len(words) >= LEAST_WORDS:
                self._by_beginning[words[:LEAST_WORDS]].append((words, place))
                self.sentences += 1

    def find(self, text: str) -> str | None:
        """Return the place of a test sentence that is in the text, or None."""
        words = plain_words(text)
        for start in range(len(words) - LEAST_WORDS + 1):
            for sentence, place in self._by_beginning.get(tuple(words[start : start + LEAST_WORDS]), ()):
                if tuple(words[start : start + len(sentence)]) == sentence:
                    return place
        return None


def read_test_sentences(directory: Path) -> TestSentences:
    """Read the test sentences of every benchmark below a directory: files whose name or folder says "test" or "golden".

    Raises:
        SqueezeError: there is no such directory, or no test file in it.
    """
    found = TestSentences()
    _warn_of_unread(directory)
    for path in find_test_files(directory):
        before = found.sentences
        for text, place in _texts_of(path):
            found.add(text, place)
        note(f"against {path.relative_to(directory)}: {found.sentences - before:,} test sentences")
        if found.sentences == before:
            warn(f"{path} has no sentence of {LEAST_WORDS} words or more; nothing is dropped because of it")
    if not found.sentences:
        raise SqueezeError(
            f"{directory} holds no test sentences; expected data sets with a file called test (.tsv, .csv, .json, "
            ".jsonl, .parquet, .txt, PubTator or BioC)"
        )
    return found


def _warn_of_unread(directory: Path) -> None:
    """Warn of files whose name or folder says "test", and of whose format no text is read."""
    named = [path for path in sorted(directory.rglob("*")) if path.is_file() and _says_test(path, directory)]
    unread = [str(path) for path in named if not _is_readable(path) and data_suffix(path) not in _ANNOTATIONS]
    if unread:
        more = f" and {len(unread) - _MOST_NAMED} more" if len(unread) > _MOST_NAMED else ""
        warn(f"--against: no test sentence is read from {', '.join(unread[:_MOST_NAMED])}{more}: unknown formats")


def find_test_files(directory: Path) -> list[Path]:
    """Return the files below a directory whose name or folder says "test".

    Raises:
        SqueezeError: there is no such directory.
    """
    if not directory.is_dir():
        raise SqueezeError(f"there is no directory {directory}; name the one that holds the benchmarks with --against")
    files = (path for path in sorted(directory.rglob("*")) if path.is_file() and _is_readable(path))
    return [path for path in files if _says_test(path, directory)]


def _is_readable(path: Path) -> bool:
    return data_suffix(path) in _TABLES | _JSON | _DOCUMENTS or is_parquet(path)


def _says_test(path: Path, root: Path) -> bool:
    """Return whether the name of a file or of its folder mentions the test split, or a folder above has its name."""
    relative = path.relative_to(root)
    named = any(has_split_word(part, "test") for part in (relative.parent.name, relative.name))
    named = named or any(part.lower() in SPELLINGS["test"] for part in relative.parent.parts)
    return (named or any(word in path.name.lower() for word in _TEST_WORDS)) and not is_beside_data(path)


def _texts_of(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the texts of a test file with their places, whatever the task is."""
    if is_parquet(path):
        yield from _parquet_texts(path)
    elif data_suffix(path) in _JSON or read_beginning(path, 100).lstrip().startswith("{"):
        yield from _json_texts(path)
    elif detect_format(path) is not None:
        yield from ((document.text, document.where) for document in read_documents(path))
    else:
        yield from _table_texts(path)


def _parquet_texts(path: Path) -> Iterator[tuple[str, str]]:
    try:
        for number, record in enumerate(read_records(path), start=1):
            yield from ((text, f"{path}:{number}") for text in _strings(record))
    except DamagedSourceError as error:
        raise SqueezeError(f"{path}: {error}; fetch it again, or take it out of --against") from error


def _json_texts(path: Path) -> Iterator[tuple[str, str]]:
    values = _json_values(path)
    for number, value in values:
        yield from ((text, f"{path}:{number}") for text in _strings(value))
    if len(values) == 1 and isinstance(values[0][1], dict):
        yield from _named_records(path, values[0][1])


def _json_values(path: Path) -> list[tuple[int, Any]]:
    """Return the values of a file of JSON or JSON lines, each with its line."""
    is_document = data_suffix(path) == ".json"  # which may be one line of many megabytes
    lines = list(enumerate(read_document(path), start=1) if is_document else numbered_lines(path))
    try:
        return [(number, parse_json(line)) for number, line in lines if line.strip()]
    except ValueError:
        try:
            return [(1, parse_json("\n".join(line for _, line in lines)))]
        except ValueError as error:
            raise SqueezeError(
                f"{path} is not valid JSON ({error}); correct it, or take it out of --against"
            ) from error


def _named_records(path: Path, labels: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the texts of records in a file beside a test file that holds their ids and labels alone.

    PubMedQA's test split is published so: test_ground_truth.json names questions of ori_pqal.json.
    """
    if not all(isinstance(label, str) for label in labels.values()):
        return
    for other in sorted(path.parent.glob("*.json")):
        values = _json_values(other)
        records = values[0][1] if len(values) == 1 else None
        if isinstance(records, dict) and all(isinstance(records.get(name), dict) for name in labels):
            yield from ((text, f"{other}:{name}") for name in labels for text in _strings(records[name]))


def _strings(value: Any) -> Iterator[str]:
    """Yield the texts of a record; a list of words is one, and a list of tags is none."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and all(isinstance(item, str) and len(item.split()) == 1 for item in value):
        yield "" if all(map(TAG.fullmatch, value)) else " ".join(value)
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _table_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield every cell of a table, or every sentence of a file with one word on each line."""
    lines = list(numbered_lines(path))
    is_csv = data_suffix(path) == ".csv"
    mark = delimiter_of(next((line for _, line in lines if line.strip()), "")) if is_csv else "\t"
    columns = [(number, line.replace(mark, "\t")) for number, line in lines]
    if _has_one_word_a_line(text for _, text in columns):
        yield from _tagged_sentences(columns, path)
        return
    for number, cells in csv_rows(lines, path) if is_csv else tab_rows(lines):
        yield from ((cell, f"{path}:{number}") for cell in cells)


def _has_one_word_a_line(lines: Iterable[str]) -> bool:
    filled = [line for _, line in zip(range(200), lines, strict=False) if line.strip()]
    return bool(filled) and sum(
        len(line.strip().split("\t")) < 5 and _one_word_a_cell(line) for line in filled
    ) > 0.9 * len(filled)


def _one_word_a_cell(line: str) -> bool:
    """Return whether no cell holds words; spaces may separate the cells instead of tabs."""
    return len(line.split()) == len(line.split("\t")) or ("\t" not in line and len(line.split()) < 5)


def _tagged_sentences(lines: Iterable[tuple[int, str]], path: Path) -> Iterator[tuple[str, str]]:
    words: list[str] = []
    first = 1
    for number, line in [*lines, (0, "")]:
        if line.strip():
            first = first if words else number
            words.append(line.split()[0])
        elif words:
            yield " ".join(words), f"{path}:{first}"
            words = []
