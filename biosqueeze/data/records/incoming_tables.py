"""Input records in rows: tables with named columns, and columns of words (CoNLL), whose tags are ignored."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, dropwhile, islice
from typing import Self

from biosqueeze.data.lines import Line
from biosqueeze.data.records.columns import (
    ADVICE_ON_CSV,
    ADVICE_ON_TSV,
    check_line_ends,
    check_names,
    delimiter_of,
    invalid_csv,
)
from biosqueeze.data.records.input_record import InputRecord
from biosqueeze.errors import SqueezeError
from biosqueeze.files.parsing import max_line_bytes

# The marks of documents of CoNLL-2003 and JNLPBA, and the comments of CoNLL-U, such as `# newdoc` and `# sent_id = 3`.
_BORDER = re.compile(r"\s*$|-DOCSTART-|###MEDLINE:|# (?:newdoc|newpar)\b|# [\w.]+ =")
TAG = re.compile(r"O|[BIESLU](-\S+)?")
_NAME = re.compile(r"[A-Za-z]\w*")
_LONG_NAME = re.compile(r"[A-Za-z][\w .-]*")  # such as "Article Title"
# One of them in a first line of names shows that a pipe holds a table.
_TEXT_NAMES = {"text", "abstract", "title", "sentence", "sentence1", "premise", "question", "document"}
_PART_NUMBER = re.compile(r"\d+[-.]\d+")  # of CoNLL-U's words in several parts (2-3), and empty ones (2.1)
_COUNTED = 4  # words of a sentence that are 1, 2, 3, 4; later in a file, a text may have such a list
_FEWEST_COLUMNS = 3  # of a file with numbers, words and tags
_LONGEST_NAME = 60  # characters; a longer first row has texts, and no names

_Row = tuple[int, Sequence[str], str | None]  # number of its first line, cells, error of an invalid line in it


def is_border(line: str) -> bool:
    """Return whether a line of a column file lies between sentences: blank, the mark of a document, or a comment."""
    return _BORDER.match(line) is not None


def are_counts(words: Sequence[str], columns: int, where: str) -> bool:
    """Return whether the words of a sentence, read from rows of so many columns, are 1, 2, ...

    Raises:
        SqueezeError: there are enough of them to tell that they are no words.
    """
    numbers = [word for word in words if not _PART_NUMBER.fullmatch(word)]
    count = len(numbers)
    if columns < _FEWEST_COLUMNS or not count or numbers != [str(number) for number in range(1, count + 1)]:
        return False
    if count >= _COUNTED:
        raise SqueezeError(
            f"{where}: the column of the words counts from 1 to {count}; name the one that has them, as in "
            "--column word=2"
        )
    return True


def has_tag(line: str) -> bool:
    """Return whether a line has a word first and a tag such as O or B-Gene last."""
    cells = line.split("\t") if "\t" in line else line.split()
    words = all(len(cell.split()) <= 1 for cell in cells) and bool(cells[0].strip())
    return len(cells) > 1 and words and TAG.fullmatch(cells[-1].strip()) is not None


def is_header(line: str, separator: str) -> bool:
    """Return whether a line has the names of columns, one of them that of a text; cells between tabs have no quotes."""
    try:
        cells = (
            line.split("\t") if separator == "\t" else next(csv.reader([line], delimiter=separator, strict=True), [])
        )
    except csv.Error:  # a text with quotes, or a very long one
        return False
    # A sentence has a space after its commas, and a header has none.
    pattern = _NAME if any(cell.startswith(" ") for cell in cells) else _LONG_NAME
    names = [cell.strip() for cell in cells]
    are_names = all(pattern.fullmatch(name) and len(name) <= _LONGEST_NAME for name in names)
    return len(names) > 1 and are_names and any(name.casefold() in _TEXT_NAMES for name in names)


def tab_records(lines: Iterable[Line], name: str, *, has_header: bool) -> Iterator[InputRecord]:
    """Yield the rows of a .tsv, without quoting: quotes in biomedical tables are text; see `_records`."""
    rows = ((line.number, line.text.split("\t"), line.error) for line in lines if line.text.strip())
    return _records(rows, name, ADVICE_ON_TSV, has_header=has_header)


def comma_records(lines: Iterable[Line], name: str, *, has_header: bool) -> Iterator[InputRecord]:
    """Yield the rows of a .csv with RFC 4180 quoting; a quoted field may contain line ends; see `_records`."""
    return _records(_csv_rows(lines, name), name, ADVICE_ON_CSV, has_header=has_header)


def word_records(lines: Iterable[Line], name: str, columns: Mapping[str, str]) -> Iterator[InputRecord]:
    """Yield the sentences of a column file as {"id", "tokens"}; the id is the number of the sentence's first line.

    Columns are separated by tabs, or by white space in a file whose first row has no tab. Sentences are separated as
    `is_border` says.

    Args:
        lines: of the file.
        name: of the file, for messages.
        columns: `word` may be the column of the words, by default the first: its number from 1, or its name in the
            first row, which is then a header.

    Raises:
        SqueezeError: the first row has no such name, or the words of all sentences so far are 1, 2, ...
    """
    counts_words = True
    for record, layout in _sentences(lines, name, columns):
        if counts_words and record.error is None:
            counts_words = are_counts(record.values["tokens"], layout.count, record.where)
        yield record


def _sentences(
    lines: Iterable[Line], name: str, columns: Mapping[str, str]
) -> Iterator[tuple[InputRecord, "_WordColumn"]]:
    sentence: list[Line] = []
    layout: _WordColumn | None = None
    for line in lines:
        if not is_border(line.text):
            if layout is None:
                layout = _WordColumn.of(line, columns.get("word", "1"), name)
                if not columns.get("word", "1").isdecimal():
                    continue
            sentence.append(line)
        elif sentence and layout:
            yield layout.sentence(sentence, name), layout
            sentence = []
    if sentence and layout:
        yield layout.sentence(sentence, name), layout


@dataclass(frozen=True)
class _WordColumn:
    """How the rows of a column file are separated, and which of its columns has the words."""

    separator: str | None  # None for white space
    count: int
    """Columns of the first row; every other row has as many."""
    position: int  # from 0

    @classmethod
    def of(cls, line: Line, word: str, name: str) -> Self:
        separator = "\t" if "\t" in line.text else None
        cells = [cell.strip() for cell in line.text.split(separator)]
        if word.isdecimal():
            return cls(separator, len(cells), int(word[:9]) - 1)
        if word not in cells:
            raise SqueezeError(
                f"{name}:{line.number}: no column {word!r} in the first row ({', '.join(cells)}); name the column of "
                "the words by its number, such as --column word=1"
            )
        return cls(separator, len(cells), cells.index(word))

    def sentence(self, lines: Sequence[Line], name: str) -> InputRecord:
        """Return the words of some rows, or the error of the first invalid one."""
        number = lines[0].number
        where, words = f"{name}:{number}", []
        for line in lines:
            check_line_ends(line.text, f"{name}:{line.number}")
            cells = line.text.split(self.separator)
            error = line.error or self._problem(cells)
            if error:
                return InputRecord(where, {"id": number}, line.error or f"{name}:{line.number}: {error}")
            words.append(cells[self.position].strip())
        return InputRecord(where, {"id": number, "tokens": words})

    def _problem(self, cells: Sequence[str]) -> str | None:
        if len(cells) != self.count:
            return f"{len(cells)} columns, where the first row has {self.count}; correct this line, or blank it"
        if not 0 <= self.position < len(cells) or not cells[self.position].strip():
            return f"no word in column {self.position + 1}; correct this line, or blank it"
        return None


def _csv_rows(lines: Iterable[Line], name: str) -> Iterator[_Row]:
    csv.field_size_limit(max_line_bytes())
    used: list[Line] = []

    rest = dropwhile(lambda line: not line.text.strip(), lines)
    head = list(islice(rest, 1))

    def texts() -> Iterator[str]:
        for line in chain(head, rest):
            used.append(line)
            yield line.text + line.end  # a line end in a quoted field counts in the offsets of predictions

    try:
        for row in csv.reader(texts(), delimiter=delimiter_of(head[0].text if head else ""), strict=True):
            if row:
                yield used[0].number, row, next((line.error for line in used if line.error), None)
            used.clear()
    except csv.Error as error:
        raise invalid_csv(f"{name}:{used[0].number}", error) from error


def _records(rows: Iterator[_Row], name: str, advice: str, *, has_header: bool) -> Iterator[InputRecord]:
    """Yield a record for each row, by column; its id is that of a column called id, else the number of its line.

    The first row has the names of the columns; without a header they are called "1", "2", ...

    Raises:
        SqueezeError: the first row has no names, two of them are equal, or the end of a row cannot be found.
    """
    names: list[str] = []
    first = 0
    for number, cells, error in rows:
        where = f"{name}:{number}"
        if not names:
            if error:
                raise SqueezeError(error)
            numbers = [str(position) for position in range(1, len(cells) + 1)]
            names, first = _names(cells, where) if has_header else numbers, number
            if has_header:
                continue
        wrong = f"{len(cells)} columns, where line {first} has {len(names)} ({', '.join(names)}); correct this row"
        if error or len(cells) != len(names):
            yield InputRecord(where, {"id": number}, error or f"{where}: {wrong}: {advice}")
            continue
        values = dict(zip(names, cells, strict=True))
        id_field = next((column for column in names if column.casefold() == "id"), "id")
        yield InputRecord(where, values, id_field=id_field, number=number)


def _names(cells: Sequence[str], where: str) -> list[str]:
    names = [cell.strip() or str(position) for position, cell in enumerate(cells, start=1)]
    longest = max(names, key=len)
    if len(longest) > _LONGEST_NAME:
        raise SqueezeError(
            f"{where}: {longest[:20]!r}... is no name of a column; add a first row with names, such as id and text, or "
            f"give the number of the column, such as --column text={names.index(longest) + 1}"
        )
    check_names(names, where)
    return names
