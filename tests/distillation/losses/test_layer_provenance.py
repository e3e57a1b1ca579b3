"""The teacher layers that a student was cut from, as the manifests record them."""

import json
from pathlib import Path

import pytest

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.data.output_types import TOKENS
from biosqueeze.distillation.losses.config import ModelTraits, build_loss_config
from biosqueeze.distillation.losses.layer_provenance import heads_in_teacher, layers_in_teacher
from biosqueeze.distillation.request import LossSettings
from biosqueeze.models.loading.load import load_config
from tests import pico
from tests.cli.run import Shell

BY_SIZE = ("--importance", "magnitude", "--repair", "none")  # a fine-tuned model is cut by its data otherwise
FAST = ("--steps", "1", "--batch-size", "4", "--max-length", "32", "--precision", "fp32")


def run(shell: Shell, *words: object) -> str:
    result = shell(*words)
    assert result.code == 0, result.err
    return result.path


def provenance(student: object, teacher: object) -> tuple[int, ...] | None:
    return layers_in_teacher(open_checkpoint(str(student)), open_checkpoint(str(teacher)))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return pico.save("bert", tmp_path / "base", head="base")


def test_repeated_cuts(base: Path, tmp_path: Path, shell: Shell) -> None:
    first = run(shell, "shrink", base, "--layers", "0,2,3", "--out", tmp_path / "three")
    narrow = run(shell, "shrink", first, "--ffn", "32", "--out", tmp_path / "narrow")
    second = run(shell, "shrink", narrow, "--layers", "0,2", "--out", tmp_path / "two")
    assert provenance(first, base) == provenance(narrow, base) == (0, 2, 3)
    assert provenance(second, base) == (0, 3)
    assert provenance(second, narrow) == (0, 2)
    assert provenance(narrow, first) == (0, 1, 2)


def test_teacher_fine_tuned_after_the_cut(base: Path, tmp_path: Path, shell: Shell) -> None:
    student = run(shell, "shrink", base, "--layers", "1,3", "--out", tmp_path / "student")
    teacher = run(shell, "finetune", base, "--data", "demo:ner", *FAST, "--out", tmp_path / "teacher")
    assert provenance(student, teacher) == (1, 3)
    shallow = run(shell, "shrink", teacher, "--layers", "0,1,3", "--out", tmp_path / "shallow")
    assert provenance(student, shallow) == (1, 2)
    other = run(shell, "shrink", teacher, "--layers", "0,2,3", "--out", tmp_path / "other")
    assert provenance(student, other) is None  # it has the student's layer 3 and not its layer 1


def heads(student: object, teacher: object) -> tuple[tuple[int, ...], ...] | None:
    return heads_in_teacher(open_checkpoint(str(student)), open_checkpoint(str(teacher)))


def test_heads_of_repeated_cuts(base: Path, tmp_path: Path, shell: Shell) -> None:
    first = run(shell, "shrink", base, "--layers", "0,2,3", "--heads", "3", "--out", tmp_path / "three")
    second = run(shell, "shrink", first, "--layers", "0,2", "--heads", "2", "--out", tmp_path / "two")
    one, two = heads(first, base), heads(second, first)
    assert one is not None
    assert two is not None
    assert [len(layer) for layer in one] == [3, 3, 3]
    assert heads(second, base) == tuple(tuple(one[layer][head] for head in two[i]) for i, layer in enumerate((0, 2)))
    whole = run(shell, "shrink", base, "--ffn", "32", "--out", tmp_path / "ffn")
    assert heads(whole, base) is None  # all are kept


def test_heads_of_a_teacher_that_lost_some_itself(base: Path, tmp_path: Path, shell: Shell) -> None:
    student = run(shell, "shrink", base, "--heads", "2", "--out", tmp_path / "student")
    tuned = run(shell, "finetune", base, "--data", "demo:ner", *FAST, "--out", tmp_path / "tuned")
    assert heads(student, tuned) == heads(student, base)
    narrower = run(shell, "shrink", tuned, "--heads", "3", *BY_SIZE, "--out", tmp_path / "narrower")
    assert heads(student, narrower) is None


def test_attention_of_kept_heads_is_a_loss(base: Path, tmp_path: Path, shell: Shell) -> None:
    teacher = run(shell, "finetune", base, "--data", "demo:ner", *FAST, "--out", tmp_path / "teacher")
    student = run(shell, "shrink", teacher, "--layers", "0,3", "--heads", "2", *BY_SIZE)
    words = ("distill", student, "--teacher", teacher, "--data", "demo:ner", *FAST)
    default = shell(*words, "--dry-run")
    assert "the student has fewer heads than the teacher: training on soft labels and hidden states" in default.err
    words = (*words, "--loss", "kl", "--loss", "attention-kl")
    plan = shell(*words, "--dry-run")
    assert "(task: 1 kl + 1 attention-kl," in plan.out + plan.err, plan.err
    log = Path(run(shell, *words, "--out", tmp_path / "distilled"), "metrics.jsonl").read_text(encoding="utf-8")
    _start, first, *_ = map(json.loads, log.splitlines())
    assert first["attention-kl"] > 0


def test_unknown_provenance_is_none(base: Path, tmp_path: Path, shell: Shell) -> None:
    fresh = run(shell, "shrink", base, "--student", "tiny", "--out", tmp_path / "fresh")
    assert provenance(fresh, base) is None
    assert provenance(base, base) is None  # no manifest
    shrunk = run(shell, "shrink", base, "--layers", "0,3", "--out", tmp_path / "shrunk")
    assert provenance(shrunk, pico.save("bert", tmp_path / "unrelated", head="mlm")) is None
    path = Path(shrunk, "biosqueeze.json")
    older = json.loads(path.read_text(encoding="utf-8"))
    del older["history"][0]["layers"]
    path.write_text(json.dumps(older), encoding="utf-8")
    assert provenance(shrunk, base) is None


def test_models_from_random_weights_share_no_layers(tmp_path: Path, shell: Shell) -> None:
    tokenizer = pico.save("bert", tmp_path / "tokenizer")
    made = [
        run(
            shell,
            "pretrain",
            "--shape",
            shape,
            "--tokenizer",
            tokenizer,
            "--corpus",
            "demo:text",
            *FAST,
            "--out",
            tmp_path / shape,
        )
        for shape in ("bert-tiny", "bert-mini")
    ]
    assert provenance(*made) is None


def test_albert_keeps_its_first_layers(pico_albert: Path, tmp_path: Path, shell: Shell) -> None:
    assert provenance(run(shell, "shrink", pico_albert, "--layers", "2", "--out", tmp_path / "short"), pico_albert) == (
        0,
        1,
    )


def test_distilled_student_records_its_layers(pico_bert: Path, tmp_path: Path, shell: Shell) -> None:
    words = ("--corpus", "demo:text", "--loss", "hidden", *FAST)
    student = run(shell, "distill", "--teacher", pico_bert, "--student", "compact", *words, "--out", tmp_path / "one")
    assert provenance(student, pico_bert) == (1, 3)
    again = run(shell, "distill", student, "--teacher", pico_bert, *words, "--out", tmp_path / "two")
    assert provenance(again, pico_bert) == (1, 3)


@pytest.mark.parametrize(
    ("settings", "source_layers", "expected"),
    [
        ({"loss": ("tinybert",)}, (0, 1), ((1, 1), (2, 4))),
        ({"loss": ("tinybert",)}, None, ((1, 2), (2, 4))),
        ({"loss": ("tinybert",), "layer_map": "uniform"}, (0, 1), ((1, 2), (2, 4))),
        ({"loss": ("hidden=1",), "layer_map": "source"}, (0, 1), ((1, 1), (2, 4))),
        ({"loss": ("compact",)}, (0, 1), ((1, 2), (2, 4))),  # the published map of the preset
        ({"loss": ("kl",)}, (0, 1), ((1, 1), (2, 4))),  # without a note: no loss reads all layers
    ],
)
def test_layer_map_of_the_loss_config(settings, source_layers, expected, base: Path, capsys) -> None:
    teacher = load_config(open_checkpoint(str(base)))
    student = load_config(open_checkpoint(str(base)))
    student.num_hidden_layers = 2
    config = build_loss_config(
        LossSettings(**settings),
        "mlm" if settings["loss"] == ("compact",) else "task",
        ModelTraits(student=student, teacher=teacher, output_type=TOKENS, source_layers=source_layers),
    )
    assert config.layer_map == expected
    noted = "cut from (1:1,2:4)" in capsys.readouterr().err
    assert noted == (settings == {"loss": ("tinybert",)} and source_layers is not None)
