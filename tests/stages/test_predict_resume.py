"""`predict --resume`: an interrupted run loses nothing, and its predictions are continued by the same request alone."""

import errno
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from biosqueeze.annotation import output
from biosqueeze.annotation.saved import SavedPredictions
from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.data.records.incoming import open_input
from biosqueeze.stages import predict
from tests import pico
from tests.cli.run import Shell
from tests.manifests import write_manifest
from tests.stages.predicting import write_records
from tests.standard_input import pipe_in

RECORDS = [{"id": f"r{number}", "text": f"car ci hepti {number}"} for number in range(9)]
BAD = {"id": "bad"}
SMALL = ("--batch-size", "2")


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return write_records(tmp_path / "records.jsonl", *RECORDS)


@pytest.fixture
def begun(pico_ner: Path, tmp_path: Path, shell: Shell) -> tuple[object, ...]:
    """The command of a run that has ended after six records."""
    path = write_records(tmp_path / "records.jsonl", *RECORDS[:6], BAD)
    words = ("predict", pico_ner, path, "--out", tmp_path / "out.jsonl", *SMALL)
    assert "out.jsonl.partial holds the predictions of the first 6 records; --resume continues" in shell(*words).err
    write_records(path, *RECORDS)
    return words


@pytest.mark.parametrize("call", [1, 2])
def test_a_full_disk_names_what_is_kept(
    call: int, pico_ner: Path, tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = write_records(tmp_path / "records.jsonl", *RECORDS, *RECORDS, *RECORDS), tmp_path / "out.jsonl"
    calls: list[None] = []
    write = output._written

    def fail(*values: Any) -> Any:
        calls.append(None)
        if len(calls) == call:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*values)

    monkeypatch.setattr(output, "_written", fail)
    said = shell("predict", pico_ner, path, "--out", out, *SMALL)
    partial = tmp_path / "out.jsonl.partial"
    kept = len(partial.read_text().splitlines()) if partial.exists() else 0
    assert (said.code, bool(kept)) == (1, call > 1), said.err
    assert (f"holds the predictions of the first {kept} records" in said.err) == bool(kept), said.err


def unpacked(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix == ".gz" else content


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.pubtator"])
@pytest.mark.parametrize("share", [0.3, 0.7, 1.0])
def test_the_rest_is_predicted(
    name: str, share: float, pico_ner: Path, records: Path, tmp_path: Path, shell: Shell
) -> None:
    more = ("--format", "pubtator") if name.endswith("pubtator") else ()
    out, clean = tmp_path / name, tmp_path / f"clean-{name}"
    assert shell("predict", pico_ner, records, "--out", clean, *SMALL, *more).code == 0
    words = ("predict", pico_ner, records, "--out", out, *SMALL, *more)
    write_records(records, *RECORDS[:8], BAD)
    shell(*words)
    write_records(records, *RECORDS)
    saved = SavedPredictions(out, is_pubtator=bool(more))
    content = saved.path.read_bytes()
    saved.path.write_bytes(content[: int(len(content) * share)])  # as a lost connection to the disk leaves it
    again = shell(*words)
    assert again.code == 1
    assert f"{saved.path} holds the predictions of an interrupted run; continue it with --resume" in again.err
    done = shell(*words, "--resume")
    assert done.code == 0, done.err
    assert unpacked(out) == unpacked(clean)
    assert "9 records, " in done.err
    assert ("8 of them by the interrupted run" in done.err) == (share == 1.0)
    assert not list(tmp_path.glob("*.partial*")) and not list(tmp_path.glob(".*.lock"))


@pytest.mark.usefixtures("forked_processes")
@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_a_killed_run_goes_on(name: str, pico_ner: Path, tmp_path: Path, shell: Shell) -> None:
    records = write_records(tmp_path / "many.jsonl", *[{"id": n, "text": "car ci hepti " * 8} for n in range(1500)])
    out, saved = tmp_path / name, SavedPredictions(tmp_path / name)
    words = ["predict", str(pico_ner), str(records), "--out", str(out), "--batch-size", "4"]
    with subprocess.Popen([sys.executable, "-m", "biosqueeze", *words], stderr=subprocess.DEVNULL) as running:
        while running.poll() is None and not (saved.journal.exists() and saved.journal.read_text().count("\n") > 2):
            time.sleep(0.01)
        os.kill(running.pid, signal.SIGKILL)
    assert saved.path.exists() and not out.exists()
    done = shell(*words, "--resume", "auto")
    assert done.code == 0, done.err
    assert [json.loads(line)["id"] for line in unpacked(out).decode().splitlines()] == list(range(1500))
    assert "of them by the interrupted run" in done.err


def test_another_request_is_refused(begun: tuple[object, ...], pico_root: Path, tmp_path: Path, shell: Shell) -> None:
    saved = SavedPredictions(tmp_path / "out.jsonl")
    content = saved.path.read_bytes()
    resumed = (*begun, "--resume")
    for dry in ((), ("--dry-run",)):
        assert "made with another --keep-fields; give the same" in shell(*resumed, "--keep-fields", *dry).err
        assert "made with another --max-length; give" in shell(*resumed, "--max-length", "8", *dry).err
        assert "made with another backend; give" in shell(*resumed, "--backend", "torch:bf16", *dry).err
    other = pico.save("bert", tmp_path / "other", head="token-classification", labels=("O", "B", "I"), seed=3)
    assert "made with another checkpoint" in shell("predict", other, *resumed[2:]).err
    records = write_records(tmp_path / "records.jsonl", RECORDS[0], {"id": "r1", "text": "other"}, *RECORDS[2:])
    assert "among the first 2 of the input one has changed" in shell(*resumed).err
    write_records(records, *RECORDS[:3])
    assert "among the first 6 of the input one has changed, or is missing" in shell(*resumed).err
    write_records(records, *RECORDS)
    journal = saved.journal.read_text()
    for damaged in ("", "3\n{}\n", "{}\n{\n"):
        saved.journal.write_text(damaged)
        assert "--force instead of --resume" in shell(*resumed).err
    saved.journal.write_text(journal)
    assert saved.path.read_bytes() == content
    assert "take over the predictions" in shell(*resumed, "--dry-run").err + shell(*resumed, "--dry-run").out
    assert shell(*begun, "--force").code == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 9


def test_the_record_of_the_task_is_compared(
    begun: tuple[object, ...], pico_ner: Path, tmp_path: Path, shell: Shell
) -> None:
    checkpoint = pico_ner.parent / "renamed"
    checkpoint.symlink_to(pico_ner)
    assert open_checkpoint(str(checkpoint)).task is None
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(pico_ner), str(copy)], check=True)
    write_manifest(copy, stage="finetune", task={"name": "ner", "formulation": {"types": ["Gene"]}})
    assert "another record of its task" in shell("predict", copy, *begun[2:], "--resume").err
    checkpoint.unlink()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_labels_and_tokenizer_are_compared(
    name: str, begun: tuple[object, ...], pico_ner: Path, copy_of: Callable[[Path], Path], shell: Shell
) -> None:
    copy = copy_of(pico_ner)
    (copy / name).write_text((copy / name).read_text().replace('"I-Disease"', '"I-Disorder"') + "\n")
    assert "made with another config and tokenizer" in shell("predict", copy, *begun[2:], "--resume").err


def test_nothing_to_continue(pico_ner: Path, records: Path, tmp_path: Path, shell: Shell) -> None:
    words = ("predict", pico_ner, records, "--out", tmp_path / "out.jsonl", "--resume")
    for dry in ((), ("--dry-run",)):
        refused = shell(*words, *dry)
        assert (refused.code, "there is no " in refused.err) == (1, True)
    assert shell(*words, "auto").code == 0
    assert "exists already" in shell(*words, "auto").err
    assert shell("predict", pico_ner, records, "--resume").code == 2
    assert shell("predict", pico_ner, records, "--resume", "--out", "/dev/stdout").code == 2


def test_a_failed_first_run_leaves_nothing(pico_ner: Path, records: Path, tmp_path: Path, shell: Shell) -> None:
    words = ("predict", pico_ner, records, "--out", tmp_path / "out.jsonl")
    write_records(records, BAD, *RECORDS)
    assert "--resume" not in shell(*words).err
    assert list(tmp_path.glob("out*")) == []
    write_records(records, *RECORDS)
    assert shell(*words).code == 0


def test_a_bad_record_is_skipped_when_resumed(begun: tuple[object, ...], tmp_path: Path, shell: Shell) -> None:
    write_records(tmp_path / "records.jsonl", *RECORDS[:6], BAD, *RECORDS[6:])
    done = shell(*begun, "--resume", "--skip-bad", "--json")
    assert done.code == 0, done.err
    assert "10 records, 6 of them by the interrupted run, 1 of them bad" in done.err
    assert (json.loads(done.out)["records"], json.loads(done.out)["bad"]) == (10, 1)
    ids = [json.loads(line)["id"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert ids == [*[f"r{n}" for n in range(6)], "bad", "r6", "r7", "r8"]


def test_only_bad_records_stay_an_error(pico_ner: Path, records: Path, tmp_path: Path, shell: Shell) -> None:
    write_records(records, BAD, BAD)
    words = ("predict", pico_ner, records, "--out", tmp_path / "out.jsonl", "--skip-bad")
    for more in ((), ("--resume",), ("--resume",)):
        failed = shell(*words, *more)
        assert (failed.code, "every record is bad" in failed.err, "continues" in failed.err) == (1, True, False)


def test_standard_input_is_read_again(
    pico_ner: Path, tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"car ci hepti {number}\n" for number in range(9)]
    words = ("predict", pico_ner, "-", "--out", tmp_path / "out.jsonl", "--batch-size", "1")
    pipe_in(monkeypatch, "".join(lines[:4]).encode() + b"\xff\n")
    assert "of the first 4 records" in shell(*words).err
    pipe_in(monkeypatch, "".join(["another\n", *lines[1:]]).encode())
    assert "holds predictions of other records" in shell(*words, "--resume").err
    pipe_in(monkeypatch, "".join(lines).encode())
    assert shell(*words, "--resume").code == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 9


@pytest.mark.parametrize(
    ("out", "more"), [("p-run/found.jsonl", ()), ("found.jsonl", ("--set", "predict.resume=true"))]
)
def test_a_recipe_goes_on(out: str, more: tuple[str, ...], pico_ner: Path, shell: Shell) -> None:
    write_records(Path("records.jsonl"), *RECORDS[:2], BAD, *RECORDS[2:])
    step = f'[predict]\ncheckpoint = "{pico_ner}"\ninput = "records.jsonl"\nout = "{out}"\n'
    Path("p.toml").write_text(step)
    assert shell("run", "p.toml").code == 1
    assert Path(f"{out}.partial").is_file()
    done = shell("run", "p.toml", "--set", "predict.skip_bad=true", *more)
    assert done.code == 0, done.err
    assert "10 records, 2 of them by the interrupted run" in done.err
    assert len(Path(out).read_text().splitlines()) == 10
    assert "unchanged, skipped" in shell("run", "p.toml", "--set", "predict.skip_bad=true").err


def test_a_recipe_starts_over_with_another_model(pico_ner: Path, shell: Shell) -> None:
    write_records(Path("records.jsonl"), *RECORDS[:2], BAD)
    step = (
        f'[predict]\ncheckpoint = "{pico_ner}"\ninput = "records.jsonl"\nout = "p-run/found.jsonl"\nresume = "auto"\n'
    )
    Path("p.toml").write_text(step)
    assert shell("run", "p.toml").code == 1
    write_records(Path("records.jsonl"), *RECORDS)
    saved = SavedPredictions(Path("p-run/found.jsonl"))
    for journal in (saved.journal.read_text().splitlines()[0] + "\n", None):  # killed before any prediction; damaged
        saved.journal.write_text(journal) if journal else saved.journal.unlink()
        assert not predict.can_continue(
            predict.Options(checkpoint=str(pico_ner), input="records.jsonl", out=str(saved.out))
        )
    done = shell("run", "p.toml", "--set", "predict.max_length=8")
    assert done.code == 0, done.err
    assert "by the interrupted run" not in done.err
    assert len(list(open_input("p-run/found.jsonl").records)) == 9


def test_a_run_that_fails_again_keeps_all(begun: tuple[object, ...], tmp_path: Path, shell: Shell) -> None:
    for count in (6, 8):
        write_records(tmp_path / "records.jsonl", *RECORDS[:count], BAD)
        for _ in range(2):
            failed = shell(*begun, "--resume")
            assert f"of the first {count} records; --resume continues" in failed.err
    write_records(tmp_path / "records.jsonl", *RECORDS)
    assert "9 records, 8 of them by the interrupted run" in shell(*begun, "--resume").err
