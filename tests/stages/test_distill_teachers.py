"""The stage distill with several teachers."""

import json
from pathlib import Path

import pytest
import torch

from biosqueeze.distillation.training_data.text_strata import LabelPredictor
from biosqueeze.models.int8_products import Int8Linear
from tests import pico
from tests.cli.run import Shell
from tests.metrics_log import read_log
from tests.stages.distilling import QUICK
from tests.tasks.sources import write_data


def test_all_teachers_are_recorded(tuned: Path, tags: Path, tmp_path: Path, shell: Shell) -> None:
    other = shell("finetune", tuned, "--data", tags, "--steps", 2, "--out", tmp_path / "other", *QUICK)
    result = shell(
        "distill --teacher", tuned, "--teacher", other.path, "--teacher-weights", "2,1", "--student", "distil",
        "--data", tags, "--loss", "kl", "--steps", 2, "--out", "student", *QUICK,
    )  # fmt: skip
    assert result.code == 0, result.err
    parents = json.loads(Path("student/biosqueeze.json").read_text())["history"][-1]["parents"]
    assert {"teacher", "teacher 2"} <= set(parents)


@pytest.mark.parametrize("student", ["bert", "roberta"])
def test_teacher_weights(
    student: str, tuned: Path, tags: Path, tmp_path: Path, pico_roberta: Path, shell: Shell
) -> None:
    """A teacher of weight 1e-9 changes nothing, one of equal weight does; with one and with two vocabularies."""
    plain = pico.save("bert", tmp_path / "plain", head="base", seed=1)
    other = shell("finetune", plain, "--data", tags, "--steps", 9, "--lr", "1e-2", "--out", tmp_path / "other", *QUICK)
    learner = ("--student", "distil") if student == "bert" else (pico_roberta,)

    def losses(out: str, *more: object) -> list[float]:
        words = ("distill", *learner, "--teacher", tuned, *more, "--data", tags, "--loss", "kl", "--steps", 2)
        result = shell(*words, "--out", out, "--dropout", 0, *QUICK)
        assert result.code == 0, result.err
        return [step["loss"] for step in read_log(tmp_path / out) if "loss" in step]

    alone = losses("alone")
    assert losses("weightless", "--teacher", other.path, "--teacher-weights", "1,1e-9") == pytest.approx(
        alone, rel=1e-4
    )
    assert losses("equal", "--teacher", other.path) != pytest.approx(alone, rel=1e-2)


def test_layers_of_the_first_of_several_teachers(tuned: Path, tags: Path, tmp_path: Path, shell: Shell) -> None:
    other = shell("finetune", tuned, "--data", tags, "--steps", 2, "--out", tmp_path / "other", *QUICK)
    words = ("distill", "--teacher", tuned, "--teacher", other.path, "--student", "distil", "--data", tags, *QUICK)
    both = shell(*words, "--loss", "kl", "--loss", "hidden", "--steps", 1, "--out", "student")
    assert both.code == 0, both.err
    assert f"hidden compares with the layers of {tuned} alone" in " ".join(both.err.split())
    idle = shell(*words, "--loss", "hidden", "--steps", 1, "--out", "idle")
    assert (idle.code, "other would not be used" in " ".join(idle.err.split())) == (2, True), idle.err
    assert not Path("idle").exists()


@pytest.mark.parametrize(
    ("kind", "changed", "found", "wanted"),
    [
        (
            "relation",
            {"formulation": {"entities": "markers"}},
            "relation with one label each and --entities markers",
            "relation with one label each and --entities dummy",
        ),
        (
            "classification",
            {"scheme": "multi"},
            "classification with any number of labels",
            "classification with one label each",
        ),
        ("nli", {"name": "classification"}, "classification with one label each", "nli with one label each"),
    ],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_teachers_of_one_formulation(
    dry: tuple[str, ...], kind: str, changed: dict[str, object], found: str, wanted: str, pico_bert: Path, shell: Shell
) -> None:
    """Equal labels are not enough: the logits of one of them would be those of other inputs, or mean something else."""
    Path("data").mkdir()
    data = write_data(Path("data"), kind)
    words = ("--data", data, "--task", kind, "--steps", 1)
    tuned = [shell("finetune", pico_bert, *words, "--seed", seed, "--out", f"t{seed}", *QUICK) for seed in (0, 1)]
    assert [each.code for each in tuned] == [0, 0], tuned[0].err
    distill = ("distill --student distil --teacher t0 --teacher t1 --loss kl --steps 1 --out s --data", data, *QUICK)
    manifest = json.loads(Path("t1/biosqueeze.json").read_text())
    manifest["task"] |= changed
    same = shell(*distill, *dry)
    assert same.code == 0, same.err
    Path("t1/biosqueeze.json").write_text(json.dumps(manifest))
    other = shell(*distill, "--force", *dry)
    assert other.code == 1
    assert f"t1 was fine-tuned for {found} and t0 for {wanted}; give teachers" in other.err


@pytest.mark.skipif(not torch.cpu._is_vnni_supported(), reason="needs a CPU with VNNI")
def test_a_teacher_in_int8_says_so(tuned: Path, tags: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("biosqueeze.training.precision.has_bf16", lambda: False)
    monkeypatch.setattr("biosqueeze.models.int8_products._LEAST_INPUTS", 1)

    def losses(out: str, *more: object) -> tuple[str, list[float]]:
        words = ("distill --teacher", tuned, "--student distil --data", tags, "--steps 3 --dropout 0 --out", out)
        result = shell(*(part for word in words for part in str(word).split()), "--max-length", 32, *more)
        assert result.code == 0, result.err
        return result.err, [step["loss"] for step in read_log(Path(out)) if "loss" in step]

    said, int8 = losses("int8")
    assert "the teacher computes its matrix products in int8" in said
    said, fp32 = losses("fp32", "--precision", "fp32")
    assert "int8" not in said
    assert int8 == pytest.approx(fp32, rel=0.02)
    assert int8 != fp32
    manifest = json.loads(Path("int8/biosqueeze.json").read_text())
    assert manifest["metrics"]["teacher_compute"] == "int8"


@pytest.mark.skipif(not torch.cpu._is_vnni_supported(), reason="needs a CPU with VNNI")
@pytest.mark.parametrize(("precision", "in_int8"), [("auto", True), ("fp32", False)])
def test_text_is_compared_in_int8_too(
    precision: str, in_int8: bool, tuned: Path, tags: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("biosqueeze.training.precision.has_bf16", lambda: False)
    monkeypatch.setattr("biosqueeze.models.int8_products._LEAST_INPUTS", 1)
    predictors: list[LabelPredictor] = []
    monkeypatch.setattr(
        "biosqueeze.distillation.training_data.datasets.text_strata", lambda predictor, *_: predictors.append(predictor)
    )
    Path("text.txt").write_text("the cells of patients\n" * 50)
    words = ("distill", "--teacher", tuned, "--student", "distil", "--data", tags, "--corpus", "text.txt", "--steps", 1)
    result = shell(*words, "--max-length", 32, "--precision", precision, "--out", "student")
    assert result.code == 0, result.err
    (predictor,) = predictors
    assert any(isinstance(module, Int8Linear) for module in predictor.model.modules()) == in_int8
