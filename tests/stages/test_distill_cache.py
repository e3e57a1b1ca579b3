"""`distill --cache-teacher` as a user types it: the second student is trained without the teacher."""

from pathlib import Path

import pytest

from tests import pico
from tests.cli.run import Shell

QUICK = ("--student", "distil", "--precision", "fp32", "--batch-size", "8", "--max-length", "32", "--epochs", "1")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text("\n".join(pico.sentences(60, seed=5)))
    return path


@pytest.mark.parametrize("teacher", ["pico_bert", "pico_ner"])
def test_the_second_student_needs_no_teacher(
    teacher: str, text: Path, shell: Shell, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("distill", "--teacher", request.getfixturevalue(teacher), "--corpus", text, *QUICK)
    task = ("--task", "ner") if teacher == "pico_ner" else ()
    said = shell(*command, *task, "--cache-teacher", "kept", "--out", "first")
    assert said.code == 0, said.err
    assert "kept for later epochs and students" in said.err
    monkeypatch.delattr("biosqueeze.distillation.teachers.LiveTeacher.answer")
    said = shell(*command, *task, "--cache-teacher", "kept", "--out", "second", "--seed", 0, "--lr", "1e-3")
    assert said.code == 0, said.err
    assert "the teacher is not needed" in said.err
    assert len(list(Path("kept").glob("*/meta.json"))) == 1


def test_what_is_not_kept_is_said_before_anything_is_read(pico_bert: Path, text: Path, shell: Shell) -> None:
    said = shell(
        "distill",
        "--teacher",
        pico_bert,
        "--corpus",
        text,
        *QUICK,
        "--cache-teacher",
        "kept",
        "--loss",
        "compact",
        "--out",
        "x",
    )
    assert said.code == 2
    assert "--loss attention-kl compares attention" in said.err
    assert "corpus:" not in said.err
    assert not Path("kept").exists()
    assert not list(Path().glob("*.partial"))


def test_maskings_are_for_text_that_is_masked(pico_ner: Path, text: Path, shell: Shell) -> None:
    said = shell("distill", "--teacher", pico_ner, "--task", "ner", "--corpus", text, *QUICK, "--maskings", 3)
    assert said.code == 2
    assert "nothing is masked" in said.err
