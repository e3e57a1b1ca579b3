"""Read column files: a word and its tag on each line, with blank lines between sentences."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from biosqueeze.data.lines import numbered_lines
from biosqueeze.data.records.columns import check_line_ends
from biosqueeze.data.records.incoming_tables import are_counts, is_border
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.registry import closest
from biosqueeze.tasks.readers.tagged import SourceSentence

_ROLES = ("word", "tag")
_DOCUMENT = re.compile(r"-DOCSTART-|###MEDLINE:|# newdoc\b")
_FEWEST_DOCUMENTS = 10  # fewer marks may be of parts of a corpus


@dataclass(frozen=True)
class ColumnLayout:
    """How the rows of a file are separated into columns, and which columns have the word and the tag."""

    separator: str | None  # None for white space
    columns: int
    word: int  # position, from 0
    tag: int
    header: int = 0  # line of the header, 0 if there is none

    def check(self, cells: Sequence[str], where: str) -> None:
        """Check that a row has as many columns as the first, a word and a tag."""
        if len(cells) != self.columns:
            problem = "no tag beside" if len(cells) == 1 else f"{len(cells)} columns at"
            raise SqueezeError(
                f"{where}: {problem} {cells[0]!r}, but {self.columns} columns were expected ({self}); correct this row"
            )
        if not cells[self.word].strip():
            raise SqueezeError(
                f"{where}: no word before the tag {cells[self.tag]!r}; correct this row, or blank it to end a sentence"
            )

    def __str__(self) -> str:
        if (self.word, self.tag) == (0, self.columns - 1):
            return "word first, tag last"
        return f"word in column {self.word + 1}, tag in column {self.tag + 1}"


def read_columns(path: Path, requested: Mapping[str, str]) -> tuple[list[SourceSentence], str]:
    """Read one file.

    Args:
        path: columns are separated by tabs, or by white space in a file whose first row has no tab. The first column
            has the word and the last its tag, unless `requested` names others. -DOCSTART- and comments
            (`# sent_id = 3`) separate sentences, as blank lines do. -DOCSTART-, ###MEDLINE: and `# newdoc` separate
            documents, if there are ten or more.
        requested: column of `word` and of `tag`: a number from 1, or a name in the first row, which is then a header.

    Returns:
        the sentences, and a description of the columns for messages.

    Raises:
        SqueezeError: it is empty, not UTF-8 or malformed; the message names file and line.
        UsageError: there is no such column.
    """
    sentences: list[SourceSentence] = []
    layout: ColumnLayout | None = None
    for sentence, layout in parse_columns(numbered_lines(path), path, requested):  # noqa: B007 -- the last is used
        sentences.append(sentence)
    if not sentences:
        raise SqueezeError(f"{path} is empty: it holds no word with a tag; check that it was written in full")
    documents = {sentence.document_id for sentence in sentences} - {""}
    if documents and len(documents) < _FEWEST_DOCUMENTS:
        sentences = [replace(sentence, document_id="") for sentence in sentences]
    return sentences, str(layout)


def parse_columns(
    lines: Iterable[tuple[int, str]], path: Path, requested: Mapping[str, str]
) -> Iterator[tuple[SourceSentence, ColumnLayout]]:
    """Parse the sentences of numbered lines one by one, each with the layout of the file; see `read_columns`."""
    counts_words = True  # whether the words of every sentence so far are 1, 2, ...
    for sentence, layout in _parsed(lines, path, requested):
        counts_words = counts_words and are_counts(sentence.words, layout.columns, sentence.where(0))
        yield sentence, layout


def _parsed(
    lines: Iterable[tuple[int, str]], path: Path, requested: Mapping[str, str]
) -> Iterator[tuple[SourceSentence, ColumnLayout]]:
    layout: ColumnLayout | None = None
    rows: list[tuple[int, str, str]] = []
    document = ""
    for number, line in lines:
        if is_border(line):
            if rows and layout:
                yield _sentence(rows, path, document), layout
            rows = []
            document = f"{path}:{number}" if _DOCUMENT.match(line) else document
            continue
        layout = layout or _layout(line, number, requested, path)
        check_line_ends(line, f"{path}:{number}")
        cells = line.split(layout.separator)
        layout.check(cells, f"{path}:{number}")
        if number != layout.header:
            rows.append((number, cells[layout.word], cells[layout.tag].strip()))
    if rows and layout:
        yield _sentence(rows, path, document), layout


def _sentence(rows: Sequence[tuple[int, str, str]], path: Path, document: str) -> SourceSentence:
    lines, words, tags = zip(*rows, strict=True)
    return SourceSentence(words, tags, str(path), lines, document_id=document)


def _layout(line: str, number: int, requested: Mapping[str, str], path: Path) -> ColumnLayout:
    for role in requested:
        if role not in _ROLES:
            raise UsageError(
                f"--column {role}={requested[role]}: {path.name} has no role {role!r}.{closest(role, _ROLES)} "
                f"Roles: {', '.join(_ROLES)}"
            )
    separator = "\t" if "\t" in line else None
    cells = line.split(separator)
    columns = max(2, len(cells))
    word = _position(requested.get("word", "1"), cells, columns, path)
    tag = _position(requested.get("tag", str(columns)), cells, columns, path)
    if word == tag:
        raise UsageError(
            f"--column: column {tag + 1} of {path} would hold both the words and the tags; name the other one too: "
            "--column word=NUMBER --column tag=NUMBER"
        )
    has_header = any(not column.isdecimal() for column in requested.values())
    return ColumnLayout(separator, columns, word, tag, number if has_header else 0)


def _position(column: str, cells: Sequence[str], columns: int, path: Path) -> int:
    names = [cell.strip() for cell in cells]
    if not column.isdecimal() and column in names:
        return names.index(column)
    if column.isdecimal() and len(column) < 10 and 1 <= int(column) <= columns:
        return int(column) - 1
    raise UsageError(
        f"--column: {path} has no column {column!r}; its first row is {', '.join(names)}: give a number from 1 to "
        f"{columns}, or a name in this row"
    )
