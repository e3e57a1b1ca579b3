"""The teacher's score on dev, which the student's is compared with: recorded, or evaluated at the start."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from biosqueeze.distillation.teachers import score as teacher_score
from biosqueeze.finetuning.dev_evaluation import DevSet
from biosqueeze.training.optimiser import schedules
from tests.cli.run import Shell
from tests.tagged_sentences import tags, tune, tuned

__all__ = ["tags", "tuned"]  # fixtures, apart from those of the stages: `evaluate` writes into the model

QUICK = ["--precision", "fp32", "--batch-size", "8", "--max-length", "64"]


@pytest.mark.parametrize(
    ("changes", "score"),
    [
        ({}, 0.8),
        ({"data": "other"}, None),
        ({"dev_share": 0.1}, None),
        ({"made": {"dev_share": 0.1, "seed": 0}, "dev_share": 0.1}, 0.8),
        ({"made": {"dev_share": 0.1, "seed": 3}, "dev_share": 0.1}, None),
        ({"made": {"with_dev": True}}, None),
        ({"stage": "distill"}, None),
        ({"metric": "accuracy"}, None),
        ({"length": 32}, None),
        ({"reading": {"types": ["Disease"]}}, None),
    ],
)
def test_recorded_score_is_of_the_same_dev_split(changes: dict[str, object], score: float | None) -> None:
    values = {"data": "ncbi", "dev_share": None, "made": {}, "stage": "finetune", "metric": "f1", "length": 64}
    values |= {"reading": {}} | changes
    history = [SimpleNamespace(options=values["made"], inputs={})]
    manifest = SimpleNamespace(stage=values["stage"], metrics={"f1": 0.8}, history=history)
    task = SimpleNamespace(data="ncbi", max_length=64, formulation={"scheme": "BIO"})
    formulation = SimpleNamespace(non_defaults=lambda: {"scheme": "BIO", **values["reading"]})
    request = SimpleNamespace(
        models=SimpleNamespace(teachers=[SimpleNamespace(manifest=manifest, task=task)]),
        data=SimpleNamespace(data=values["data"], dev_share=values["dev_share"], seed=0),
    )
    models = SimpleNamespace(
        metric=values["metric"], length=values["length"], known_task=SimpleNamespace(formulation=formulation)
    )
    assert teacher_score.recorded_score(request, models) == score


def test_evaluated_where_nothing_is_recorded(tuned: Path, tags: Path, shell: Shell, tmp_path: Path) -> None:
    """The same data in another directory: the teacher's score is computed, and is that of `evaluate`."""
    moved = shutil.copytree(tags, tmp_path / "moved")
    evaluated = shell("evaluate", tuned, "--data", moved, "--split", "dev", "--json")
    expected = json.loads(evaluated.out)["metrics"]["f1"]
    for data in (tags, moved):
        made = shell(
            *("distill --student distil --steps 2 --teacher", tuned, "--data", data, *QUICK),
            *("--out", f"of-{data.name}", "--json"),
        )
        assert made.code == 0, made.err
        assert json.loads(made.out)["metrics"]["teacher_score"] == pytest.approx(expected, abs=1e-6)
        assert f"teacher: dev f1 {expected:.4f}" in made.err
        assert f"of the teacher's {expected:.4f}" in made.err


def test_evaluated_where_the_files_have_changed(tuned: Path, tags: Path, shell: Shell) -> None:
    """The same path, and other dev sentences than those of the recorded score."""
    shutil.copytree(tags, "data")
    teacher = shell("finetune", tuned, "--data", "data", "--steps", 2, "--out", "teacher", *QUICK)
    assert teacher.code == 0, teacher.err
    shutil.copy(Path("data", "train.tsv"), Path("data", "dev.tsv"))
    Path("data", "test.tsv").unlink()
    evaluated = shell("evaluate", "teacher", "--data", "data", "--split", "dev", "--json")
    made = shell("distill --student distil --steps 2 --teacher teacher --data data --out of --json", *QUICK)
    assert made.code == 0, made.err
    found, recorded = (json.loads(each)["metrics"] for each in (made.out, Path("teacher/biosqueeze.json").read_text()))
    assert found["teacher_score"] == pytest.approx(json.loads(evaluated.out)["metrics"]["f1"], abs=1e-6)
    assert found["teacher_score"] != pytest.approx(recorded["f1"], abs=1e-3)


@pytest.mark.parametrize(
    ("tuning", "words", "says"),
    [
        ("--dev-share 0.25 --seed 3", "--dev-share 0.25 --seed 3", ""),
        ("--dev-share 0.25 --seed 3", "--dev-share 0.25", "give --dev-share 0.25 --seed 3, as in its fine-tuning"),
        ("--dev-share 0.25 --seed 3", "", ""),
        ("", "--dev-share 0.25", "leave --dev-share out"),
        ("--dev-share 0.25 --with-dev", "--dev-share 0.25", "compare the two on the test split"),
        ("--dev-share 0.25 --with-dev", "", "compare the two on the test split"),
    ],
)
def test_a_teacher_that_was_trained_on_dev(
    tuning: str, words: str, says: str, tuned: Path, tags: Path, shell: Shell
) -> None:
    teacher = shell(f"finetune {tuned} --data {tags} --steps 2 --out teacher {tuning}", *QUICK)
    assert teacher.code == 0, teacher.err
    made = shell(f"distill --student distil --steps 2 --teacher teacher --data {tags} --out of {words}", *QUICK)
    assert made.code == 0, made.err
    warned = "teacher was trained on examples of this dev split, so its score there is too high"
    assert (warned in made.err, says in made.err) == (bool(says), True), made.err
    assert ("examples of train are held out as dev" in made.err) == ("--dev-share" in words)


def test_a_cut_teacher_that_was_trained_on_dev(tuned: Path, tags: Path, shell: Shell) -> None:
    held_out = ("--dev-share", 0.25, "--with-dev")
    assert shell("finetune", tuned, "--data", tags, "--steps", 2, *held_out, "--out", "teacher", *QUICK).code == 0
    assert shell("shrink teacher --ffn 32 --out small").code == 0
    made = shell("distill --student distil --steps 2 --teacher small --data", tags, *QUICK, "--out", "of")
    assert made.code == 0, made.err
    assert "small was trained on examples of this dev split" in made.err


def test_a_student_of_another_vocabulary(tuned: Path, tags: Path, shell: Shell, tmp_path: Path) -> None:
    """Nothing is recorded for the moved data, and its dev split is encoded for the student alone."""
    student = tune("roberta", tags, tmp_path)
    moved = shutil.copytree(tags, tmp_path / "moved")
    made = shell("distill", student, "--steps", 2, "--teacher", tuned, "--data", moved, *QUICK, "--out", "of", "--json")
    assert made.code == 0, made.err
    assert "teacher_score" not in json.loads(made.out)["metrics"]


@pytest.mark.parametrize(("share", "steps"), [(2.0, 12), (1.0, 12), (0.999, 21)])
def test_ends_sooner_at_the_teachers_score(share: float, steps: int, tuned: Path, tags: Path, shell: Shell) -> None:
    """No score is better than that of the first evaluation, at step 3: three more from the teacher's on, or six."""
    evaluator = mock.Mock(return_value=lambda model: {"f1": 0.5})
    with (
        mock.patch.object(schedules, "PLATEAU_EVAL_EVERY", 3),
        mock.patch.object(teacher_score, "recorded_score", return_value=0.5 / share),
        mock.patch.object(DevSet, "evaluator", evaluator),
    ):
        made = shell(
            *("distill --student distil --teacher", tuned, "--data", tags, *QUICK, "--lr", 1e-12),
            *("--steps", 60, "--schedule", "plateau", "--out", "of", "--json"),
        )
    assert made.code == 0, made.err
    assert json.loads(made.out)["metrics"]["steps"] == steps


def test_not_of_a_student_that_is_not_scored(tuned: Path, tags: Path, shell: Shell) -> None:
    """No loss trains the new head of this student, so there is nothing to compare."""
    student = tuned.parent / "untuned-bert"
    made = shell("distill", student, "--teacher", tuned, "--data", tags, "--loss", "hidden", "--steps", 2, *QUICK)
    assert made.code == 0, made.err
    assert "saved without a head" in made.err
    assert "teacher: dev" not in made.err
    assert json.loads(Path(made.path, "biosqueeze.json").read_text())["task"] is None
    assert "next: biosqueeze finetune" in made.err
