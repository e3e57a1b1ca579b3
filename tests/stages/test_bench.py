"""Bench: turns are interleaved, numbers are what the processes said, and results lie beside each checkpoint."""

import json
import shutil
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.backends import worker_pool as _pool
from biosqueeze.checkpoint import open_checkpoint, write_result
from biosqueeze.stages import bench


class FakeWorker:
    """Answers with times that tell which row it is: row 0 takes 12 ms, row 1 six, row 2 four."""

    def __init__(self, index, asked) -> None:
        self.index, self.asked = index, asked

    def ask(self, order):
        self.asked.append((self.index, order))
        if "spec" in order:
            return {"load_seconds": 1.5 + self.index}
        if "done" in order:
            return {"peak_rss_mb": 100.0 * (self.index + 1)}
        size, _ = order["shape"]
        return {"milliseconds": [12.0 * size / (self.index + 1)] * 3 + [1000.0]}


@pytest.fixture
def pool(monkeypatch):
    """Fake workers; the list of what they were asked, and with how many threads."""
    asked, threads = [], []

    @contextmanager
    def fake(labels, count):
        threads.append(count)
        yield [FakeWorker(index, asked) for index in range(len(labels))]

    monkeypatch.setattr(_pool, "workers", fake)
    return asked, threads


@pytest.fixture
def two(pico_ner, tmp_path):
    """A checkpoint with weights alone, and one with empty graphs beside them."""
    plain = Path(shutil.copytree(pico_ner, tmp_path / "plain"))
    full = Path(shutil.copytree(pico_ner, tmp_path / "full"))
    (full / "onnx").mkdir()
    (full / "onnx" / "model.onnx").write_bytes(bytes(2_000_000))
    (full / "onnx" / "model_quantized.onnx").write_bytes(bytes(500_000))
    return plain, full


@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 5))
def test_each_round_everyone_has_one_turn_at_each_shape(rounds, shapes, rows) -> None:
    sizes = [(size, 128) for size in range(1, shapes + 1)]
    turns = list(bench.schedule(rounds, sizes, rows))
    per_round = shapes * rows
    for start in range(0, len(turns), per_round):
        assert Counter(turns[start : start + per_round]) == {(s, r): 1 for s in sizes for r in range(rows)}
    for start in range(0, len(turns), rows):
        # A shape is measured on everyone before the next shape begins: rows are compared under like conditions.
        assert len({shape for shape, _ in turns[start : start + rows]}) == 1
    assert [turns[r * per_round][1] for r in range(rounds)] == [r % rows for r in range(rounds)]


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=50), st.sampled_from([0.5, 0.95]))
def test_percentile_is_nearest_rank(values, share) -> None:
    assert bench.percentile(values, share) == np.percentile(values, 100 * share, method="inverted_cdf")


def test_table_is_what_the_processes_said(two, pool, shell) -> None:
    plain, full = two
    (full / "biosqueeze.json").write_text(json.dumps({"stage": "quantize"}))
    write_result(open_checkpoint(str(plain)), "evaluate-torch", {"metrics": {"f1": 0.8}, "data": "x"})
    write_result(open_checkpoint(str(full)), "evaluate-onnxruntime-int8", {"metrics": {"f1": 0.78}, "data": "x"})
    said = shell("bench", plain, full, "--batch-size", "1,4", "--length", "32", "--threads", "2", "--json")
    assert said.code == 0, said.err
    facts = json.loads(said.out)
    assert facts["path"] == str(full)
    rows = {(Path(r["checkpoint"]).name, r["backend"], r["batch_size"]): r for r in facts["rows"]}
    assert list(rows) == [(*row, size) for size in (1, 4) for row in (("plain", "torch"), ("full", "onnxruntime:int8"))]
    first, last = rows["plain", "torch", 4], rows["full", "onnxruntime:int8", 4]
    assert (first["p50_ms"], first["p95_ms"], first["speed_up"]) == (48, 1000, 1)
    assert (last["p50_ms"], last["speed_up"], last["runs"]) == (24, 2, 20)
    assert last["sequences_per_second"] == pytest.approx(4000 / 24)
    assert last["tokens_per_second"] == pytest.approx(32 * 4000 / 24)
    assert (last["peak_rss_mb"], last["load_seconds"], last["megabytes"]) == (200, 2.5, 0.5)
    assert (first["f1"], last["f1"]) == (0.8, 0.78)
    assert last["retention"] == pytest.approx(0.975)
    assert first["parameters"] == last["parameters"] > 10_000
    assert facts["machine"]["threads"] == 2
    for path in two:
        noted = json.loads((path / "results" / "bench.json").read_text())
        assert noted["rows"] == facts["rows"]
    for word in ("plain", "onnxruntime:int8", "0.7800", "97.5%", "2.00x", "p95 ms"):
        assert word in said.err


def test_scores_on_other_data_give_no_retention(two, pool, shell) -> None:
    for path, data in zip(two, ("x", "y"), strict=True):
        write_result(open_checkpoint(str(path)), "evaluate-torch", {"metrics": {"f1": 0.8}, "data": data})
    rows = json.loads(shell("bench", *two, "--backend", "torch", "--batch-size", "1", "--json").out)["rows"]
    assert [row["f1"] for row in rows] == [0.8, 0.8]
    assert [row["retention"] for row in rows] == [1, None]


def test_one_checkpoint_alone_is_measured_on_all_that_it_holds(two, pool, shell) -> None:
    rows = json.loads(shell("bench", two[1], "--batch-size", "1", "--json").out)["rows"]
    assert [row["backend"] for row in rows] == ["torch", "onnxruntime", "onnxruntime:int8"]
    assert [row["megabytes"] for row in rows[1:]] == [2, 0.5]


def test_workers_are_told_alike_and_take_turns(two, pool, shell) -> None:
    asked, threads = pool
    said = shell("bench", *two, "--batch-size", "2", "--backend", "torch", "--threads", "3", "--rounds", "2")
    assert said.code == 0, said.err
    assert threads == [3]
    loads = [order for _, order in asked[:2]]
    assert all((o["threads"], o["warmup"], o["shapes"]) == (3, 3, ((2, 128),)) for o in loads)
    assert [Path(order["path"]).name for order in loads] == ["plain", "full"]
    assert [index for index, order in asked if "shape" in order] == [0, 1, 1, 0]
    assert [index for index, order in asked if "done" in order] == [0, 1]


def test_result_is_left_out_where_it_may_not_be_written(two, pool, shell, monkeypatch) -> None:
    monkeypatch.setattr("biosqueeze.checkpoint.Checkpoint.is_writable", property(lambda self: self.path.name == "full"))
    said = shell("bench", *two, "--backend", "torch")
    assert said.code == 0, said.err
    assert not (two[0] / "results").exists()
    assert (two[1] / "results" / "bench.json").is_file()


def test_real_processes_on_both_runtimes(exported, shell, tmp_path) -> None:
    path = Path(shutil.copytree(exported("bert", "token-classification"), tmp_path / "c"))
    words = ("--batch-size", "1,2", "--length", "8", "--rounds", "2", "--seconds", "0", "--threads", "1")
    said = shell("bench", "-", *words, "--json", stdin=f"{path}\n")
    assert said.code == 0, said.err
    rows = json.loads(said.out)["rows"]
    assert [row["backend"] for row in rows] == ["torch", "onnxruntime"] * 2
    assert all(row["runs"] == 6 for row in rows)
    assert all(0 < row["p50_ms"] <= row["p95_ms"] for row in rows)
    # The runtime without PyTorch in its process needs less memory.
    assert rows[1]["peak_rss_mb"] < rows[0]["peak_rss_mb"]


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (("--batch-size", "1,x"), 2, "--batch-size '1,x'"),
        (("--batch-size", "0"), 2, "whole numbers"),
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
    said = shell("bench", pico_ner, *words)
    assert said.code == code
    assert hint in said.err
    assert pool == ([], [])


def test_plan(two, pool, shell) -> None:
    said = shell("bench", two[1], "--dry-run", "--threads", "2")
    assert said.code == 0
    assert "full on onnxruntime:int8" in said.err
    assert "1 x 128, 8 x 128 (batch x tokens) with 2 threads" in said.err
    assert pool == ([], [])
