"""Bench: the table holds the numbers of the processes, and the result is written beside each checkpoint."""

import csv
import io
import json
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from biosqueeze.checkpoint import open_checkpoint, write_result
from biosqueeze.measuring import worker_pool
from tests.layouts import edit_json
from tests.manifests import history_entry, write_manifest


class FakeProcess:
    """Replies with times that depend on the model: model 0 takes 12 ms, model 1 six, model 2 four."""

    waited_seconds = 0.04

    def __init__(self, index, requests) -> None:
        self.index, self.requests = index, requests

    def request(self, request):
        self.requests.append((self.index, request))
        if "spec" in request:
            return {"load_seconds": 1.5 + self.index}
        if "done" in request:
            return {"peak_rss_mb": 100.0 * (self.index + 1)}
        size, _ = request["shape"]
        waited = {"seconds": 0.5, "waited_seconds": self.waited_seconds * self.index}
        return {"milliseconds": [12.0 * size / (self.index + 1)] * 3 + [1000.0], **waited}


@pytest.fixture
def pool(monkeypatch):
    """Fake processes; the list of their requests, and the numbers of threads."""
    requests, threads = [], []

    @contextmanager
    def fake(labels, count):
        threads.append(count)
        yield [FakeProcess(index, requests) for index in range(len(labels))]

    monkeypatch.setattr(worker_pool, "measuring_processes", fake)
    return requests, threads


@pytest.fixture
def two(pico_ner, tmp_path):
    """A checkpoint with weights alone, and one with empty graphs beside them."""
    plain = Path(shutil.copytree(pico_ner, tmp_path / "plain"))
    full = Path(shutil.copytree(pico_ner, tmp_path / "full"))
    (full / "onnx").mkdir()
    (full / "onnx" / "model.onnx").write_bytes(bytes(2_000_000))
    (full / "onnx" / "model_quantized.onnx").write_bytes(bytes(500_000))
    return plain, full


def test_table_holds_the_numbers_of_the_processes(two, pool, shell) -> None:
    plain, full = two
    write_manifest(full, stage="quantize")
    write_result(open_checkpoint(str(plain)), "evaluate-torch", {"metrics": {"f1": 0.8}, "data": "x"})
    named = {"metric": "f1", "metrics": {"f1": 0.78, "accuracy": 0.9}, "data": "x"}
    write_result(open_checkpoint(str(full)), "evaluate-onnxruntime-int8", named)
    result = shell("bench", plain, full, "--batch-size", "1,4", "--length", "32", "--threads", "2", "--json")
    assert result.code == 0, result.err
    facts = json.loads(result.out)
    assert facts["path"] == str(full)
    rows = {(Path(r["checkpoint"]).name, r["backend"], r["batch_size"]): r for r in facts["rows"]}
    assert list(rows) == [(*row, size) for size in (1, 4) for row in (("plain", "torch"), ("full", "onnxruntime:int8"))]
    first, last = rows["plain", "torch", 4], rows["full", "onnxruntime:int8", 4]
    assert (first["p50_ms"], first["p95_ms"], first["speed_up"]) == (48, 1000, 1)
    assert (last["p50_ms"], last["speed_up"], last["runs"]) == (24, 2, 20)
    assert last["sequences_per_second"] == pytest.approx(4000 / 24)
    assert last["tokens_per_second"] == pytest.approx(32 * 4000 / 24)
    assert (last["peak_rss_mb"], last["load_seconds"], last["megabytes"]) == (200, 2.5, 0.5)
    assert [(row["metric"], row["score"]) for row in (first, last)] == [("f1", 0.8), ("f1", 0.78)]
    assert last["retention"] == pytest.approx(0.975)
    assert first["parameters"] > 10_000 and last["parameters"] == 7  # counted, and from the manifest
    assert facts["machine"]["threads"] == 2
    for path in two:
        noted = json.loads((path / "results" / "bench.json").read_text())
        assert noted["rows"] == facts["rows"]
    assert "0.7800" not in result.err
    shown = shell("bench", plain, full, "--batch-size", "1,4", "--length", "32", "--threads", "2").err
    for word in ("plain", "onnxruntime:int8", "F1", "0.7800", "97.5%", "2.00x", "p95 ms", "12.0  ", " 6.00  ", "48.0 "):
        assert word in shown


def test_other_work_on_the_machine_is_said(two, pool, shell, monkeypatch) -> None:
    quiet = shell("bench", *two, "--json")
    assert [row["waited_share"] for row in json.loads(quiet.out)["rows"]] == [0, 0.08] * 2
    assert "other work" not in quiet.err
    monkeypatch.setattr(FakeProcess, "waited_seconds", 0.2)
    busy = shell("bench", *two)
    assert "full on torch waited for a processor for 40% of the time, so the times are too long" in busy.err


def test_rows_are_printed_as_csv(two, pool, shell) -> None:
    said = shell("bench", *two, "--batch-size", "1", "--table", "csv")
    rows = list(csv.DictReader(io.StringIO(said.out)))
    assert [Path(row["checkpoint"]).name for row in rows] == ["plain", "full"]
    assert [float(row["p50_ms"]) for row in rows] == [12.0, 6.0]
    assert "p95" not in said.err


def test_scores_on_other_data_give_no_retention(two, pool, shell) -> None:
    for path, data in zip(two, ("x", "y"), strict=True):
        write_result(open_checkpoint(str(path)), "evaluate-torch", {"metrics": {"f1": 0.8}, "data": data})
    rows = json.loads(shell("bench", *two, "--backend", "torch", "--batch-size", "1", "--json").out)["rows"]
    assert [row["score"] for row in rows] == [0.8, 0.8]
    assert [row["retention"] for row in rows] == [1, None]
    assert [row["evaluated_on"] for row in rows] == ["x", "y"]
    said = shell("bench", *two, "--backend", "torch", "--batch-size", "1")
    reason = "evaluated on other data, or by another score, or with a negative one"
    assert f"no retention of {two[1].name}: {reason}" in said.err


@pytest.mark.parametrize("score", [0.0, -0.2])
def test_no_share_of_a_score_that_is_not_positive(score, two, pool, shell) -> None:
    for path, pearson in zip(two, (score, 0.4), strict=True):
        result = {"metric": "pearson", "metrics": {"pearson": pearson}, "data": "x"}
        write_result(open_checkpoint(str(path)), "evaluate-torch", result)
    said = shell("bench", *two, "--backend", "torch", "--batch-size", "1", "--json")
    assert [row["retention"] for row in json.loads(said.out)["rows"]] == [None, None]
    said = shell("bench", *two, "--backend", "torch", "--batch-size", "1")
    assert f"there is no share of the first checkpoint's score, {score:.4f}" in said.err


def test_the_same_data_by_two_names(two, pool, shell, tmp_path) -> None:
    (tmp_path / "x").mkdir()
    for path, data in zip(two, ("x", tmp_path / "x"), strict=True):
        result = {"metrics": {"f1": 0.8}, "data": str(data), "task": "ner", "split": "test"}
        write_result(open_checkpoint(str(path)), "evaluate-torch", result)
    rows = json.loads(shell("bench", *two, "--backend", "torch", "--batch-size", "1", "--json").out)["rows"]
    assert [row["retention"] for row in rows] == [1, 1]


def test_equal_names_in_two_projects_are_other_data(two, pool, shell) -> None:
    for path, project in zip(two, "ab", strict=True):
        result = {"metrics": {"f1": 0.8}, "data": "data", "data_path": f"/{project}/data"}
        write_result(open_checkpoint(str(path)), "evaluate-torch", result)
    rows = json.loads(shell("bench", *two, "--backend", "torch", "--batch-size", "1", "--json").out)["rows"]
    assert [row["retention"] for row in rows] == [1, None]


def test_the_score_is_that_of_the_task(two, pool, shell) -> None:
    for path, score in zip(two, (0.5, 0.45), strict=True):
        result = {"metric": "accuracy", "metrics": {"macro_f1": 0.1, "accuracy": score}, "data": "x"}
        write_result(open_checkpoint(str(path)), "evaluate-torch", result)
    words = ("bench", *two, "--backend", "torch", "--batch-size", "1")
    rows = json.loads(shell(*words, "--json").out)["rows"]
    assert [(row["metric"], row["score"], row["retention"]) for row in rows] == [
        ("accuracy", 0.5, 1),
        ("accuracy", 0.45, pytest.approx(0.9)),
    ]
    assert "accuracy" in shell(*words).err
    write_result(open_checkpoint(str(two[1])), "evaluate-torch", {"metric": "f1", "metrics": {"f1": 0.4}, "data": "x"})
    rows = json.loads(shell(*words, "--json").out)["rows"]
    assert [row["retention"] for row in rows] == [1, None]


def test_what_retention_lacks_is_told(two, pool, shell) -> None:
    write_result(open_checkpoint(str(two[1])), "evaluate-torch", {"metrics": {"f1": 0.4}, "data": "x"})
    words = ("bench", *two, "--backend", "torch", "--batch-size", "1")
    assert "no retention" not in shell(*words).err  # the first is not fine-tuned
    write_manifest(two[0], task={"name": "ner", "labels": ["O", "B"]})
    assert f"no retention: first biosqueeze evaluate {two[0]} --backend torch" in shell(*words).err
    write_result(open_checkpoint(str(two[0])), "evaluate-torch", {"metrics": {"f1": 0.4}, "data": "x"})
    assert "no retention" not in shell(*words).err


def test_a_family_stands_for_its_checkpoints(pico_ner, pool, shell, tmp_path) -> None:
    for member in ("2x", "16x"):
        shutil.copytree(pico_ner, tmp_path / "family" / member)
    write_manifest(tmp_path / "family", stage="shrink", notes={"family": {"2x": {}, "16x": {}}})
    result = shell("bench -", "--batch-size", "1", "--json", stdin=f"{tmp_path / 'family'}\n")
    assert result.code == 0, result.err
    rows = json.loads(result.out)["rows"]
    assert [row["checkpoint"] for row in rows] == [str(tmp_path / "family" / name) for name in ("2x", "16x")]


def test_a_slim_copy_without_its_graph_is_explained(pico_ner, shell, tmp_path) -> None:
    path = Path(shutil.copytree(pico_ner, tmp_path / "slim"))
    (path / "model.safetensors").unlink()
    write_manifest(path, stage="quantize", history=[history_entry(stage="quantize", options={"slim": True})])
    result = shell("bench", path)
    assert result.code == 1
    assert "has no onnx/model_quantized.onnx" in result.err and "fetch or copy it again in full" in result.err


def test_single_checkpoint_runs_on_all_its_backends(two, pool, shell) -> None:
    rows = json.loads(shell("bench", two[1], "--batch-size", "1", "--json").out)["rows"]
    assert [row["backend"] for row in rows] == ["torch", "onnxruntime", "onnxruntime:int8"]
    assert [row["megabytes"] for row in rows[1:]] == [2, 0.5]


def test_a_checkpoint_by_two_names_is_measured_once(two, pool, shell, monkeypatch) -> None:
    monkeypatch.chdir(two[0].parent)
    measured = shell("bench --length 32 --batch-size 1 --backend torch --json plain ./plain", *two)
    assert measured.code == 0, measured.err
    assert [row["checkpoint"] for row in json.loads(measured.out)["rows"]] == ["plain", str(two[1])]


def test_same_settings_for_all_and_interleaved_turns(two, pool, shell) -> None:
    requests, threads = pool
    result = shell("bench", *two, "--batch-size", "2", "--backend", "torch", "--threads", "3", "--rounds", "2")
    assert result.code == 0, result.err
    assert threads == [3]
    loads = [request for _, request in requests[:2]]
    assert all((each["threads"], each["warmup"], each["shapes"]) == (3, 3, ((2, 128),)) for each in loads)
    assert [Path(request["path"]).name for request in loads] == ["plain", "full"]
    assert [index for index, request in requests if "shape" in request] == [0, 1, 1, 0]
    assert [index for index, request in requests if "done" in request] == [0, 1]


def test_no_result_in_a_read_only_checkpoint(two, pool, shell, monkeypatch) -> None:
    monkeypatch.setattr("biosqueeze.checkpoint.Checkpoint.is_writable", property(lambda self: self.path.name == "full"))
    result = shell("bench", *two, "--backend", "torch")
    assert result.code == 0, result.err
    assert not (two[0] / "results").exists()
    assert (two[1] / "results" / "bench.json").is_file()


@pytest.mark.parametrize("writable", [["plain"], []])
def test_the_next_command_reports_where_results_are(writable, two, pool, shell, monkeypatch) -> None:
    is_writable = property(lambda self: self.path.name in writable)
    monkeypatch.setattr("biosqueeze.checkpoint.Checkpoint.is_writable", is_writable)
    result = shell("bench", *two, "--backend", "torch")
    assert result.code == 0, result.err
    named = [line.partition("report ")[2] for line in result.err.splitlines() if line.startswith("next: ")]
    assert named == [str(two[0])] * len(writable)


def test_real_processes_on_both_runtimes(exported, shell, tmp_path) -> None:
    path = Path(shutil.copytree(exported("bert", "token-classification"), tmp_path / "c"))
    words = ("--batch-size", "1,2", "--length", "8", "--rounds", "2", "--seconds", "0", "--threads", "1")
    result = shell("bench -", *words, "--json", stdin=f"{path}\n")
    assert result.code == 0, result.err
    rows = json.loads(result.out)["rows"]
    assert [row["backend"] for row in rows] == ["torch", "onnxruntime"] * 2
    assert all(row["runs"] == 6 for row in rows)
    assert all(0 < row["p50_ms"] <= row["p95_ms"] for row in rows)
    # The runtime without PyTorch in its process needs less memory.
    assert rows[1]["peak_rss_mb"] < rows[0]["peak_rss_mb"]


def test_a_damaged_result_is_named_before_measuring(two, pool, shell) -> None:
    (two[1] / "results").mkdir()
    (two[1] / "results" / "evaluate-torch.json").write_text("{")
    result = shell("bench", *two, "--backend", "torch")
    assert result.code == 1 and "evaluate-torch.json is not valid JSON" in result.err
    assert pool == ([], [])


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (("--batch-size", "1,x"), 2, "--batch-size '1,x'"),
        (("--batch-size", "0"), 2, "write for example 1,8"),
        (("--length", ""), 2, "--length ''"),
        (("--length", "129"), 2, "128 positions"),
        (("--rounds", "0"), 2, "--rounds must be at least 1"),
        (("--threads", "-1"), 2, "--threads must be at least 1"),
        (("--seconds", "nan"), 2, "--seconds"),
        (("--backend", "tensorrt"), 2, "no backend called 'tensorrt'"),
        (("--backend", "onnxruntime"), 1, "biosqueeze export"),
    ],
)
def test_bad_options_start_nothing(pico_ner, pool, shell, words, code, hint) -> None:
    result = shell("bench", pico_ner, *words)
    assert result.code == code
    assert hint in result.err
    assert pool == ([], [])


def test_plan(two, pool, shell) -> None:
    result = shell("bench", two[1], "--dry-run", "--threads", "2")
    assert result.code == 0
    assert "full on onnxruntime:int8" in result.err
    assert "1 x 128, 8 x 128 (batch x tokens) with 2 threads" in result.err
    assert "in 5 rounds of 0.5 s, or three runs, for each: at least 15 s of measuring" in result.err
    assert pool == ([], [])


def test_a_config_may_leave_sizes_to_the_family(two, pool, shell) -> None:
    plain, _ = two
    edit_json(plain / "config.json", drop=("vocab_size",))
    ran = shell("bench", plain, "--batch-size", "1")
    assert ran.code == 0, ran.err
    assert [request["vocabulary"] for _, request in pool[0] if "spec" in request] == [30_522]
