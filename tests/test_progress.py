"""Progress on a terminal: log lines go above the bar, and everything fits into 80 columns."""

import io
from types import SimpleNamespace

import pytest

from biosqueeze import progress
from tests.cli.run import Shell


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """The text sent to a terminal of 80 columns, without colours."""
    written = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=written))  # pytest replaces sys.stderr itself
    for name, value in {"COLUMNS": "80", "TERM": "xterm", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(progress._state, "level", progress.Level.VERBOSE)
    return written


def test_bar_fits_into_80_columns(terminal: Terminal) -> None:
    with progress.track("fine-tune", 30_000, done=12_345) as bar:
        bar.advance(1, loss=0.000123456, speed="16,506 tokens/s")
    last = terminal.getvalue().splitlines()[-2]  # the cursor comes back on the line after
    assert "12346/30000" in last
    assert "loss 0.0001235  16,506 tokens/s" in last
    assert "…" not in last


def test_bar_with_an_upper_bound_fits_too(terminal: Terminal) -> None:
    with progress.track("fine-tune", 30_000, at_most=True) as bar:
        bar.advance(1, loss=0.000123456, speed="16,506 tokens/s")
        bar.set_total(20_000, at_most=True)
        bar.advance(12_345, loss=0.000123456, speed="16,506 tokens/s")
    last = terminal.getvalue().splitlines()[-2]
    assert "12346/20000" in last
    assert "at most loss 0.0001235  16,506 tokens/s" in last
    assert "…" not in last


def test_total_that_is_found_out_is_shown(terminal: Terminal) -> None:
    with progress.track("predict") as bar:
        bar.advance(32, speed="41 records/s")
        assert "32/" not in terminal.getvalue()
        bar.set_total(35_000_000)
        bar.advance(32, speed="41 records/s")
    assert "64/35000000" in terminal.getvalue().splitlines()[-2]


def test_time_left_counts_from_where_work_went_on(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    clock = 0.0
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock))
    bar = progress.ProgressBar("fine-tune", 3_000, done=2_000, at_most=True, _started=0.0, _last_line=0.0)
    clock = 400.0
    bar.advance(10)
    bar.set_total(2_110)
    clock = 720.0
    bar.advance(10)
    assert "fine-tune: 2010/3000, at most 11 h 0 min left" in terminal.getvalue()
    assert "fine-tune: 2020/2110, 54 min left" in terminal.getvalue()


def test_tables_need_no_unicode(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1", errors="backslashreplace")
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream))
    monkeypatch.setattr(progress._state, "level", progress.Level.NORMAL)
    progress.table("", ("name", "size"), [("x" * 200, 1)] * 5)
    stream.seek(0)
    lines = stream.read().splitlines()
    assert "\\" not in "".join(lines) and "~" in lines[2] and max(map(len, lines)) <= 160
    assert set(lines[1].strip()) == {"-"}


@pytest.mark.parametrize(("name", "value", "is_terminal"), [("TERM", "dumb", True), ("FORCE_COLOR", "1", False)])
def test_lines_are_printed_where_no_bar_can_be(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, name: str, value: str, is_terminal: bool
) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(terminal, "isatty", lambda: is_terminal)
    monkeypatch.setattr(progress, "LOG_EVERY_SECONDS", -1.0)
    with progress.track("work", 5) as bar:
        bar.advance()
    assert "work: 1/5" in terminal.getvalue() and "\x1b[2K" not in terminal.getvalue()


def test_log_lines_go_above_the_bar(terminal: Terminal) -> None:
    with progress.track("work", 3) as bar:
        assert progress._state.bar is not None
        bar.advance()
        progress.note("step 1: well")
    assert progress._state.bar is None
    before, after = terminal.getvalue().split("step 1: well")
    assert "\x1b[2K" in before[-20:]  # the line of the bar is cleared first
    assert "work" in after


def test_unknown_total_shows_a_count(terminal: Terminal) -> None:
    with progress.track("read") as bar:
        bar.advance(1234)
    assert "read 1,234" in terminal.getvalue()
    assert "?" not in terminal.getvalue().replace("\x1b[?25", "")


def test_table_is_as_wide_as_the_terminal(terminal: Terminal) -> None:
    columns = ["checkpoint", *(f"column {letter}" for letter in "abcdefgh")]
    progress.table("title", columns, [["teacher", *["1,234,567"] * 8]] * 5)
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= 80 + len("\x1b[1m\x1b[0m")
    assert terminal.getvalue().count("1,234,567") == 40


def test_log_has_a_wide_table(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    progress.table("", ["checkpoint", *"abcdefgh"], [["teacher", *["1,234,567"] * 8]] * 5)
    assert max(map(len, terminal.getvalue().splitlines())) == 109


@pytest.mark.parametrize("name", ["model[v2]", "[/red]", "[bold]x[/bold]", ":warning:", "a\\[b]"])
def test_names_are_no_markup(terminal: Terminal, name: str) -> None:
    progress.note(f"note {name}")
    progress.detail(f"detail {name}")
    progress.warn(f"warn {name}")
    progress.table(f"title {name}", [f"column {name}"], [[f"cell {name}"]])
    with progress.track(f"bar {name}", 2) as bar:
        bar.advance(speed=f"fact {name}")
    for place in ("note", "detail", "warn", "title", "column", "cell", "bar", "fact"):
        assert f"{place} {name}" in terminal.getvalue()


def test_control_characters_are_spelled_out(terminal: Terminal) -> None:
    name = "a\x1b[31mb\rc\x07\x9b\u202e"
    progress.note(f"note {name}\nmore")
    progress.table(name, [name], [[name]])
    shown = r"a\x1b[31mb\rc\x07\x9b\u202e"
    assert terminal.getvalue().count(shown) == 4
    assert "\x1b[31m" not in terminal.getvalue()
    assert not set("\r\x07\x9b\u202e") & set(terminal.getvalue())


def test_a_long_message_keeps_its_cause_and_its_advice() -> None:
    message = f"error: the option {'x' * 10_000} is unknown; see --help"
    shown = progress.plain_message(message)
    assert shown.startswith("error: the option xxx") and shown.endswith("xxx is unknown; see --help")
    assert "characters left out" in shown
    assert len(shown) < 2_000
    assert progress.plain_message(message[:1_900]) == message[:1_900]


def test_a_long_value_is_not_printed_whole(shell: Shell) -> None:
    said = shell("shrink", "x" * 10_000, "--layers", "2")
    assert said.code in (1, 2)
    assert len(said.err) < 2_500
