"""Output files are whole or absent, whoever else writes; devices and pipes are written to and never replaced."""

import gzip
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from biosqueeze.annotation.output import is_standard_output, is_stream, write_output
from biosqueeze.errors import SqueezeError

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's devices")


def write(out, *lines, force=False):
    write_output(out, iter(lines), lambda: 1, force=force)


def test_second_writer_is_refused_and_the_first_is_whole(tmp_path):
    out = tmp_path / "all.jsonl"

    def lines():
        yield "a\n"
        with pytest.raises(SqueezeError, match=r"another biosqueeze is writing .*all\.jsonl right now"):
            write(out, "b\n", force=True)
        yield "c\n"

    write_output(out, lines(), lambda: 1, force=False)
    assert out.read_text() == "a\nc\n"
    assert list(tmp_path.iterdir()) == [out]


def test_file_of_a_killed_writer_is_deleted(tmp_path):
    out = tmp_path / "a[1].jsonl"
    code = (
        "import os, signal, sys; from pathlib import Path; from biosqueeze.annotation.output import write_output\n"
        "def lines():\n    yield 'a\\n'\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_output(Path(sys.argv[1]), lines(), lambda: 1, force=False)"
    )
    subprocess.run([sys.executable, "-c", code, str(out)], check=False)
    assert not out.exists() and len(list(tmp_path.glob("*.partial"))) == 1
    others = [tmp_path / "a[1].jsonl.partial", tmp_path / "a[1].jsonl.notes123.partial"]
    for other in others:
        other.write_text("kept")
    write(out, "b\n")
    assert sorted(tmp_path.iterdir()) == sorted([out, *others])


def test_file_published_meanwhile_is_not_replaced(tmp_path):
    out = tmp_path / "all.jsonl"

    def lines():
        yield "a\n"
        out.write_text("of another program\n")

    with pytest.raises(SqueezeError, match=r"exists already.*all\.jsonl\.partial holds the predictions"):
        write_output(out, lines(), lambda: 1, force=False)
    assert out.read_text() == "of another program\n"
    assert out.with_name("all.jsonl.partial").read_text() == "a\n"
    write(out, "b\n", force=True)
    assert out.read_text() == "b\n"


def test_an_interruption_names_what_is_saved(tmp_path):
    def lines():
        yield "a\n"
        raise KeyboardInterrupt

    with pytest.raises(
        KeyboardInterrupt, match=r"^\S+all\.jsonl\.partial holds the predictions of the first 1 records"
    ):
        write_output(tmp_path / "all.jsonl", lines(), lambda: 1, force=False)
    assert (tmp_path / "all.jsonl.partial").read_text() == "a\n"


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
