"""Progress on a terminal: log lines go above the bar, and everything fits into 80 columns."""

import io

import pytest
from rich.console import Console

from biosqueeze import progress


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """The text sent to a terminal of 80 columns."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=80, color_system=None, legacy_windows=False)

    def shown() -> Console:
        return progress._state.bar.console if progress._state.bar else console

    monkeypatch.setattr(progress, "_console", shown)
    monkeypatch.setattr(progress._state, "level", progress.Level.NORMAL)
    return written


def test_bar_fits_into_80_columns(terminal: io.StringIO) -> None:
    with progress.track("fine-tune", 30_000, done=12_345) as bar:
        bar.advance(1, loss=0.000123456, speed="16,506 tokens/s")
    last = terminal.getvalue().splitlines()[-2]  # the cursor comes back on the line after
    assert "12346/30000" in last
    assert "loss 0.0001235  16,506 tokens/s" in last
    assert "…" not in last


def test_log_lines_go_above_the_bar(terminal: io.StringIO) -> None:
    with progress.track("work", 3) as bar:
        assert progress._state.bar is not None
        bar.advance()
        progress.note("step 1: well")
    assert progress._state.bar is None
    before, after = terminal.getvalue().split("step 1: well")
    assert "\x1b[2K" in before[-20:]  # the line of the bar is cleared first
    assert "work" in after


def test_unknown_total_shows_a_count(terminal: io.StringIO) -> None:
    with progress.track("read") as bar:
        bar.advance(1234)
    assert "read 1,234" in terminal.getvalue()
    assert "?" not in terminal.getvalue().replace("\x1b[?25", "")


def test_numbers_are_not_wrapped(terminal: io.StringIO) -> None:
    rows = [["a/long/path/to/a/checkpoint" * 3, *(["1,234,567"] * 5)]]
    progress.table("", ["checkpoint", *"abcde"], rows)
    assert terminal.getvalue().count("1,234,567") == 5


def test_narrow_terminal_keeps_every_column(terminal: io.StringIO) -> None:
    progress.table("", ["checkpoint", *"abcdefgh"], [["teacher", *(["1,234,567,890"] * 8)]])
    letters = "".join(terminal.getvalue().split())
    assert all(letter in letters for letter in "checkpoint")
    assert "tea" in letters
