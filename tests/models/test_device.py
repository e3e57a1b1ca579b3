"""--device: what PyTorch computes on, refused where it is not there."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from biosqueeze import backends
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.models import device
from biosqueeze.training.accelerator import _selected_device
from biosqueeze.training.options import TrainingOptions
from biosqueeze.training.precision import precision_of, teacher_precision_of
from tests.cli.run import Shell


@pytest.fixture(autouse=True)
def unselected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_selected", device._Selection())


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which PyTorch finds two GPUs."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("name", "chosen"), [("auto", "cuda:0"), ("cpu", "cpu"), ("cuda", "cuda:0"), ("cuda:1", "cuda:1")]
)
def test_selected_device(name: str, chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCELERATE_TORCH_DEVICE", raising=False)
    device.select_device(name)
    assert str(device.own_device()) == chosen
    with _selected_device():
        import os

        assert os.environ.get("ACCELERATE_TORCH_DEVICE") == (chosen if name.startswith("cuda") else None)
    assert "ACCELERATE_TORCH_DEVICE" not in os.environ


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("name", ["cuda:2", "mps"])
def test_absent_device(name: str) -> None:
    with pytest.raises(SqueezeError, match="finds cuda:0, cuda:1"):
        device.select_device(name)


def test_processes_have_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("biosqueeze.system.processes.count", lambda: 2)
    with pytest.raises(UsageError, match="device of its own"):
        device.select_device("cuda:1")


def test_other_runtimes_refuse_a_gpu() -> None:
    assert backends.use_device("onnxruntime:int8", "auto") == "cpu"
    with pytest.raises(UsageError, match="--backend torch"):
        backends.use_device("onnxruntime:int8", "cuda")


COMMANDS = {
    "finetune": "finetune {} --data demo:ner --task ner",
    "evaluate": "evaluate {} --data demo:ner",
    "predict": "predict {} --text a",
    "bench": "bench {}",
    "distill": "distill {} --teacher {} --data demo:ner --loss hidden",
}


@pytest.mark.skipif(torch.accelerator.is_available(), reason="for a machine without an accelerator")
@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_refuse_an_absent_device(shell: Shell, pico_ner: Path, command: str, dry_run: bool) -> None:
    words = [COMMANDS[command].format(pico_ner, pico_ner), "--device", "cuda:1", *(["--dry-run"] if dry_run else [])]
    refused = shell(*words)
    assert refused.code == 1, refused.err
    assert "--device cuda:1: PyTorch finds no accelerator" in refused.err
    assert not list(Path().glob("pico*"))


def test_names_that_are_no_device(shell: Shell, pico_ner: Path) -> None:
    refused = shell("predict", pico_ner, "--text", "a", "--device", "gpu")
    assert refused.code == 2
    assert "--device 'gpu'" in refused.err


def test_the_cpu_can_be_named(shell: Shell, pico_ner: Path) -> None:
    named, default = (shell("predict", pico_ner, "--text", "aspirin", *words) for words in (("--device", "cpu"), ()))
    assert named.code == 0, named.err
    assert json.loads(named.out) == json.loads(default.out)


@pytest.mark.parametrize(
    ("words", "faster"),
    [
        ("predict {} --text aspirin --backend torch:bf16", "--backend torch"),
        ("finetune {} --data demo:ner --task ner --steps 1 --precision bf16 --out out", "--precision auto"),
    ],
)
@pytest.mark.parametrize("units", [True, False])
def test_slow_bf16_is_a_warning(
    shell: Shell, pico_ner: Path, monkeypatch: pytest.MonkeyPatch, words: str, faster: str, units: bool
) -> None:
    monkeypatch.setattr(device, "has_bf16", lambda: units)
    result = shell(*words.format(pico_ner).split())
    assert result.code == 0, result.err
    assert ("no fast units for bf16" in result.err) is not units
    assert (f"give {faster}" in result.err) is not units


@pytest.mark.parametrize(
    ("intel", "avx512", "amx", "faster"),
    [
        (True, True, True, True),
        (True, True, False, False),
        (False, True, False, True),
        (False, False, False, False),
    ],
)
def test_auto_is_bf16_where_it_is_faster(
    monkeypatch: pytest.MonkeyPatch, intel: bool, avx512: bool, amx: bool, faster: bool
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(device, "is_intel", lambda: intel)
    assert precision_of(TrainingOptions(precision="auto")) == ("bf16" if faster else "fp32")


@pytest.mark.parametrize(
    ("precision", "bf16", "vnni", "sharded", "expected"),
    [
        ("auto", False, True, False, "int8"),
        ("auto", False, False, False, "fp32"),
        ("auto", False, True, True, "fp32"),
        ("auto", True, True, False, "bf16"),
        ("fp32", False, True, False, "fp32"),
        ("bf16", False, True, False, "bf16"),
    ],
)
def test_teachers_are_int8_where_nothing_else_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, precision: Any, bf16: bool, vnni: bool, sharded: bool, expected: str
) -> None:
    monkeypatch.setattr("biosqueeze.training.precision.has_bf16", lambda: bf16)
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: vnni)
    monkeypatch.setattr("biosqueeze.system.processes.sharding", lambda: sharded)
    assert teacher_precision_of(TrainingOptions(precision=precision)) == expected
