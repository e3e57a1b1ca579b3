"""Output files are whole or absent, whoever else writes; devices and pipes are written to and never replaced."""

import gzip
import json
import os
import stat
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import pytest

from biosqueeze.annotation import output
from biosqueeze.annotation.output import growing_file, is_standard_output, is_stream, reserved, write_to_stream
from biosqueeze.annotation.saved import SavedPredictions
from biosqueeze.errors import SqueezeError

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's devices")


def write(out, *lines, force=False, before=()):
    write_all(out, iter(lines), force=force, before=before)


def write_all(out, lines, *, force=False, before=()):
    if is_stream(out):
        write_to_stream(out, lines)
        return
    with reserved(out), growing_file(SavedPredictions(out), {"task": "ner"}, before, force=force) as append:
        for number, text in enumerate(lines):
            append(text, {"records": number + 1})


def test_second_writer_is_refused_and_the_first_is_whole(tmp_path):
    out = tmp_path / "all.jsonl"

    def lines():
        yield "a\n"
        with pytest.raises(SqueezeError, match=r"another biosqueeze is writing .*all\.jsonl right now"):
            write(out, "b\n", force=True)
        yield "c\n"

    write_all(out, lines())
    assert out.read_text() == "a\nc\n"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("name", ["a[1].jsonl", "a.jsonl.gz"])
def test_lines_of_a_killed_writer_are_kept(name, tmp_path):
    out = tmp_path / name
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from tests.annotation.test_output import write_all\n"
        "def lines():\n    yield 'a\\n'\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_all(Path(sys.argv[1]), lines())"
    )
    subprocess.run([sys.executable, "-c", code, str(out)], check=False, cwd=Path(__file__).parents[2])
    saved = SavedPredictions(out)
    assert not out.exists()
    journal = [json.loads(line) for line in saved.journal.read_text().splitlines()]
    assert journal == [{"task": "ner"}, {"records": 1}]
    content = saved.path.read_bytes()
    assert (zlib.decompressobj(31).decompress(content) if name.endswith("gz") else content) == b"a\n"
    write(out, "b\n", before=[("a\n", {"records": 1})])
    written = out.read_bytes()
    assert (gzip.decompress(written) if name.endswith("gz") else written) == b"a\nb\n"
    assert list(tmp_path.iterdir()) == [out]


def test_file_published_meanwhile_is_not_replaced(tmp_path):
    out = tmp_path / "all.jsonl"

    def lines():
        yield "a\n"
        out.write_text("of another program\n")

    with pytest.raises(SqueezeError, match="exists already"):
        write_all(out, lines())
    assert out.read_text() == "of another program\n"
    assert out.with_name("all.jsonl.partial").read_text() == "a\n"
    write(out, "b\n", force=True)
    assert out.read_text() == "b\n"
    assert list(tmp_path.iterdir()) == [out]


def test_what_was_only_begun_is_not_in_the_way(tmp_path):
    saved = SavedPredictions(tmp_path / "all.jsonl.gz")
    saved.path.write_bytes(gzip.compress(b"")[:10])
    assert saved.continues(resume="auto", force=False)  # without a journal it may be anything
    saved.journal.write_text('{"task": "ner"}\n')
    assert not saved.continues(resume="auto", force=False)
    assert not saved.continues(resume=False, force=False)
    with pytest.raises(SqueezeError, match=r"there is no .* to continue"):
        saved.continues(resume=True, force=False)


def test_starting_over_never_mixes_two_runs(tmp_path, monkeypatch):
    out = tmp_path / "all.jsonl"
    saved = SavedPredictions(out)
    saved.path.write_text("of another model\n")

    def killed(*_names):
        raise SystemExit

    monkeypatch.setattr(output, "rename", killed)
    with pytest.raises(SystemExit):
        write(out, "a\n", force=True)
    assert saved.journal.exists() and not saved.path.exists()


def test_former_entries_stay_in_the_journal(tmp_path):
    def lines():
        raise SqueezeError("bad")
        yield

    saved = SavedPredictions(tmp_path / "all.jsonl")
    with pytest.raises(SqueezeError, match="bad"):
        write_all(saved.out, lines(), before=[("a\n", {"records": 1})])
    assert saved.path.read_text() == "a\n"
    assert [json.loads(line) for line in saved.journal.read_text().splitlines()] == [{"task": "ner"}, {"records": 1}]


def test_nothing_is_left_where_nothing_was_predicted(tmp_path):
    def lines():
        raise SqueezeError("bad")
        yield

    with pytest.raises(SqueezeError, match="bad"):
        write_all(tmp_path / "all.jsonl", lines())
    assert not list(tmp_path.iterdir())


def test_former_lines_stay_until_all_are_copied(tmp_path):
    out = tmp_path / "all.jsonl"
    saved = SavedPredictions(out)
    saved.path.write_text("a\nb\n")

    def before():
        yield "a\n", {"records": 1}
        raise SqueezeError("another input")

    with pytest.raises(SqueezeError, match="another input"):
        write(out, "c\n", before=before())
    assert saved.path.read_text() == "a\nb\n"
    assert list(tmp_path.iterdir()) == [saved.path]


@pytest.mark.parametrize("name", ["pipe", "pipe.gz"])
def test_named_pipe_is_written_to(name, tmp_path):
    pipe, received = tmp_path / name, []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    write(pipe, "a\n", "b\n")
    reader.join()
    (content,) = received
    assert (gzip.decompress(content) if name.endswith(".gz") else content) == b"a\nb\n"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@linux
def test_full_device_is_an_error_and_stays_a_device():
    with pytest.raises(SqueezeError, match="/dev/full is full"):
        write(Path("/dev/full"), "a\n", force=True)
    write(Path("/dev/null"), "a\n")
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode) and stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_link_to_a_device_stays_a_link(tmp_path):
    link = tmp_path / "out.jsonl"
    link.symlink_to("/dev/null")
    write(link, "a\n", force=True)
    assert link.is_symlink() and list(tmp_path.iterdir()) == [link]


def test_names_of_standard_output():
    assert is_standard_output(Path("/dev/stdout")) and is_standard_output(Path("/dev/fd/1"))
    assert is_stream(Path("/dev/stderr")) and is_stream(Path("/dev/fd/2"))
    assert not is_standard_output(Path("/dev/stderr")) and not is_stream(Path("there.jsonl"))
