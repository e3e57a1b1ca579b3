"""HTML, escaped by construction: text is escaped wherever it is put in, and only `Markup` is taken as it stands."""

from collections.abc import Iterable, Sequence
from html import escape


class Markup(str):
    """HTML that needs no escaping any more."""

    __slots__ = ()


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """One element; `class_="wide"` is the attribute class, and an attribute that is None is left out."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{written}>{joined(children)}</{tag}>")


def joined(children: Iterable[object]) -> Markup:
    """Elements and texts one after the other."""
    return Markup("".join(child if isinstance(child, Markup) else escape(str(child)) for child in children))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], texts: int = 1) -> Markup:
    """A table whose first `texts` columns are words, to the left, and the others numbers, to the right."""

    def line(tag: str, cells: Sequence[object]) -> Markup:
        kinds = (None if index < texts else "number" for index in range(len(cells)))
        return element("tr", *(element(tag, cell, class_=kind) for cell, kind in zip(cells, kinds, strict=True)))

    head = (element("thead", line("th", columns)),) if columns else ()
    body = element("tbody", *(line("td", row) for row in rows))
    return element("div", element("table", *head, body), class_="scroll")


def number(value: float | None, digits: int = 0) -> str:
    """A number with thousands separated, or a dash where there is none."""
    return "–" if value is None else f"{value:,.{digits}f}"  # noqa: RUF001 - an en dash is the mark of an empty cell


def heading(score: str) -> str:
    """What a score is called in print."""
    return "F1" if score == "f1" else score
