"""Column files: a word and its tag on each line, sentences parted by blank lines."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from biosqueeze.data.lines import numbered_lines
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.registry import closest
from biosqueeze.tasks.readers.tagged import SourceSentence

_DOCUMENT = "-DOCSTART-"
_ROLES = ("word", "tag")


@dataclass(frozen=True)
class _ColumnLayout:
    """How the rows of a file are parted, and which column is which."""

    separator: str | None  # None for white space
    columns: int
    word: int  # place, from 0
    tag: int
    header: int = 0  # line of the header, 0 where there is none

    def check(self, cells: Sequence[str], where: str) -> None:
        """A row must have as many columns as the first, a word and a tag."""
        if len(cells) != self.columns:
            lacks = "no tag beside" if len(cells) == 1 else f"{len(cells)} columns at"
            raise SqueezeError(
                f"{where}: {lacks} {cells[0]!r}, where {self.columns} columns were expected ({self}); mend this row"
            )
        if not cells[self.word].strip():
            raise SqueezeError(
                f"{where}: no word before the tag {cells[self.tag]!r}; mend this row, or blank it to end a sentence"
            )

    def __str__(self) -> str:
        if (self.word, self.tag) == (0, self.columns - 1):
            return "word first, tag last"
        return f"word in column {self.word + 1}, tag in column {self.tag + 1}"


def read_columns(path: Path, asked: Mapping[str, str]) -> tuple[list[SourceSentence], str]:
    """Read one file.

    Args:
        path: tabs part the columns, or white space in a file whose first row has no tab. The word stands in the
            first column and its tag in the last, unless `asked` says otherwise. -DOCSTART- lines part documents.
        asked: column of `word` and of `tag`: a number from 1, or a name in the first row, which is a header then.

    Returns:
        the sentences, and what was taken for what.

    Raises:
        SqueezeError: it is empty, not UTF-8 or malformed; the message names file and line.
        UsageError: there is no such column.
    """
    layout: _ColumnLayout | None = None
    sentences: list[SourceSentence] = []
    rows: list[tuple[int, str, str]] = []
    for number, line in _with_end(path):
        if not line.strip() or line.startswith(_DOCUMENT):
            sentences += [_sentence(rows, path)] if rows else []
            rows = []
            continue
        layout = layout or _layout(line, number, asked, path)
        cells = line.split(layout.separator)
        layout.check(cells, f"{path}:{number}")
        if number != layout.header:
            rows.append((number, cells[layout.word], cells[layout.tag].strip()))
    if not sentences:
        raise SqueezeError(f"{path} is empty: it holds no word with a tag; check that it was written in full")
    return sentences, str(layout)


def _with_end(path: Path) -> Iterator[tuple[int, str]]:
    """The lines, and a blank one, so that the last sentence ends as the others do."""
    yield from numbered_lines(path)
    yield 0, ""


def _sentence(rows: Sequence[tuple[int, str, str]], path: Path) -> SourceSentence:
    lines, words, tags = zip(*rows, strict=True)
    return SourceSentence(words, tags, str(path), lines)


def _layout(line: str, number: int, asked: Mapping[str, str], path: Path) -> _ColumnLayout:
    for role in asked:
        if role not in _ROLES:
            raise UsageError(
                f"--column {role}={asked[role]}: {path.name} has no role {role!r}.{closest(role, _ROLES)} "
                f"Roles: {', '.join(_ROLES)}"
            )
    separator = "\t" if "\t" in line else None
    cells = line.split(separator)
    columns = max(2, len(cells))
    word = _place(asked.get("word", "1"), cells, columns, path)
    tag = _place(asked.get("tag", str(columns)), cells, columns, path)
    named = any(not column.isdecimal() for column in asked.values())
    return _ColumnLayout(separator, columns, word, tag, number if named else 0)


def _place(column: str, cells: Sequence[str], columns: int, path: Path) -> int:
    names = [cell.strip() for cell in cells]
    if not column.isdecimal() and column in names:
        return names.index(column)
    if column.isdecimal() and 1 <= int(column) <= columns:
        return int(column) - 1
    raise UsageError(
        f"--column: {path} has no column {column!r}; its first row is {', '.join(names)}: give a number from 1 to "
        f"{columns}, or a name that stands there"
    )
