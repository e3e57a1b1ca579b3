"""The stage distill on tasks: labelled and unlabelled examples, columns, lengths, and heads that are missing."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoModelForTokenClassification

from tests import pico
from tests.cli.run import Shell
from tests.metrics_log import read_log
from tests.stages.distilling import QUICK, fall


def test_task_distillation_with_unlabelled_text(tuned: Path, tags: Path, text: Path, shell: Shell) -> None:
    result = shell(
        "distill --teacher", tuned, "--student", "distil", "--data", tags, "--corpus", text, "--epochs", 12,
        "--lr", "5e-3", "--out", "student", *QUICK,
    )  # fmt: skip
    assert result.code == 0, result.err
    manifest = json.loads(Path(result.path, "biosqueeze.json").read_text())
    assert manifest["task"]["labels"] == list(pico.LABELS)
    assert manifest["metrics"]["f1"] > 0.8
    assert manifest["metrics"]["losses"] == {"kl": 1.0, "attention-kl": 1.0}
    steps = [m for m in read_log(Path(result.path)) if "loss" in m]
    assert fall(steps, "kl") < 0.5
    assert fall(steps, "attention-kl") < 0.6
    assert fall(steps, "loss") < 0.5
    _, info = AutoModelForTokenClassification.from_pretrained(result.path, output_loading_info=True)
    assert not info["missing_keys"]


def test_task_distillation_on_text_alone(tuned: Path, text: Path, shell: Shell) -> None:
    result = shell(
        "distill --teacher", tuned, "--student", "distil", "--corpus", text, "--steps", 3, "--out", "x", *QUICK
    )
    assert result.code == 0, result.err


@pytest.mark.parametrize("warm", [(), ("--warm-start", "finetune", "--warm-epochs", 0.2)])
def test_untrained_head_is_not_evaluated(warm: tuple[object, ...], tuned: Path, tags: Path, shell: Shell) -> None:
    result = shell(
        "distill --teacher", tuned, "--student", "tiny", "--data", tags, "--loss", "hidden", "--steps", 3,
        "--eval-every", 1, "--out", "student", *QUICK, *warm,
    )  # fmt: skip
    if not warm:
        assert (result.code, "no loss trains the student's head (--loss hidden)" in result.err) == (2, True), result.err
        words = ("distill", "--teacher", tuned, "--student", "tiny", "--data", tags, "--loss", "hidden", "--steps", 3)
        result = shell(*words, "--out", "student", *QUICK)
    assert result.code == 0, result.err
    (architecture,) = json.loads(Path("student/config.json").read_text())["architectures"]
    evaluated = any("dev" in line for line in read_log(Path("student")))
    assert (evaluated, architecture) == (bool(warm), "BertForTokenClassification" if warm else "BertModel")


def test_default_length_is_that_of_the_teacher(tuned: Path, tags: Path, shell: Shell) -> None:
    for words, length in (((), 64), (("--max-length", 32), 32)):
        result = shell(
            "distill --teacher", tuned, "--student", "distil", "--data", tags, "--steps", 1, "--out", f"s{length}",
            *words,
        )  # fmt: skip
        assert result.code == 0, result.err
        noted = json.loads(Path(f"s{length}/biosqueeze.json").read_text())
        assert (noted["task"]["max_length"], noted["history"][-1]["options"]["max_length"]) == (length, length)


def test_teacher_without_the_head_of_its_task_raises(tuned: Path, tags: Path, tmp_path: Path, shell: Shell) -> None:
    words = ("distill", "--student", "distil", "--data", tags, "--steps", 1, "--out", "student", *QUICK, "--teacher")
    other = shell(*words, tuned, "--task", "qa")
    assert (other.code, "has no trained question-answering head" in other.err) == (1, True), other.err
    headless = shutil.copytree(tuned, tmp_path / "headless")
    weights = load_file(headless / "model.safetensors")
    body = {name: tensor for name, tensor in weights.items() if not name.startswith("classifier")}
    save_file(body, headless / "model.safetensors", {"format": "pt"})
    without = shell(*words, headless)
    assert (without.code, "has no trained token-classification head" in without.err) == (1, True), without.err
    assert not (tmp_path / "student").exists()


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_plain_text_for_pairs_raises(dry: tuple[str, ...], tmp_path: Path, shell: Shell) -> None:
    teacher = pico.save("bert", tmp_path / "teacher", head="sequence-classification")
    words = ("distill", *dry, "--teacher", teacher, "--task", "nli", "--student", "distil", "--out", "x", "--corpus")
    result = shell(*words, "demo:text")
    assert (result.code, "give JSON lines" in result.err) == (1, True), result.err
    (tmp_path / "records.jsonl").write_text('{"abstract": "One."}\n')
    result = shell(*words, tmp_path / "records.jsonl", "--field", "abstract")
    assert (result.code, "--field: records of the task nli have their own fields" in result.err) == (2, True), (
        result.err
    )


def test_named_columns(tmp_path: Path, shell: Shell) -> None:
    """A teacher without a manifest, unusual column names, and no dev split."""
    teacher = pico.save("bert", tmp_path / "teacher", head="sequence-classification", labels=("no", "yes"))
    rows = [f"{'yes' if n % 3 else 'no'}\t{sentence}" for n, sentence in enumerate(pico.sentences(30))]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.tsv").write_text("\n".join(["klass\tbefund", *rows]) + "\n")
    words = ("distill", "--teacher", teacher, "--task", "classification", "--student", "distil", "--data", "data")
    columns = ("--column", "label=klass", "--column", "text=befund")
    result = shell(*words, *columns, "--dev-share", 0.2, "--steps", 2, "--out", "x", *QUICK)
    assert result.code == 0, result.err
    assert "accuracy" in json.loads(Path("x/biosqueeze.json").read_text())["metrics"]
    (tmp_path / "data" / "train.tsv").rename(tmp_path / "data" / "test.tsv")
    again = shell("evaluate x --json")  # reads the same columns
    assert again.code == 0, again.err
    assert "accuracy" in json.loads(again.out)["metrics"]
    plain = shell("distill --teacher", pico.save("bert", tmp_path / "plain"), "--student", "distil", *columns)
    assert (plain.code, "--column needs a teacher" in plain.err) == (2, True), plain.err
