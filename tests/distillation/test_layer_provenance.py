"""Students are compared with the layers that they were cut from, as far as the manifests remember."""

import json
from pathlib import Path

import pytest

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.data.output_types import TOKENS
from biosqueeze.distillation.layer_provenance import layers_in_teacher
from biosqueeze.distillation.loss_config import build_loss_config
from biosqueeze.distillation.options import DistillationOptions
from biosqueeze.models.load import load_config
from tests import pico
from tests.cli.run import Shell

FAST = ("--steps", "1", "--batch-size", "4", "--max-length", "32", "--precision", "fp32")


def made(shell: Shell, *words: object) -> str:
    said = shell(*words)
    assert said.code == 0, said.err
    return said.path


def known(student: object, teacher: object) -> tuple[int, ...] | None:
    return layers_in_teacher(open_checkpoint(str(student)), open_checkpoint(str(teacher)))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return pico.save("bert", tmp_path / "base", head="base")


def test_cuts_add_up(base: Path, tmp_path: Path, shell: Shell) -> None:
    first = made(shell, "shrink", base, "--layers", "0,2,3", "--out", tmp_path / "three")
    narrow = made(shell, "shrink", first, "--ffn", "32", "--out", tmp_path / "narrow")
    second = made(shell, "shrink", narrow, "--layers", "0,2", "--out", tmp_path / "two")
    assert known(first, base) == known(narrow, base) == (0, 2, 3)
    assert known(second, base) == (0, 3)
    assert known(second, narrow) == (0, 2)
    assert known(narrow, first) == (0, 1, 2)


def test_a_teacher_that_was_fine_tuned_since_is_the_same_line(base: Path, tmp_path: Path, shell: Shell) -> None:
    student = made(shell, "shrink", base, "--layers", "1,3", "--out", tmp_path / "student")
    teacher = made(shell, "finetune", base, "--data", "demo:ner", *FAST, "--out", tmp_path / "teacher")
    assert known(student, teacher) == (1, 3)
    shallow = made(shell, "shrink", teacher, "--layers", "0,1,3", "--out", tmp_path / "shallow")
    assert known(student, shallow) == (1, 2)
    other = made(shell, "shrink", teacher, "--layers", "0,2,3", "--out", tmp_path / "other")
    assert known(student, other) is None  # it has the student's layer 3 and not its layer 1


def test_nothing_is_made_up(base: Path, tmp_path: Path, shell: Shell) -> None:
    fresh = made(shell, "shrink", base, "--student", "tiny", "--out", tmp_path / "fresh")
    assert known(fresh, base) is None
    assert known(base, base) is None  # no manifest
    kept = made(shell, "shrink", base, "--layers", "0,3", "--out", tmp_path / "kept")
    assert known(kept, pico.save("bert", tmp_path / "stranger", head="mlm")) is None
    path = Path(kept, "biosqueeze.json")
    older = json.loads(path.read_text(encoding="utf-8"))
    del older["history"][0]["layers"]
    path.write_text(json.dumps(older), encoding="utf-8")
    assert known(kept, base) is None


def test_an_albert_runs_its_first_layers(pico_albert: Path, tmp_path: Path, shell: Shell) -> None:
    assert known(made(shell, "shrink", pico_albert, "--layers", "2", "--out", tmp_path / "short"), pico_albert) == (
        0,
        1,
    )


def test_the_student_of_a_distillation_remembers_too(pico_bert: Path, tmp_path: Path, shell: Shell) -> None:
    words = ("--corpus", "demo:text", "--loss", "hidden", *FAST)
    student = made(shell, "distill", "--teacher", pico_bert, "--student", "compact", *words, "--out", tmp_path / "one")
    assert known(student, pico_bert) == (1, 3)
    again = made(shell, "distill", student, "--teacher", pico_bert, *words, "--out", tmp_path / "two")
    assert known(again, pico_bert) == (1, 3)


@pytest.mark.parametrize(
    ("options", "origin", "wanted"),
    [
        ({"loss": ("tinybert",)}, (0, 1), ((1, 1), (2, 4))),
        ({"loss": ("tinybert",)}, None, ((1, 2), (2, 4))),
        ({"loss": ("tinybert",), "layer_map": "uniform"}, (0, 1), ((1, 2), (2, 4))),
        ({"loss": ("hidden=1",), "layer_map": "origin"}, (0, 1), ((1, 1), (2, 4))),
        ({"loss": ("compact",)}, (0, 1), ((1, 2), (2, 4))),  # as it was published
        ({"loss": ("kl",)}, (0, 1), ((1, 1), (2, 4))),  # said to nobody: no loss reads it
    ],
)
def test_what_a_recipe_compares(options, origin, wanted, base: Path, tmp_path: Path, capsys) -> None:
    teacher = load_config(open_checkpoint(str(base)))
    student = load_config(open_checkpoint(str(base)))
    student.num_hidden_layers = 2
    asked = DistillationOptions(lr=1e-4, batch_size=4, out=None, **options)
    recipe = build_loss_config(
        asked, "mlm" if options["loss"] == ("compact",) else "task", TOKENS, (student, teacher), origin
    )
    assert recipe.layers == wanted
    told = "cut from (1:1,2:4); --layer-map uniform" in capsys.readouterr().err
    assert told == (options == {"loss": ("tinybert",)} and origin is not None)
