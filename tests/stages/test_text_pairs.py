"""The whole chain for an encoder that encodes two texts separately: --representation cosine."""

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from transformers import AutoModel

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.models.custom_heads.files import has_cosine, saved_score_range
from tests import pico
from tests.cli.run import Shell
from tests.standard_input import pipe_in

QUICK = ("--precision", "fp32", "--batch-size", "8")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs of a sentence with itself (4.0), and with another one (0.5)."""
    folder = tmp_path_factory.mktemp("pairs")
    for split, seed in (("train", 1), ("dev", 2), ("test", 3)):
        sentences = list(pico.sentences(24, seed=seed))
        rows = [
            f"{one}\t{one if n % 2 else other}\t{4.0 if n % 2 else 0.5}"
            for n, (one, other) in enumerate(pairwise(sentences))
        ]
        (folder / f"{split}.tsv").write_text("sentence1\tsentence2\tscore\n" + "\n".join(rows) + "\n")
    return folder


@pytest.fixture(scope="module")
def teacher(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from biosqueeze.stages import finetune

    # A folder for each call: a worker that gets tests of this module twice makes the teacher anew.
    root = tmp_path_factory.mktemp("teacher")
    source = pico.save("bert", root / "encoder-of-pairs", head="base")
    options = finetune.Options(
        checkpoint=str(source),
        data=str(pairs),
        task="similarity",
        representation="cosine",
        epochs=2,
        precision="fp32",
        out=str(root / "compares-pairs"),
    )
    return finetune.run(options).path


def score(shell: Shell, checkpoint: object, data: Path, backend: str) -> float:
    result = shell("evaluate", checkpoint, "--data", data, "--backend", backend, "--json")
    assert result.code == 0, result.err
    return float(json.loads(result.out)["metrics"]["pearson"])


@pytest.mark.slow
def test_chain_of_shrink_distill_quantize(teacher: Path, pairs: Path, shell: Shell, tmp_path: Path) -> None:
    cut = shell("shrink", teacher, "--layers", 2, "--ffn", 32, "--importance", "fisher", "--calibration", pairs)
    assert cut.code == 0, cut.err
    text = tmp_path / "text.txt"
    text.write_text("\n".join(pico.sentences(40, seed=9)))
    words = ("--teacher", teacher, "--data", pairs, "--corpus", text, "--steps", 6, *QUICK)
    student = shell("distill", cut.path, *words)
    assert student.code == 0, student.err
    made = open_checkpoint(student.path)
    assert has_cosine(made)
    assert saved_score_range(made) == saved_score_range(open_checkpoint(str(teacher))) == (0.5, 4.0)
    assert AutoModel.from_pretrained(student.path).config.num_hidden_layers == 2
    int8 = shell("quantize", student.path)
    assert int8.code == 0, int8.err
    exact = score(shell, int8.path, pairs, "torch")
    assert score(shell, int8.path, pairs, "onnxruntime") == pytest.approx(exact, abs=1e-3)
    assert score(shell, int8.path, pairs, "onnxruntime:int8") == pytest.approx(exact, abs=0.1)
    assert exact > 0.7


@pytest.mark.slow
def test_the_card_of_slim_has_an_example_that_runs(
    teacher: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    slim = Path(shell("quantize", teacher, "--slim", "--out", "slim").path)
    text = (slim / "README.md").read_text()
    (line,) = re.findall(r"^echo (.*) \| biosqueeze predict slim -$", text, re.MULTILINE)
    pipe_in(monkeypatch, shlex.split(line)[0].encode())
    said = shell("predict slim -")
    assert said.code == 0, said.err
    assert 0.5 <= json.loads(said.out)["similarity"] <= 4


@pytest.mark.slow
def test_preset_student_and_dry_run(teacher: Path, pairs: Path, shell: Shell) -> None:
    words = ("distill --student distil --teacher", teacher, "--data", pairs, *QUICK)
    plan = shell(*words, "--dry-run")
    assert plan.code == 0, plan.err
    assert "until dev scores stop rising" in plan.out + plan.err
    assert "(task: 1 kl + 1 attention-kl + 1 hidden, temperature 2)" in plan.out + plan.err
    student = shell(*words, "--steps", 2)
    assert student.code == 0, student.err
    assert has_cosine(open_checkpoint(student.path))
    bench = shell(
        "bench", student.path, "--seconds", 0, "--rounds", 1, "--batch-size", 1, "--length", 8, "--threads", 1
    )
    assert bench.code == 0, bench.err


def test_stock_regression_cannot_be_the_other_teacher(teacher: Path, pairs: Path, shell: Shell) -> None:
    other = shell(
        "finetune", teacher, "--data", pairs, "--task", "similarity", "--steps", 1, "--out", "together", *QUICK
    )
    assert other.code == 0, other.err
    words = ("distill --student distil --teacher", teacher, "--data", pairs, *QUICK)
    mixed = shell(*words, "--teacher", other.path)
    assert (mixed.code, "give teachers of one representation" in mixed.err) == (2, True), mixed.err
    cached = shell(*words, "--cache-teacher", "cache", "--steps", 2)
    assert (cached.code, "--cache-teacher stores outputs by sequence" in cached.err) == (2, True), cached.err


def test_student_of_another_vocabulary(
    teacher: Path, pairs: Path, pico_roberta: Path, shell: Shell, tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(pico.sentences(40, seed=9)))
    student = shell(
        "distill",
        pico_roberta,
        "--teacher",
        teacher,
        "--data",
        pairs,
        "--corpus",
        text,
        "--steps",
        3,
        "--out",
        "student",
        *QUICK,
    )
    assert student.code == 0, student.err
    assert "different vocabularies" in student.err
    assert has_cosine(open_checkpoint(student.path))
    assert score(shell, student.path, pairs, "torch") > 0.5
