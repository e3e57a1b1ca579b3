"""`distill --cache-teacher` on the command line: the second student is trained without running the teacher."""

from pathlib import Path

import pytest

from tests import pico
from tests.cli.run import Shell

QUICK = ("--student", "distil", "--precision", "fp32", "--batch-size", "8", "--max-length", "32", "--epochs", "1")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pico.write_sentences(tmp_path_factory.mktemp("text") / "corpus.txt", 60, seed=5)


@pytest.mark.parametrize("teacher", ["pico_bert", "pico_ner"])
def test_second_student_does_not_run_the_teacher(
    teacher: str, text: Path, shell: Shell, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("distill", "--teacher", request.getfixturevalue(teacher), "--corpus", text, *QUICK)
    task = ("--task", "ner") if teacher == "pico_ner" else ()
    result = shell(*command, *task, "--cache-teacher", "cache", "--out", "first")
    assert result.code == 0, result.err
    assert "kept for later epochs and students" in result.err
    monkeypatch.delattr("biosqueeze.distillation.teachers.sources.LiveTeacher.outputs")
    result = shell(*command, *task, "--cache-teacher", "cache", "--out", "second", "--seed", 0, "--lr", "1e-3")
    assert result.code == 0, result.err
    assert "the teacher is not run" in result.err
    assert len(list(Path("cache").glob("*/meta.json"))) == 1


def test_losses_on_attention_raise_before_data_are_read(pico_bert: Path, text: Path, shell: Shell) -> None:
    result = shell(
        "distill --teacher",
        pico_bert,
        "--corpus",
        text,
        *QUICK,
        "--cache-teacher",
        "cache",
        "--loss",
        "compact",
        "--out",
        "x",
    )
    assert result.code == 2
    assert "--loss attention-kl-mean compares attention" in result.err
    assert "corpus:" not in result.err
    assert not Path("cache").exists()
    assert not list(Path().glob("*.partial"))


def test_maskings_need_plain_text(pico_ner: Path, text: Path, shell: Shell) -> None:
    result = shell("distill --teacher", pico_ner, "--task", "ner", "--corpus", text, *QUICK, "--maskings", 3)
    assert result.code == 2
    assert "is for masked text" in result.err
