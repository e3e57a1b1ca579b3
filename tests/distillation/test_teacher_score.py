"""The teacher's score on dev, which the student's is compared with: recorded, or evaluated at the start."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from biosqueeze.distillation import teacher_score
from biosqueeze.training import schedules
from tests.cli.run import Shell
from tests.stages.test_distill import tags, tune

__all__ = ["tags"]

QUICK = ["--precision", "fp32", "--batch-size", "8", "--max-length", "64"]


@pytest.fixture(scope="module")
def tuned(tags: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tune("bert", tags, tmp_path_factory.mktemp("score"))


@pytest.mark.parametrize(
    ("changes", "score"),
    [
        ({}, 0.8),
        ({"data": "other"}, None),
        ({"dev_share": 0.1, "seed": 0}, None),
        ({"made": {"dev_share": 0.1, "seed": 0}, "dev_share": 0.1, "seed": 0}, 0.8),
        ({"made": {"dev_share": 0.1, "seed": 3}, "dev_share": 0.1, "seed": 0}, None),
        ({"made": {"with_dev": True}}, None),
        ({"stage": "distill"}, None),
        ({"metric": "accuracy"}, None),
    ],
)
def test_recorded_score_is_of_the_same_dev_split(changes: dict[str, object], score: float | None) -> None:
    values = {"data": "ncbi", "dev_share": None, "seed": None, "made": {}, "stage": "finetune", "metric": "f1"}
    values |= changes
    history = [SimpleNamespace(options=values["made"])]
    manifest = SimpleNamespace(stage=values["stage"], metrics={"f1": 0.8}, history=history)
    teacher = SimpleNamespace(manifest=manifest, task=SimpleNamespace(data="ncbi"))
    asked = [values[name] for name in ("metric", "data", "dev_share", "seed")]
    assert teacher_score.recorded_score(teacher, *asked) == score


def test_evaluated_where_nothing_is_recorded(tuned: Path, tags: Path, shell: Shell, tmp_path: Path) -> None:
    """The same data in another directory: the teacher's score is computed, and is that of `evaluate`."""
    moved = shutil.copytree(tags, tmp_path / "moved")
    evaluated = shell("evaluate", tuned, "--data", moved, "--split", "dev", "--json")
    expected = json.loads(evaluated.out)["metrics"]["f1"]
    for data in (tags, moved):
        with mock.patch.object(teacher_score, "recorded_score", wraps=teacher_score.recorded_score) as recorded:
            made = shell(
                *("distill --student distil --steps 2 --teacher", tuned, "--data", data, *QUICK),
                *("--out", f"of-{data.name}", "--json"),
            )
        assert made.code == 0, made.err
        assert recorded.called
        assert json.loads(made.out)["metrics"]["teacher_score"] == pytest.approx(expected, abs=1e-6)
        assert f"teacher: dev f1 {expected:.4f}" in made.err
        assert f"of the teacher's {expected:.4f}" in made.err


def test_a_student_of_another_vocabulary(tuned: Path, tags: Path, shell: Shell, tmp_path: Path) -> None:
    """Nothing is recorded for the moved data, and its dev split is encoded for the student alone."""
    student = tune("roberta", tags, tmp_path)
    moved = shutil.copytree(tags, tmp_path / "moved")
    made = shell("distill", student, "--steps", 2, "--teacher", tuned, "--data", moved, *QUICK, "--out", "of", "--json")
    assert made.code == 0, made.err
    assert "teacher_score" not in json.loads(made.out)["metrics"]


@pytest.mark.parametrize(("score", "falls_from"), [(0.0, 12), (2.0, 21)])
def test_ends_sooner_where_it_is_reached(score: float, falls_from: int, tuned: Path, tags: Path, shell: Shell) -> None:
    """No score is better than that of the first evaluation, at step 3: three more, or six."""
    with (
        mock.patch.multiple(schedules, PLATEAU_EVAL_EVERY=3, PLATEAU_PATIENCE_STEPS=0),
        mock.patch.object(teacher_score, "recorded_score", return_value=score),
    ):
        made = shell(
            *("distill --student distil --teacher", tuned, "--data", tags, *QUICK, "--lr", 1e-12),
            *("--steps", 60, "--schedule", "plateau", "--out", "of", "--json"),
        )
    assert made.code == 0, made.err
    assert json.loads(made.out)["metrics"]["rate_falls_from"] == falls_from
