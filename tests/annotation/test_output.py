"""Output files are whole or absent, whoever else writes; devices and pipes are written to and never replaced."""

import gzip
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from biosqueeze.annotation.output import is_standard_output, is_stream, reserved, write_file, write_to_stream
from biosqueeze.annotation.saved import SavedPredictions
from biosqueeze.errors import SqueezeError

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's devices")


def write(out, *lines, force=False, before=()):
    write_all(out, iter(lines), force=force, before=before)


def write_all(out, lines, *, force=False, before=()):
    if is_stream(out):
        write_to_stream(out, lines)
        return
    with reserved(out):
        write_file(SavedPredictions(out), {"task": "ner"}, before, lines, force=force)


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


def test_lines_of_a_killed_writer_are_kept(tmp_path):
    out = tmp_path / "a[1].jsonl"
    code = (
        "import os, signal, sys; from pathlib import Path; from biosqueeze.annotation.output import *\n"
        "from biosqueeze.annotation.saved import SavedPredictions\n"
        "def lines():\n    yield 'a\\n'\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "with reserved(Path(sys.argv[1])):\n"
        "    write_file(SavedPredictions(Path(sys.argv[1])), {'task': 'ner'}, (), lines(), force=False)"
    )
    subprocess.run([sys.executable, "-c", code, str(out)], check=False)
    saved = SavedPredictions(out)
    assert not out.exists()
    assert (saved.path.read_text(), json.loads(saved.request_file.read_text())) == ("a\n", {"task": "ner"})
    write(out, "b\n", before=["a\n"])
    assert out.read_text() == "a\nb\n"
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


def test_former_lines_stay_until_all_are_copied(tmp_path):
    out = tmp_path / "all.jsonl"
    saved = SavedPredictions(out)
    saved.path.write_text("a\nb\n")

    def before():
        yield "a\n"
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
