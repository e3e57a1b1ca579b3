"""Teachers as others publish them: without a manifest, with other tags, names or config.json than ours."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests import pico
from tests.cli.run import Shell
from tests.metrics_log import read_log
from tests.stages.distilling import QUICK

SHORT = (*QUICK, "--steps", 2)


def published(source: Path, target: Path, **config: object) -> Path:
    """Copy a checkpoint without its manifest, with other values in config.json; None removes a key."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("biosqueeze.json", "results", "metrics.jsonl"))
    path = target / "config.json"
    values = json.loads(path.read_text()) | config
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))
    return target


def named(*labels: str) -> dict[str, object]:
    return {"id2label": dict(enumerate(labels)), "label2id": {label: n for n, label in enumerate(labels)}}


@pytest.mark.parametrize(
    "labels",
    [
        ("O", "B-Disease", "E-Disease", "I-Disease", "S-Disease"),
        ("O", "I-Disease"),
        ("B-Disease", "I-Disease", "L-Disease", "O", "U-Disease"),
    ],
)
def test_tags_of_other_schemes(labels: tuple[str, ...], tags: Path, tmp_path: Path, shell: Shell) -> None:
    teacher = pico.save("bert", tmp_path / "teacher", head="token-classification", labels=labels)
    scored = shell("evaluate", teacher, "--data", tags, "--json")
    assert scored.code == 0, scored.err
    made = shell("distill", teacher, "--teacher", teacher, "--data", tags, *SHORT, "--out", "student")
    assert made.code == 0, made.err
    assert list(json.loads(Path("student/config.json").read_text())["id2label"].values()) == list(labels)


def test_labels_in_another_order(tuned: Path, tags: Path, tmp_path: Path, shell: Shell) -> None:
    """The student's classifier is put into the teacher's order, and is as good as it was."""
    config = json.loads((tuned / "config.json").read_text())
    names = [config["id2label"][str(number)] for number in range(3)]
    order = [2, 0, 1]
    student = published(tuned, tmp_path / "student", **named(*(names[number] for number in order)))
    weights = load_file(student / "model.safetensors")
    weights |= {name: weights[name][order] for name in ("classifier.weight", "classifier.bias")}
    save_file(weights, student / "model.safetensors", {"format": "pt"})
    made = shell("distill", student, "--teacher", tuned, "--data", tags, *SHORT, "--lr", "1e-9", "--out", "out")
    assert made.code == 0, made.err
    assert next(line["dev"]["f1"] for line in read_log("out") if "dev" in line) > 0.7


def test_keys_of_id2label_in_another_order(tuned: Path, tags: Path, tmp_path: Path, shell: Shell) -> None:
    names = json.loads((tuned / "config.json").read_text())["id2label"]
    student = published(tuned, tmp_path / "student", id2label=dict(sorted(names.items(), reverse=True)))
    made = shell("distill", student, "--teacher", tuned, "--data", tags, *SHORT, "--lr", "1e-9", "--out", "out")
    assert made.code == 0, made.err
    assert next(line["dev"]["f1"] for line in read_log("out") if "dev" in line) > 0.7


@pytest.mark.parametrize("label", ["score", "LABEL_0"])
def test_a_score_without_problem_type(label: str, tmp_path: Path, shell: Shell) -> None:
    plain = pico.save("bert", tmp_path / "plain", head="sequence-classification", labels=(label,))
    teacher = published(plain, tmp_path / "teacher", problem_type=None)
    for split in ("train", "dev", "test"):
        sentences = pairwise(pico.sentences(24, seed=len(split) + ord(split[0])))
        rows = [f"{first}\t{second}\t{n % 5}" for n, (first, second) in enumerate(sentences)]
        (tmp_path / f"{split}.tsv").write_text("sentence1\tsentence2\tscore\n" + "\n".join(rows) + "\n")
    words = ("--teacher", teacher, "--task", "similarity", "--data", tmp_path, *SHORT, "--out", "out")
    made = shell("distill --student distil", *words)
    assert made.code == 0, made.err
    assert all(line["loss"] > 0 for line in read_log("out") if "loss" in line)
    assert json.loads(Path("out/config.json").read_text())["problem_type"] == "regression"
    assert shell("evaluate", teacher, "--task", "similarity", "--data", tmp_path).code == 0


def test_teacher_without_names_of_labels(tags: Path, tmp_path: Path, shell: Shell) -> None:
    nameless = ("LABEL_0", "LABEL_1", "LABEL_2")
    teacher = pico.save("bert", tmp_path / "teacher", head="token-classification", labels=nameless)
    made = shell("distill", teacher, "--teacher", teacher, "--data", tags, *SHORT)
    assert made.code == 1
    assert "the teacher has no names of its labels (id2label in config.json" in made.err


def test_another_task_than_that_of_the_manifest(tuned: Path, tags: Path, shell: Shell) -> None:
    made = shell("distill", tuned, "--teacher", tuned, "--task", "pico", "--data", tags, *SHORT, "--out", "out")
    assert made.code == 0, made.err


def test_the_student_predicts_as_its_teacher_does(tmp_path: Path, shell: Shell) -> None:
    """A student that was trained on several labels at once becomes one of single labels."""
    for name, kind in (("student", "multi_label_classification"), ("teacher", None)):
        pico.save("bert", tmp_path / "plain", head="sequence-classification", labels=("a", "b"))
        published(tmp_path / "plain", tmp_path / name, problem_type=kind)
    for split in ("train", "dev"):
        lines = (f"{sentence}\t{'ab'[n % 2]}" for n, sentence in enumerate(pico.sentences(12, seed=len(split))))
        (tmp_path / f"{split}.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n")
    words = ("--teacher", tmp_path / "teacher", "--task", "classification", "--data", tmp_path, *SHORT, "--out", "out")
    made = shell("distill", tmp_path / "student", *words)
    assert made.code == 0, made.err
    assert json.loads(Path("out/config.json").read_text())["problem_type"] == "single_label_classification"


def test_losses_that_train_no_head_have_epochs(tuned: Path, tags: Path, pico_bert: Path, shell: Shell) -> None:
    words = ("--teacher", tuned, "--data", tags, "--loss", "hidden", "--precision", "fp32", "--max-length", "32")
    made = shell("distill", pico_bert, *words, "--out", "out")
    assert made.code == 0, made.err
    assert "no dev score can end the training: it has 3 epochs" in made.err
