"""The cores that a CPU quota pays for, and what uses them."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from biosqueeze import backends
from biosqueeze.backends.onnxruntime import OnnxPredictor
from biosqueeze.cli.main import run
from biosqueeze.finetuning import run_processes
from biosqueeze.system import cores
from tests.system import control_group_files


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "_bound_cores", lambda: 8)
    monkeypatch.setattr("psutil.cpu_count", lambda logical: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", "")  # so that what is set is undone
    monkeypatch.delenv("OMP_NUM_THREADS")


def first(quota: str, period: str = "100000") -> dict[str, str]:
    return {"cpu/job/cpu.cfs_quota_us": f"{quota}\n", "cpu/job/cpu.cfs_period_us": f"{period}\n"}


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {}, None),
        ("0::/job/step\n", {"job/cpu.max": "300000 100000\n"}, 3),  # of a group around it
        ("0::/job\n", {"job/cpu.max": "250000 100000\n"}, 3),
        ("0::/job\n", {"job/cpu.max": "20000 100000\n"}, 1),
        ("0::/job\n", {"job/cpu.max": "max 100000\n"}, None),
        ("0::/job\n", {"job/cpu.max": "750000 100000\n"}, None),  # of eight cores
        ("0::/job\n", {"job/cpu.max": "400000 100000\n", "cpu.max": "200000 100000\n"}, 2),
        ("0::/elsewhere\n", {"cpu.max": "200000 100000\n"}, 2),  # in a container, its group is the root
        ("3:cpu,cpuacct:/job\n0::/\n", first("200000"), 2),
        ("3:cpu:/job\n", first("30000", "10000"), 3),
        ("3:cpu:/job\n", first("-1"), None),
        ("3:cpuset:/job\n", first("200000"), None),
        ("0::/job\n", {"job/cpu.max": "unknown\n"}, None),
    ],
)
def test_cores_that_the_quota_pays_for(
    groups: str, files: Mapping[str, str], expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control_group_files.write(tmp_path, monkeypatch, groups, files)
    assert cores.cores_by_quota() == expected
    assert cores.usable_cores() == backends.default_threads() == (expected or 8)


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    control_group_files.write(tmp_path, monkeypatch, "0::/\n", {"cpu.max": "300000 100000\n"})


@pytest.mark.usefixtures("three")
def test_openmp_starts_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["tasks", "--json"]) == 0
    assert os.environ["OMP_NUM_THREADS"] == "3"
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert run(["tasks", "--json"]) == 0
    assert os.environ["OMP_NUM_THREADS"] == "5"


@pytest.mark.usefixtures("three")
def test_runs_side_by_side_divide_the_quota() -> None:
    assert run_processes.slots_for(3, on_any_gpu=False) == [{"OMP_NUM_THREADS": "1"}] * 3


@pytest.mark.usefixtures("three")
def test_onnx_runtime_starts_no_more_threads(exported, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = exported("bert", "token-classification") / "onnx" / "model.onnx"
    assert OnnxPredictor(graph).session.get_session_options().intra_op_num_threads == 3
    assert OnnxPredictor(graph, threads=2).session.get_session_options().intra_op_num_threads == 2


def test_without_control_groups_all_cores_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("biosqueeze.system.control_groups.PROC", tmp_path)
    assert (cores.cores_by_quota(), cores.usable_cores()) == (None, 8)
