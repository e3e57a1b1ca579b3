"""Weights before the training, or their mean with the last, are kept where no step scores as high as they."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from biosqueeze.finetuning.options import FineTuningOptions
from tests.training import runs
from tests.training.interruption import cut_and_resumed, interrupted

OPTIONS = FineTuningOptions(steps=12, eval_every=2, patience=2, batch_size=4, lr=1e-3, precision="fp32", seed=3)
RISING_THEN_LEVEL = {2: 0.3, 4: 0.5, 6: 0.4, 8: 0.5}  # patience ends the training at step 8


def scores(directory: Path, start: float) -> runs.Evaluate:
    """Return scores that depend on the last step alone; before the first step, the score of the start."""

    def score(model: torch.nn.Module) -> dict[str, float]:
        log = runs.log_of(directory)
        return {"f1": RISING_THEN_LEVEL[log[-1]["step"]] if log else start}

    return score


def trained(directory: Path, options: FineTuningOptions, start: float) -> runs.Run:
    return runs.run(directory, options, evaluate=scores(directory, start), keeps_better_start=True)


@pytest.mark.parametrize("schedule", ["linear", "plateau"])
def test_better_start_is_kept(schedule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {name: tensor.clone() for name, tensor in runs.model_of().state_dict().items()}
    done = trained(tmp_path, replace(OPTIONS, schedule=schedule), start=0.51)
    assert all(torch.equal(done.weights[name], tensor) for name, tensor in before.items())
    assert (done.summary.best_step, done.summary.best, done.summary.start_score) == (0, {"f1": 0.51}, 0.51)
    assert "a lower --lr than 0.001" in capsys.readouterr().err


@pytest.mark.parametrize("schedule", ["linear", "plateau"])
def test_ctrl_c_while_the_mean_is_scored_saves_the_state(schedule: str, tmp_path: Path) -> None:
    options = replace(OPTIONS, schedule=schedule)
    whole = trained(tmp_path / "whole", options, start=0.5001)  # the mean, which scores 0.5 too, is kept
    assert whole.summary.is_mean_with_start
    cut, score = tmp_path / "cut", scores(tmp_path / "cut", 0.5001)
    with pytest.raises(KeyboardInterrupt, match="the state at step 8 of 12 is saved"):
        runs.run(cut, options, evaluate=interrupted(score, 6), keeps_better_start=True)
    with pytest.raises(KeyboardInterrupt):
        runs.run(cut, replace(options, resume=True), evaluate=interrupted(score, 1), keeps_better_start=True)
    resumed = runs.run(cut, replace(options, resume=True), evaluate=score, keeps_better_start=True)
    assert runs.same(resumed, whole)
    assert (
        resumed.summary.as_metrics().items() >= {"mean_with_start": True, "best_step": 8, "start_score": 0.5001}.items()
    )


class ScoresOfMean:
    """The start scores 0.51, no step as high, and the mean of the start and the last weights `mean`."""

    def __init__(self, directory: Path, mean: float) -> None:
        self.steps, self.mean = scores(directory, 0.51), mean
        self.scored: list[dict[str, torch.Tensor]] = []  # the weights of each evaluation

    def __call__(self, model: torch.nn.Module) -> dict[str, float]:
        self.scored.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        is_mean = len(self.scored) == 1 + len(RISING_THEN_LEVEL) + 1
        return {"f1": self.mean} if is_mean else self.steps(model)


@pytest.mark.parametrize("schedule", ["linear", "plateau"])
@pytest.mark.parametrize("mean", [0.504, 0.506, 0.6])
def test_mean_with_the_start_is_kept_if_about_as_good(
    mean: float, schedule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate = ScoresOfMean(tmp_path, mean)
    options = replace(OPTIONS, schedule=schedule)
    done = runs.run(tmp_path, options, evaluate=evaluate, keeps_better_start=True)
    start, *_, last, scored = evaluate.scored
    assert all(torch.allclose(scored[name], (start[name] + last[name]) / 2, rtol=0, atol=1e-7) for name in start)
    assert not all(torch.equal(start[name], last[name]) for name in start)
    kept, summary = mean > 0.505, done.summary
    assert all(torch.equal(done.weights[name], tensor) for name, tensor in (scored if kept else start).items())
    assert (summary.is_mean_with_start, summary.best_step, summary.best["f1"]) == (
        kept,
        8 * kept,
        mean if kept else 0.51,
    )
    assert summary.as_metrics().get("mean_with_start", False) == kept
    said = capsys.readouterr().err
    assert f"mean of these weights and of those before training: dev f1 {mean:.4f}" in said
    assert ("a lower --lr than 0.001" in said) != kept


@pytest.mark.parametrize("start", [0.5, 0.4, 0.0])
@pytest.mark.parametrize("schedule", ["linear", "plateau"])
def test_training_is_the_same_as_without_a_scored_start(schedule: str, start: float, tmp_path: Path) -> None:
    """With an equal score, the trained weights are kept."""
    options = replace(OPTIONS, schedule=schedule)
    done = trained(tmp_path / "scored", options, start)
    (tmp_path / "plain").mkdir()
    plain = runs.run(tmp_path / "plain", options, evaluate=scores(tmp_path / "plain", start))
    assert done.log == [{"step": 0, "dev": {"f1": start}}, *plain.log]
    assert runs.same(done, plain)
    assert (done.summary.steps, done.summary.best_step, done.summary.best) == (8, 4, {"f1": 0.5})


@pytest.mark.parametrize("start", [0.51, 0.4])
@pytest.mark.parametrize("at", [2, 3, 5])
def test_interrupted_equals_uninterrupted(at: int, start: float, tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", OPTIONS, start)
    score = scores(tmp_path / "cut", start)
    resumed = cut_and_resumed(tmp_path / "cut", OPTIONS, score, at, keeps_better_start=True)
    assert resumed.log == whole.log
    assert runs.same(resumed, whole)
    assert resumed.summary.best == whole.summary.best
    assert resumed.summary.best_step == whole.summary.best_step
    assert resumed.summary.start_score == whole.summary.start_score == start
