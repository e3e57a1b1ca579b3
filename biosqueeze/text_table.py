"""Tables as text: Markdown, CSV, JSON rows, or fitted into the width of a terminal.

No number is broken, no name is stacked letter by letter, no column is lost: a table that is too wide gets, in this
order, headings on several lines, rows as columns (where there are few rows), names shortened in the middle, and at
last several parts below each other, each with the first columns again.
"""

import csv
import io
import itertools
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

_GAP = 2  # between the columns of a table that has been fitted
_WIDE_GAP = 3  # where the whole table fits as it is, with a margin of 2 before it
_LEAST = 16  # characters that are left of a shortened name
_LEAST_KEY = 24  # of a name that says what a row is about
_LEAST_PROSE = 24  # width of a column of sentences
_LEAST_TITLE = 72
_SHORTEST = 3  # characters of a name on a very narrow terminal
_FEW_ROWS = 4
_ELLIPSIS, _RULE = "…", "─"
ASCII: Mapping[int, str] = {ord(_ELLIPSIS): "~", ord(_RULE): "-"}
"""What is written in place of the characters of tables that a stream cannot encode, of the same width."""


@dataclass(frozen=True)
class TextTable:
    """A table of texts."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    keys: int = 1
    """The first columns, that say what a row is about."""
    right_aligned: bool = False
    """Whether all columns but the first are, with words too."""

    def mapped(self, function: Callable[[str], str]) -> "TextTable":
        """Return the table with a function applied to all its texts."""
        rows = tuple(tuple(map(function, row)) for row in self.rows)
        return replace(self, title=function(self.title), columns=tuple(map(function, self.columns)), rows=rows)

    def transposed(self) -> "TextTable":
        """Return the table with a column for each row."""
        heading, *names = (line[0] for line in (self.columns, *self.rows))
        others = zip(*(line[1:] for line in (self.columns, *self.rows)), strict=True)
        return TextTable(self.title, (heading, *names), tuple(others), right_aligned=len(names) > 1)

    def part(self, columns: Sequence[int], *, first: bool) -> "TextTable":
        """Return some columns; only the first part has the title."""
        heads, *rows = (tuple(line[index] for index in columns) for line in (self.columns, *self.rows))
        return replace(self, title=self.title if first else "", columns=heads, rows=tuple(rows))


@dataclass(frozen=True)
class Line:
    """A line of a drawn table."""

    kind: Literal["title", "heading", "rule", "row"]
    text: str


def draw(table: TextTable, width: int) -> Iterator[Line]:
    """Yield the lines of a table, none of which is wider than `width`, unless numbers that say what a row is about are.

    Where not even a column beside the keys fits, names and words are shortened further.
    """
    layout = _Layout(table)
    if layout.natural <= width:
        yield from layout.lines(layout.whole, _WIDE_GAP, width, margin=2)
        return
    for shorten in (False, True):
        for candidate in map(_Layout, _candidates(table)):
            if sum(candidate.least(shorten=shorten)) + candidate.gaps <= width:
                yield from candidate.lines(candidate.widths(width, shorten=shorten), _GAP, width)
                return
    longest = next((limit for limit in range(_LEAST_KEY, _SHORTEST, -1) if _has_room(table, limit, width)), _SHORTEST)
    for number, columns in enumerate(_parts(_Layout(table, longest), width)):
        if number:
            yield Line("row", "")
        part = _Layout(table.part(columns, first=number == 0), longest)
        yield from part.lines(part.widths(width, shorten=True), _GAP, width)


def _candidates(table: TextTable) -> list[TextTable]:
    """Return the table and, where it has few rows, its transposed form; of a single row that form comes first."""
    if not 0 < len(table.rows) <= min(_FEW_ROWS, len(table.columns) - 2):
        return [table]
    both = [table, table.transposed()]
    return both if len(table.rows) > 1 else both[::-1]


def _has_room(table: TextTable, longest: int, width: int) -> bool:
    """Return whether the widest column fits beside the keys, if names are shortened to `longest` characters."""
    least = _Layout(table, longest).least(shorten=True)
    return sum(least[: table.keys]) + _GAP * table.keys + max(least[table.keys :], default=0) <= width


def _parts(layout: "_Layout", width: int) -> list[list[int]]:
    """Return the columns of each part: the keys, and as many of the others as fit."""
    least = layout.least(shorten=True)
    keys = list(range(layout.table.keys))
    start = sum(least[key] + _GAP for key in keys)
    parts: list[list[int]] = []
    room = 0
    for index in range(len(keys), len(least)):
        if not parts or least[index] > room:
            parts.append([*keys])
            room = width - start
        parts[-1].append(index)
        room -= least[index] + _GAP
    return parts


class _Layout:
    """The widths of a table's columns.

    Args:
        table: of texts.
        longest: how many characters of a name, or width of a column of sentences, are needed at most.
    """

    def __init__(self, table: TextTable, longest: int = _LEAST_KEY) -> None:
        self.table = table
        self.longest = longest
        self.cells = [list(column) for column in zip(table.columns, *table.rows, strict=True)]
        self.numeric = [all(map(_looks_numeric, column[1:])) for column in self.cells]
        self.whole = [max(map(_width, column)) for column in self.cells]
        self.right = [number or (table.right_aligned and index > 0) for index, number in enumerate(self.numeric)]
        self.gaps = _GAP * (len(self.cells) - 1)

    @property
    def natural(self) -> int:
        """Width of the table as it is."""
        return sum(self.whole) + _WIDE_GAP * len(self.whole) + 1

    def least(self, *, shorten: bool) -> list[int]:
        """Return the least width of each column; with `shorten`, names are shortened."""
        return [min(whole, self._least(index, shorten=shorten)) for index, whole in enumerate(self.whole)]

    def _least(self, index: int, *, shorten: bool) -> int:
        cells = self.cells[index]
        body = cells[1:]
        name = min(_LEAST_KEY if index < self.table.keys else _LEAST, self.longest)
        heading = _width(_longest_word(cells[0]))
        numbers = max((_width(cell) for cell in body if _looks_numeric(cell)), default=0)  # they are never shortened
        if self.numeric[index]:
            words = 0
        elif any(map(_is_prose, body)):
            words = min(_LEAST_PROSE, self.longest)
        else:
            words = name if shorten else max(map(_width, body), default=0)
        return max(min(heading, _LEAST, self.longest) if shorten else heading, numbers, words)

    def widths(self, width: int, *, shorten: bool) -> list[int]:
        """Return the widths of the columns of a table that is too wide: the narrowest ones grow first."""
        widths = self.least(shorten=shorten)
        for _ in range(width - self.gaps - sum(widths)):
            growing = [index for index, whole in enumerate(self.whole) if widths[index] < whole]
            if not growing:
                break
            widths[min(growing, key=lambda index: (self.numeric[index], widths[index]))] += 1
        return widths

    def lines(self, widths: Sequence[int], gap: int, width: int, *, margin: int = 0) -> Iterator[Line]:
        """Yield the title, in `width`, and headings, a rule and the rows."""
        whole = sum(widths) + gap * (len(widths) - 1) + margin
        if self.table.title:
            title_width = min(width, max(whole, _LEAST_TITLE))
            yield from (Line("title", text) for text in textwrap.wrap(self.table.title, title_width))
        indent = " " * margin
        yield from (Line("heading", indent + text) for text in self._row(self.table.columns, widths, gap))
        yield Line("rule", " " * (margin // 2) + _RULE * whole)
        for row in self.table.rows:
            yield from (Line("row", indent + text) for text in self._row(row, widths, gap))

    def _row(self, cells: Sequence[str], widths: Sequence[int], gap: int) -> Iterator[str]:
        """Yield the lines of one row."""
        wrapped = [_wrapped(cell, width) for cell, width in zip(cells, widths, strict=True)]
        for number in range(max(map(len, wrapped))):
            texts = (lines[number] if number < len(lines) else "" for lines in wrapped)
            padded = map(_padded, texts, widths, self.right)
            yield (" " * gap).join(padded).rstrip()


def _wrapped(text: str, width: int) -> list[str]:
    """Break a text between words; a word that is too long is shortened, a number or name of several words whole."""
    if _width(text) <= width:
        return [text]
    words = " ".join(shortened(word, width) for word in text.split())
    return textwrap.wrap(words, width, break_long_words=False, break_on_hyphens=False) or [""]


def wrapped_lines(text: str, width: int | None) -> Iterator[str]:
    """Yield the lines of a text, broken between words; after a name and its gap, a value stays in its column."""
    for line in text.split("\n"):
        name = re.match(r" *(\S+ {2,})?", line)
        hanging = " " * (name.end() + (0 if name[1] else 2)) if name else ""
        if width is None or _width(line) <= width:
            yield line
        else:
            yield from textwrap.wrap(
                line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
            )


def shortened(text: str, width: int) -> str:
    """Return the text with an ellipsis in its middle if it is wider than `width`."""
    if _width(text) <= width:
        return text
    tail = (width - 1) // 2
    return _first(text, width - 1 - tail) + _ELLIPSIS + _first(text[::-1], tail)[::-1]


def _first(text: str, width: int) -> str:
    """Return as many of the first characters as fit; some take two columns of a terminal."""
    widths = itertools.accumulate(map(_width, text))
    return "".join(character for character, end in zip(text, widths, strict=True) if end <= width)


def _padded(text: str, width: int, right: bool) -> str:
    spaces = " " * (width - _width(text))
    return spaces + text if right else text + spaces


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    from rich.cells import cell_len

    return cell_len(text)


def _longest_word(text: str) -> str:
    return max(text.split(), key=_width, default="")


def _is_prose(text: str) -> bool:
    return text.count(" ") >= 3


def _looks_numeric(cell: str) -> bool:
    """Return whether a cell is a number, with its unit or deviation (12.5x, 8x128, 81.20 ± 0.31), or empty."""
    return re.fullmatch(r"([+-]?\.?\d[\d.,]*\S{0,5}( ± \S+)?|-)?", cell) is not None


def formatted_rows(rows: Sequence[Mapping[str, Any]], form: str) -> str:
    """Return rows with equal keys as text: md (Markdown, rounded numbers), csv, or json (a list of objects)."""
    if form == "json":
        return json.dumps(rows) + "\n"
    columns = list(rows[0]) if rows else []
    if form == "md":
        return markdown(columns, [[_rounded(value) for value in row.values()] for row in rows])
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([columns, *(row.values() for row in rows)])
    return stream.getvalue()


def _rounded(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as Markdown; columns of numbers are aligned to the right."""
    numeric = [all(map(_looks_numeric, cells)) for cells in zip(*rows, strict=True)] or [False] * len(columns)
    marks = ["---:" if number else "---" for number in numeric]
    lines = [map(_markdown_cell, columns), marks, *(map(_markdown_cell, row) for row in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _markdown_cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|")
