"""The stage distill where teacher and student have different vocabularies."""

import json
from pathlib import Path

import pytest

from tests import pico
from tests.cli.run import Shell
from tests.metrics_log import read_log
from tests.stages.distilling import QUICK
from tests.tagged_sentences import tune


@pytest.fixture(scope="module")
def tuned_electra(tags: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tune("electra", tags, tmp_path_factory.mktemp("tuned"))


@pytest.mark.slow
@pytest.mark.parametrize("student", ["roberta", "albert"])
def test_student_with_another_vocabulary(
    student: str, tuned_electra: Path, tags: Path, text: Path, tmp_path: Path, shell: Shell
) -> None:
    other = pico.save(student, tmp_path / student, head="base", cased=False) if student == "albert" else pico.save(
        student, tmp_path / student, head="base"
    )  # fmt: skip
    result = shell(
        "distill", other, "--teacher", tuned_electra, "--data", tags, "--corpus", text, "--epochs", 6,
        "--lr", "5e-3", "--out", "student", *QUICK,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "by word or by text" in result.err
    steps = [m for m in read_log(Path("student")) if "loss" in m]
    assert steps[-1]["kl"] < 0.5 * steps[0]["kl"]
    assert json.loads(Path("student/biosqueeze.json").read_text())["metrics"]["f1"] > 0.6


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--loss", "kl", "--loss", "hidden"), "--loss hidden compares them token by token"),
        (("--cache-teacher", "cache"), "leave it out"),
    ],
)
def test_losses_across_vocabularies_raise(
    words: tuple[str, ...], says: str, tuned: Path, tags: Path, pico_roberta: Path, shell: Shell
) -> None:
    result = shell(
        "distill", pico_roberta, "--teacher", tuned, "--data", tags, "--steps", 1, "--out", "x", *words, *QUICK
    )
    assert (result.code, says in result.err) == (2, True), result.err


def test_plain_text_across_vocabularies_raises(pico_bert: Path, pico_roberta: Path, text: Path, shell: Shell) -> None:
    result = shell(
        "distill", pico_roberta, "--teacher", pico_bert, "--corpus", text, "--steps", 1, "--out", "x", *QUICK
    )
    assert result.code == 1
    assert "fine-tuned on a task" in result.err


def test_other_vocabulary_sizes_raise(pico_bert: Path, pico_bert_uncased: Path, text: Path, shell: Shell) -> None:
    result = shell("distill", pico_bert_uncased, "--teacher", pico_bert, "--corpus", text, "--out", "out")
    assert result.code == 1
    assert "different vocabularies" in result.err
    assert not Path("out.partial").exists()
