"""Predictions as a stream: records come and go one by one, through pipes, files and devices."""

import gzip
import json
import os
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from biosqueeze.annotation.stream import LARGEST_CHUNK, chunk_records
from biosqueeze.cli.streams import write_lines
from biosqueeze.data.records.input_record import InputRecord
from biosqueeze.stages import predict
from tests.stages.predicting import options_of
from tests.standard_input import pipe_in


def test_first_predictions_before_the_input_ends(ner, records, monkeypatch):
    read, write = os.pipe()
    seen = threading.Event()
    lines = records.read_bytes().splitlines(keepends=True)

    def feed():
        with open(write, "wb", buffering=0) as stream:  # noqa: PTH123
            stream.write(b"".join(lines[:4]))
            outcome.append(seen.wait(60))
            stream.write(b"".join(lines[4:]))

    outcome: list[bool] = []
    feeder = threading.Thread(target=feed)
    feeder.start()
    with open(read) as stdin:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdin", stdin)
        predictions = predict.run(options_of(ner, "-", batch_size=4)).lines
        assert next(predictions).count("\n") == 4
        seen.set()
        rest = "".join(predictions)
    feeder.join()
    assert outcome == [True]
    assert rest.count("\n") == len(lines) - 4


def _records(count, **values):
    return (InputRecord(f"r:{number}", values) for number in range(count))


@pytest.mark.parametrize("values", [{"text": "x" * 300_000}, {"id": 1, "tokens": ["x" * 100_000] * 3}])
def test_chunks_of_long_records_are_small(values):
    assert [len(chunk) for chunk in chunk_records(_records(9, **values), 32)] == [4, 4, 1]


def test_only_one_chunk_is_in_memory():
    taken = []
    source = (taken.append(record) or record for record in _records(10_000))
    sizes = []
    for chunk in chunk_records(source, 100):
        sizes.append(len(chunk))
        assert len(taken) == sum(sizes)
    assert sizes[:5] == [100, 200, 400, 800, 1024]
    assert max(sizes) == LARGEST_CHUNK and sum(sizes) == 10_000


def test_chunks_do_not_grow_while_records_arrive_slowly(monkeypatch):
    clock = count(step=0.4)  # seconds from one reading of the clock to the next
    monkeypatch.setattr("biosqueeze.annotation.stream.time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert [len(chunk) for chunk in chunk_records(_records(14), 2)] == [2, 4, 8]
    clock = count(step=0.6)
    assert [len(chunk) for chunk in chunk_records(_records(6), 2)] == [2, 2, 2]


def test_single_records_do_not_wait_for_others():
    taken = []
    source = (taken.append(record) or record for record in _records(4))
    assert [len(taken) for _ in chunk_records(source, 1)] == [1, 2, 3, 4]


def test_closed_output_pipe_stops_the_generator():
    ended = []

    def lines():
        try:
            while True:
                yield "x" * 100_000
        finally:
            ended.append(True)

    read, write = os.pipe()
    os.close(read)
    with pytest.raises(BrokenPipeError):
        write_lines(lines(), write)
    os.close(write)
    assert ended == [True]


@pytest.mark.slow
def test_in_a_shell_pipe(ner, records):
    code = f"cat {records} | {sys.executable} -m biosqueeze predict {ner} - --batch-size 2 | head -n 1"
    done = subprocess.run(code, shell=True, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["id"] == "d0"
    assert "Traceback" not in done.stderr and "bug" not in done.stderr and "Exception" not in done.stderr


def test_standard_output_has_predictions_only(ner, records, shell, monkeypatch):
    pipe_in(monkeypatch, gzip.compress(records.read_bytes()))
    result = shell("predict", ner, "-")
    assert result.code == 0
    assert [json.loads(line)["id"] for line in result.out.splitlines()] == [f"d{n}" for n in range(70)]
    assert "standard input is read as JSON lines" in result.err
    assert "70 records, " in result.err and "records/s" in result.err


def test_output_file_is_complete_or_absent(ner, records, shell, tmp_path):
    result = shell("predict", ner, records, "--out", "made/all.jsonl.gz")
    assert result.path == "made/all.jsonl.gz"
    packed = (tmp_path / result.path).read_bytes()
    assert len(gzip.decompress(packed).splitlines()) == 70
    assert list((tmp_path / "made").iterdir()) == [tmp_path / result.path]
    again = shell("predict", ner, records, "--out", result.path)
    assert again.code == 1 and "--force" in again.err
    facts = json.loads(shell("predict", ner, records, "--out", result.path, "--force", "--json").out)
    assert (facts["path"], facts["records"], facts["bad"], facts["task"]) == (result.path, 70, 0, "ner")
    assert (tmp_path / result.path).read_bytes() == packed


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's devices")
def test_output_to_a_device(ner, records, shell, tmp_path):
    assert len(shell("predict", ner, records, "--out", "/dev/stdout").out.splitlines()) == 70
    assert shell("predict", ner, records, "--out", "/dev/null").path == "/dev/null"
    full = shell("predict", ner, records, "--out", "/dev/full", "--force")
    assert full.code == 1 and "error: the disk that holds /dev/full is full" in full.err
    assert Path("/dev/full").is_char_device() and list(tmp_path.glob("*.partial")) == []


def test_checkpoint_from_stdin(ner, records, shell):
    assert len(shell("predict -", records, stdin=f"{ner}\n").out.splitlines()) == 70


def test_plan_reads_no_record(ner, shell, monkeypatch):
    pipe_in(monkeypatch, b"x\n")
    result = shell("predict", ner, "-", "--dry-run", "--out", "there.jsonl")
    assert (result.code, result.out) == (0, "")
    assert "there.jsonl" in result.err and "predict ner" in result.err
    assert sys.stdin.read() == "x\n"
