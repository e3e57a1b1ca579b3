"""`predict --resume`: an interrupted run loses nothing, and its predictions are continued by the same request alone."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from biosqueeze.annotation.saved import SavedPredictions, matched
from biosqueeze.data.records.input_record import InputRecord
from biosqueeze.errors import SqueezeError
from biosqueeze.files import content_hash
from tests.cli.run import Shell
from tests.stages.predicting import write_records
from tests.standard_input import pipe_in

RECORDS = [{"id": f"r{number}", "text": f"car ci hepti {number}"} for number in range(9)]


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return write_records(tmp_path / "records.jsonl", *RECORDS)


def interrupt(shell: Shell, pico_ner: Path, records: Path, out: Path, whole: bytes, *words: str) -> SavedPredictions:
    """Leave what a run leaves that is killed: the beginning of its output."""
    broken = write_records(records.with_name("broken.jsonl"), *RECORDS[:1], "{")
    content = records.read_bytes()
    records.write_bytes(broken.read_bytes())
    failed = shell("predict", pico_ner, records, "--out", out, *words)
    records.write_bytes(content)
    saved = SavedPredictions(out)
    assert f"{saved.path} holds the predictions of the first 1 records; --resume continues" in failed.err
    request = json.loads(saved.request_file.read_text())
    saved.path.write_bytes(whole)
    again = shell("predict", pico_ner, records, "--out", out, *words)
    assert again.code == 1
    assert f"{saved.path} holds the predictions of an interrupted run; continue it with --resume" in again.err
    saved.request_file.write_text(json.dumps({**request, "input": content_hash(records)}))
    return saved


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.pubtator"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.999])
def test_the_rest_is_predicted(
    name: str, share: float, pico_ner: Path, records: Path, tmp_path: Path, shell: Shell
) -> None:
    words = ("--format", "pubtator") if name.endswith("pubtator") else ()
    clean = tmp_path / f"clean-{name}"
    assert shell("predict", pico_ner, records, "--out", clean, *words).code == 0
    content = clean.read_bytes()
    out = tmp_path / name
    saved = interrupt(shell, pico_ner, records, out, content[: int(len(content) * share)], *words)
    count = len(list(saved.read(is_pubtator=bool(words))))
    done = shell("predict", pico_ner, records, "--out", out, "--resume", *words)
    assert done.code == 0, done.err
    assert out.read_bytes() == content
    assert "9 records, " + (f"{count} of them by the interrupted run, " if count else "") in done.err
    assert count > 0 or share < 0.5 or name.endswith(".gz")
    assert not list(tmp_path.glob("*.partial*")) and not list(tmp_path.glob(".*.lock"))


def test_a_killed_run_goes_on(pico_ner: Path, tmp_path: Path, shell: Shell) -> None:
    records = write_records(tmp_path / "many.jsonl", *[{"id": n, "text": "car ci hepti " * 8} for n in range(1500)])
    out, saved = tmp_path / "out.jsonl", SavedPredictions(tmp_path / "out.jsonl")
    words = ["predict", str(pico_ner), str(records), "--out", str(out), "--batch-size", "4"]
    with subprocess.Popen([sys.executable, "-m", "biosqueeze", *words], stderr=subprocess.DEVNULL) as running:
        while running.poll() is None and not (saved.path.exists() and saved.path.stat().st_size > 1000):
            time.sleep(0.01)
        os.kill(running.pid, signal.SIGKILL)
    assert saved.path.exists() and not out.exists()
    before = len(saved.path.read_text().splitlines())
    done = shell(*words, "--resume", "auto")
    assert done.code == 0, done.err
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == list(range(1500))
    assert 0 < before < 1500
    assert "of them by the interrupted run" in done.err


def test_another_request_is_refused(
    pico_ner: Path, pico_root: Path, records: Path, tmp_path: Path, shell: Shell
) -> None:
    out = tmp_path / "out.jsonl"
    saved = interrupt(shell, pico_ner, records, out, b'{"id": "r0", "entities": []}\n')
    request = json.loads(saved.request_file.read_text())
    resumed = ("predict", pico_ner, records, "--out", out, "--resume")
    assert "other values of keep_fields; repeat" in shell(*resumed, "--keep-fields").err
    assert "other values of max_length; repeat" in shell(*resumed, "--max-length", "8").err
    assert "other values of backend" in shell(*resumed, "--backend", "torch:bf16").err
    records.write_text(records.read_text().replace("hepti", "neu"))
    assert "other values of input" in shell(*resumed).err
    saved.request_file.write_text(json.dumps(request | {"input": content_hash(records)}))
    saved.path.write_text('{"id": "r1", "entities": []}\n')
    refused = shell(*resumed).err
    assert "prediction 1 has the id 'r1', and" in refused and "--resume continues" not in refused
    saved.path.write_text('{"id": "r0", "entities": []}\n')
    saved.request_file.unlink()
    assert f"{saved.request_file} is missing" in shell(*resumed).err
    assert saved.path.read_text() == '{"id": "r0", "entities": []}\n'
    over = shell("predict", pico_ner, records, "--out", out, "--force")
    assert over.code == 0 and len(out.read_text().splitlines()) == 9


def test_nothing_to_continue(pico_ner: Path, records: Path, tmp_path: Path, shell: Shell) -> None:
    words = ("predict", pico_ner, records, "--out", tmp_path / "out.jsonl", "--resume")
    for dry in ((), ("--dry-run",)):
        refused = shell(*words, *dry)
        assert (refused.code, "there is no " in refused.err) == (1, True)
    assert shell(*words, "auto").code == 0
    assert "exists already" in shell(*words, "auto").err
    assert shell("predict", pico_ner, records, "--resume").code == 2


def test_a_bad_record_is_skipped_when_resumed(pico_ner: Path, tmp_path: Path, shell: Shell) -> None:
    records = write_records(tmp_path / "records.jsonl", *RECORDS[:2], {"id": "bad"}, *RECORDS[2:])
    words = ("predict", pico_ner, records, "--out", tmp_path / "out.jsonl")
    assert "of the first 2 records; --resume continues" in shell(*words).err
    done = shell(*words, "--resume", "--skip-bad")
    assert done.code == 0, done.err
    assert "10 records, 2 of them by the interrupted run, 1 of them bad" in done.err
    ids = [json.loads(line)["id"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert ids == ["r0", "r1", "bad", *[record["id"] for record in RECORDS[2:]]]


def test_standard_input_is_read_again(
    pico_ner: Path, tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "".join(json.dumps(record) + "\n" for record in RECORDS).encode()
    words = ("predict", pico_ner, "-", "--out", tmp_path / "out.jsonl")
    pipe_in(monkeypatch, lines[:60])
    assert shell(*words).code == 1
    pipe_in(monkeypatch, lines)
    assert shell(*words, "--resume").code == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 9


@pytest.mark.parametrize(
    ("ids", "says"),
    [([1, 3], "prediction 2 has the id 2, and file:1 has the id 3"), ([1], "the input has no such record")],
)
def test_other_records_are_refused(ids: list[int], says: str, tmp_path: Path) -> None:
    saved = SavedPredictions(tmp_path / "out.jsonl.gz")
    saved.path.write_bytes(gzip.compress(b'{"id": 1}\n{"id": 2}\n'))
    records = (InputRecord(f"file:{place}", {"id": number}) for place, number in enumerate(ids))
    with pytest.raises(SqueezeError, match=says):
        list(matched(saved.read(is_pubtator=False), records, saved.path))


@pytest.mark.parametrize(
    ("out", "more"), [("p-run/found.jsonl", ()), ("found.jsonl", ("--set", "predict.resume=true"))]
)
def test_a_recipe_goes_on(out: str, more: tuple[str, ...], pico_ner: Path, tmp_path: Path, shell: Shell) -> None:
    write_records(Path("records.jsonl"), *RECORDS[:2], {"id": "bad"}, *RECORDS[2:])
    step = f'[predict]\ncheckpoint = "{pico_ner}"\ninput = "records.jsonl"\nout = "{out}"\n'
    Path("p.toml").write_text(step)
    assert shell("run", "p.toml").code == 1
    assert Path(f"{out}.partial").is_file()
    done = shell("run", "p.toml", "--set", "predict.skip_bad=true", *more)
    assert done.code == 0, done.err
    assert "10 records, 2 of them by the interrupted run" in done.err
    assert len(Path(out).read_text().splitlines()) == 10
    assert "unchanged, skipped" in shell("run", "p.toml", "--set", "predict.skip_bad=true").err
