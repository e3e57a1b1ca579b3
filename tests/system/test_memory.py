"""The allocator is set with glibc, and a training on the CPU may allocate what is available."""

import json
import mmap
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from biosqueeze.system import control_groups, memory
from tests import pico
from tests.system import control_group_files

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only")


@linux
def test_glibc_takes_the_settings() -> None:
    assert memory.return_freed_memory()
    assert memory.keep_freed_memory()


def test_other_systems_are_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    assert not memory.keep_freed_memory()


_MEMINFO = "MemTotal: 900 kB\nMemAvailable: 400 kB\nSwapFree: 100 kB\nHugePages_Total: 0\n"
SECOND = {
    "memory.max": "307200\n",
    "memory.current": "204800\n",
    "memory.stat": "inactive_file 1024\nactive_file 512\n",
}
FIRST = {
    "memory.limit_in_bytes": "204800\n",
    "memory.usage_in_bytes": "153600\n",
    "memory.stat": "cache 9\ntotal_inactive_file 1024\ntotal_active_file 0\n",
}
NO_SWAP = {"memory.swap.max": "0\n", "memory.swap.current": "0\n"}
NO_LIMIT = {"memory.limit_in_bytes": "9223372036854771712\n", "memory.usage_in_bytes": "1\n"}


def inside(folder: str, files: Mapping[str, str]) -> dict[str, str]:
    return {f"{folder}/{name}": text for name, text in files.items()}


@pytest.mark.parametrize(
    ("groups", "files", "kilobytes"),
    [
        ("0::/\n", {}, 500),  # no controller of memory: what the machine has, and swap
        ("0::/job/step\n", inside("job", SECOND), 201.5),  # the limit of a group around it
        ("0::/job\n", inside("job", SECOND | {"memory.max": "max\n"}), 500),
        ("0::/job\n", inside("job", SECOND | NO_SWAP), 101.5),
        ("0::/job\n", inside("job", SECOND | NO_SWAP | {"memory.swap.max": "max\n"}), 201.5),
        ("0::/elsewhere\n", SECOND, 201.5),  # in a container, its group is the root
        ("4:memory:/job\n3:cpu:/job\n0::/\n", inside("memory/job", FIRST), 151),
        ("4:cpu,memory:/job\n", inside("memory/job", FIRST) | inside("memory", NO_LIMIT), 151),
        ("4:memory:/job\n", inside("memory/job", NO_LIMIT), 500),
    ],
)
def test_what_machine_and_control_groups_leave(
    groups: str, files: dict[str, str], kilobytes: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control_group_files.write(tmp_path, monkeypatch, groups, files, meminfo=_MEMINFO)
    assert memory.available_memory() == 1024 * kilobytes


def test_a_kernel_without_these_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_groups, "PROC", tmp_path)
    assert memory.available_memory() is None
    memory.limit_to_available_memory("cpu")


def allocate(size: int) -> None:
    """Map private memory that is never written, so that none is used."""
    mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()


@linux
def test_more_than_available_fails_in_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 2**30)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with memory.limited_memory("cpu"):
        allocate(2**29)
        with pytest.raises(OSError, match="Cannot allocate memory"):
            allocate(2**31)
    allocate(2**31)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@linux
def test_a_gpu_training_has_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 2**30)
    with memory.limited_memory("cuda"):
        allocate(2**31)


_TRAIN = """
import sys
from biosqueeze.cli.main import main
from biosqueeze.system import memory

memory.available_memory = lambda: 150 * 2**20
main()
"""
_SIZES = ("--batch-size", "2000", "--max-length", "32", "--steps", "1", "--precision", "fp32")


@pytest.mark.slow
@linux
def test_batches_beyond_the_memory_of_the_cpu(tmp_path: Path) -> None:
    """In fresh processes: the heap of this one may have room."""
    model, text, out = tmp_path / "model", tmp_path / "text.txt", tmp_path / "out"
    pico.save("bert", model)
    text.write_text("\n".join(pico.sentences(6000, seed=5)))
    words = [sys.executable, "-c", _TRAIN, "pretrain", str(model), "--corpus", str(text), *_SIZES, "--out", str(out)]
    failed = subprocess.run(words, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "error: out of memory at step 1 with " in failed.stderr
    assert "--auto-batch, which finds the size that fits" in failed.stderr
    subprocess.run([*words, "--auto-batch", "--force"], check=True, capture_output=True)
    found = json.loads((out / "biosqueeze.json").read_text())["metrics"]
    assert found["batch_size"] * found["accumulate"] == 2000
    assert 1 < found["batch_size"] < 2000
