"""Students of the stage distill that are fine-tuned before they are distilled."""

import json
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

from biosqueeze.data.output_types import TOKENS
from biosqueeze.distillation import warm_start
from biosqueeze.files.saved_states import PROGRESS_FILE, state_folder
from biosqueeze.training.options import TrainingOptions
from biosqueeze.training.sources import Mixture
from tests.cli.run import Shell, start
from tests.metrics_log import read_log
from tests.stages.distilling import QUICK
from tests.training import runs


def test_warm_start(tuned: Path, tags: Path, shell: Shell) -> None:
    result = shell(
        "distill --teacher", tuned, "--student", "distil", "--data", tags, "--epochs", 1, "--lr", "5e-3",
        "--warm-start", "finetune", "--warm-epochs", 2, "--out", "student", *QUICK,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "warm start: f1" in result.err
    warm = [json.loads(line) for line in Path("student/warm-start.jsonl").read_text().splitlines()]
    assert len([line for line in warm if "dev" in line]) == 2
    assert {"labels"} <= set(warm[0])
    assert not list(Path("student").glob("warm-start/*"))
    start, first, *_ = read_log(Path("student"))
    assert start["dev"]["f1"] == max(line["dev"]["f1"] for line in warm if "dev" in line)
    assert "kl" in first


def test_the_warm_start_has_the_same_dropout(
    tuned: Path, tags: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[float]] = []

    def looking(models: Any, *rest: Any) -> Any:
        seen.append({module.p for module in models.student.modules() if isinstance(module, torch.nn.Dropout)})
        return warm_start.warm_start(models, *rest)

    monkeypatch.setattr("biosqueeze.distillation.pipeline.warm_start", looking)
    words = ("--warm-start", "finetune", "--dropout", 0, "--steps", 1, "--loss", "kl", "--out", "student", *QUICK)
    assert shell("distill --teacher", tuned, "--student", "distil", "--data", tags, *words).code == 0
    assert seen == [{0.0}]


def test_interrupted_warm_start_continues(tuned: Path, tags: Path, shell: Shell) -> None:
    words = (
        "distill", "--teacher", tuned, "--student", "distil", "--data", tags, "--steps", 6, "--lr", "5e-3",
        "--warm-start", "finetune", "--warm-epochs", 2, "--save-every", 3, *QUICK,
    )  # fmt: skip
    assert shell(*words, "--out", "whole").code == 0
    for phase in ("warm-start", "."):
        killed_when(Path(f"{phase}-cut.partial") / phase, [*words, "--out", f"{phase}-cut"])
        if phase == "warm-start":
            cold = [word for word in words if word not in ("--warm-start", "finetune", "--warm-epochs", 2)]
            result = shell(*cold, "--out", f"{phase}-cut", "--resume")
            assert (result.code, "holds the state of a warm start alone" in result.err) == (1, True), result.err
        result = shell(*words, "--out", f"{phase}-cut", "--resume")
        assert result.code == 0, result.err
        assert weights(Path(f"{phase}-cut")) == weights(Path("whole"))
        assert [m["step"] for m in read_log(Path(f"{phase}-cut"))] == [m["step"] for m in read_log(Path("whole"))]


def test_a_warm_start_does_not_continue_on_other_data(tuned: Path, tags: Path, shell: Shell) -> None:
    words = (
        "distill", "--teacher", tuned, "--student", "distil", "--steps", 2, "--warm-start", "finetune",
        "--warm-epochs", 2, "--save-every", 1, "--out", "student", *QUICK,
    )  # fmt: skip
    killed_when(Path("student.partial/warm-start"), [*words, "--data", tags])
    shutil.copytree(tags, "others")
    (train,) = Path("others").glob("train*")
    sentences = train.read_text().strip().split("\n\n")
    train.write_text("\n\n".join(reversed(sentences)) + "\n")
    result = shell(*words, "--data", "others", "--resume")
    assert result.code == 1
    assert "student.partial/warm-start was started with other values of data or corpus" in result.err
    assert shell(*words, "--data", tags, "--resume").code == 0


@pytest.mark.parametrize("has_old_state", [False, True])
def test_a_second_process_may_be_the_first(
    has_old_state: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The main process has not yet made OUT.partial, or not yet removed what --force discards there."""
    out = tmp_path / "out.partial"
    if has_old_state:
        state_folder(out, 2).mkdir(parents=True)
        (state_folder(out, 2) / PROGRESS_FILE).touch()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr("biosqueeze.training.loop.build_accelerator", mock.Mock(side_effect=InterruptedError))
    models = SimpleNamespace(student=runs.model_of(), output_type=TOKENS, metric="f1")
    data = SimpleNamespace(labelled=Mixture(runs.windows(), None, 0.0, 0), dev=None)
    request = SimpleNamespace(training=TrainingOptions(force=True), warm_epochs=1.0)
    with pytest.raises(InterruptedError):
        warm_start.warm_start(models, data, request, {}, out)


def test_what_its_tracker_wrote_is_kept(tmp_path: Path) -> None:
    (tmp_path / "warm-start/runs").mkdir(parents=True)
    (tmp_path / "warm-start/runs/events").write_text("losses")
    warm_start.keep_log(tmp_path)
    assert (tmp_path / "runs/warm-start/events").read_text() == "losses"
    assert not (tmp_path / "warm-start").exists()


def weights(path: Path) -> bytes:
    return (path / "model.safetensors").read_bytes()


def killed_when(folder: Path, words: Sequence[object]) -> None:
    """Start a command, and kill it when the folder has a training state."""
    running = start(*words, log=Path("log"))
    running.wait_for(lambda: list(folder.glob("state-*")))
    running.end(signal.SIGKILL)
