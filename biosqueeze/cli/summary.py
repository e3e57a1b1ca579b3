"""Print the summary of a stage on standard error."""

import shlex

from biosqueeze.options import Summary
from biosqueeze.progress import note


def print_summary(summary: Summary | None, seconds: float, *, with_next: bool = True) -> None:
    """Print two or three lines, unless --quiet is given: the result; machine, size and time; the next command."""
    if summary is None:
        return
    if summary.result:
        note(summary.result)
    note("; ".join(filter(None, [summary.machine, summary.size, f"took {duration(seconds)}"])))
    if with_next and summary.next_words:
        note(f"next: {shlex.join(['biosqueeze', *summary.next_words])}")


def duration(seconds: float) -> str:
    """Return a time as one would say it: 0.4 s, 12 s, 3 min 12 s, 2 h 5 min."""
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
