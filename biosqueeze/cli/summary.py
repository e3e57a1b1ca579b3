"""Print the summary of a stage on standard error."""

import shlex

from biosqueeze.options import Summary
from biosqueeze.progress import duration, note


def print_summary(summary: Summary | None, seconds: float, *, with_next: bool = True) -> None:
    """Print two or three lines, unless --quiet is given: the result; machine, size and time; the next command."""
    if summary is None:
        return
    if summary.result:
        note(summary.result)
    note("; ".join(filter(None, [summary.machine, summary.size, f"took {duration(seconds)}"])))
    if with_next and summary.next_words:
        note(f"next: {shlex.join(['biosqueeze', *summary.next_words])}")
