"""Numbers as the page prints them."""


def format_number(value: float | None, digits: int = 0) -> str:
    """Return a number with its thousands separated, or a dash for None."""
    return "–" if value is None else f"{value:,.{digits}f}"  # noqa: RUF001 - an en dash marks an empty cell
