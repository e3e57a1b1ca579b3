"""The entries of metrics.jsonl are logged to a tracker too."""

import errno
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
from accelerate import Accelerator

from biosqueeze.errors import SqueezeError
from biosqueeze.finetuning.options import FineTuningOptions
from biosqueeze.training.metrics_log import MetricsLog
from biosqueeze.training.trackers import check_tracker, tracking
from tests.training import runs

PLAIN = FineTuningOptions(steps=6, batch_size=4, lr=1e-3, precision="fp32", seed=3, eval_every=3)


def evaluate(model: object) -> dict[str, float]:
    return {"f1": 0.5, "support": 7.0}


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return (step, value) pairs by tag, as TensorBoard reads them."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder)).Reload()
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def test_tensorboard_has_what_metrics_jsonl_has(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    plain = runs.run(tmp_path / "plain", PLAIN, evaluate=evaluate)
    tracked = runs.run(tmp_path / "tracked", replace(PLAIN, tracker="tensorboard"), evaluate=evaluate)
    assert tracked.log == plain.log
    assert runs.same(tracked, plain)
    found = scalars(tmp_path / "tracked" / "runs" / "biosqueeze")
    assert {"loss", "labels", "lr", "tokens", "dev/f1", "dev/support"} <= set(found)
    losses = [(line["step"], pytest.approx(line["loss"])) for line in plain.log if "loss" in line]
    assert found["loss"] == losses
    assert found["dev/f1"] == [(3, 0.5), (6, 0.5)]
    assert not (tmp_path / "plain" / "runs").exists()


def test_a_resumed_run_has_each_step_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    options = replace(PLAIN, tracker="tensorboard", save_every=2)

    def broken(model: object) -> dict[str, float]:
        raise SqueezeError("the power went")

    with pytest.raises(SqueezeError, match="the power went"):
        runs.run(tmp_path, options, evaluate=broken)
    runs.run(tmp_path, replace(options, resume=True), evaluate=evaluate)
    assert [step for step, _ in scalars(tmp_path / "runs" / "biosqueeze")["loss"]] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_tracker_names_the_pip_line(name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SqueezeError, match=rf'pip install "biosqueeze\[{name}\]"'):
        check_tracker(replace(PLAIN, tracker=name))


@pytest.mark.parametrize(
    ("directory", "name"), [("a/out.partial", "out"), ("a/out.partial/warm-start", "out-warm-start")]
)
def test_runs_are_named_after_the_output(directory: str, name: str) -> None:
    accelerator = mock.Mock(trackers=[])
    with tracking(accelerator, replace(PLAIN, tracker="wandb"), Path(directory), 0):
        assert accelerator.init_trackers.call_args.args[2] == {"wandb": {"name": name}}


def test_a_tracker_that_does_not_start_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object) -> None:
        raise OSError("no API key\nand more")

    monkeypatch.setitem(sys.modules, "wandb", ModuleType("wandb"))
    monkeypatch.setattr("accelerate.Accelerator.init_trackers", broken)
    with pytest.raises(SqueezeError) as caught:
        runs.run(tmp_path, replace(PLAIN, tracker="wandb"), evaluate=evaluate)
    assert str(caught.value).startswith("--tracker wandb cannot be started (no API key); log in with `wandb login`")


def test_a_tracker_that_fails_later_does_not_end_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def log(self: Any, values: dict[str, Any], step: int, **_: Any) -> None:
        raise RuntimeError("no connection")

    monkeypatch.setattr("accelerate.tracking.TensorBoardTracker.log", log)
    monkeypatch.setattr("accelerate.tracking.TensorBoardTracker.finish", lambda self: log(self, {}, 0))
    pytest.importorskip("tensorboard")
    runs.run(tmp_path, replace(PLAIN, tracker="tensorboard"), evaluate=evaluate)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert len([line for line in lines if "loss" in line]) > 1
    said = capsys.readouterr().err
    assert said.count("the tracker failed at step 1 (no connection)") == 1
    assert said.count("the tracker could not be finished (no connection)") == 1


def test_names_of_labels_are_those_that_mlflow_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: set[str] = set()
    monkeypatch.setattr("accelerate.Accelerator.log", lambda self, values, step: names.update(values))
    log = MetricsLog(Accelerator(cpu=True), tmp_path)
    with log.opened():
        log.write(1, {"dev": {"f1-Amino Acid, Peptide (or Protein)": 0.5}})
    assert names == {"dev/f1-Amino Acid_ Peptide _or Protein_"}


def test_a_full_disk_keeps_the_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed run leaves the lines after its state out."""
    log = MetricsLog(Accelerator(cpu=True), tmp_path)
    with log.opened():
        for step in (1, 2, 3):
            log.write(step, {"loss": 0.5})
    written = (tmp_path / "metrics.jsonl").read_text()
    with monkeypatch.context() as full:
        full.setattr("os.fsync", mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(OSError, match="No space left"):
            log.cut_after(2)
    assert (tmp_path / "metrics.jsonl").read_text() == written
    log.cut_after(2)
    assert [line["step"] for line in runs.log_of(tmp_path)] == [1, 2]
