"""Markdown of text that may be hostile, and the generated blocks of a card, which are replaced as a whole."""

import re
from collections.abc import Sequence

from biosqueeze.progress import plain_text

_MARKUP = re.compile(r"[\\`*\[\]<>|&~#]|(?<!\w)_|_(?!\w)")
_FENCE = re.compile("`{3,}")


def escaped(text: str) -> str:
    """Return text as one line of Markdown that shows it, with nothing in it read as Markdown or HTML."""
    return _MARKUP.sub(lambda match: f"\\{match[0]}", plain_text(" ".join(text.split())))


def fenced(text: str, language: str = "") -> str:
    """Return a code block; its fence is longer than any in the text."""
    shown = plain_text(text)
    longest = max((len(run) for run in _FENCE.findall(shown)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}"


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table whose cells are text."""
    lines = [columns, ["---"] * len(columns), *([escaped(str(cell)) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def html_block(name: str, content: str) -> str:
    """Return a generated block of the text."""
    return _block(f"<!-- biosqueeze: {name} -->", content, f"<!-- /biosqueeze: {name} -->")


def results_block(content: str) -> str:
    """Return the generated block of the front matter: the results."""
    return _block("# biosqueeze: results", content, "# /biosqueeze: results")


def replaced(text: str, block: str) -> str:
    """Return a text with a new block in place of the former one; unchanged where the text has no such block."""
    first, *_, last = block.splitlines()
    lines = text.splitlines(keepends=True)
    marks = [line.strip() for line in lines]
    if marks.count(first) != 1 or marks.count(last) != 1 or marks.index(first) > marks.index(last):
        return text
    return "".join([*lines[: marks.index(first)], f"{block}\n", *lines[marks.index(last) + 1 :]])


def _block(first: str, content: str, last: str) -> str:
    return "\n".join(filter(None, (first, content, last)))
