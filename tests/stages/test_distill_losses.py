"""The losses of the stage distill: all of them fall, and students bring those of their papers."""

import json
from pathlib import Path
from unittest import mock

import pytest

from biosqueeze.distillation.losses.presets import LOSS_PRESETS
from tests import pico
from tests.cli.run import Shell
from tests.metrics_log import read_log
from tests.stages.distilling import QUICK, fall

# The loss after forty steps must be below this share of its first value.
FALLS = {
    "distilbert": 0.85,
    "tinybert": 0.75,
    "tinybiobert": 0.75,
    "compact": 0.92,
    "biolm": 0.92,
    "mobilebert": 0.75,
    "minilm": 0.35,
    "minilmv2": 0.4,
    "mse": 0.35,
}


@pytest.fixture(scope="module")
def random_student(pico_root: Path) -> Path:
    """Two layers of twice the teacher's width."""
    with mock.patch.multiple(pico, LAYERS=2, HIDDEN=2 * pico.HIDDEN):
        return pico.save("bert", pico_root / "random-student", seed=1)


def test_all_presets_are_covered() -> None:
    assert set(LOSS_PRESETS) - set(FALLS) == {"task", "text-pairs"}, "these two are tested on tasks"


@pytest.mark.parametrize("preset", FALLS)
def test_loss_of_every_preset_falls(
    preset: str, pico_bert: Path, random_student: Path, text: Path, shell: Shell
) -> None:
    student = ("--student", "distil") if preset == "compact" else (random_student,)
    result = shell(
        "distill", *student, "--teacher", pico_bert, "--corpus", text, "--loss", preset, "--steps", 40, "--lr", "3e-3",
        "--out", "small", *QUICK,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert fall(read_log(Path("small")), "loss") < FALLS[preset]


def test_hard_labels_alone(tuned: Path, tags: Path, shell: Shell) -> None:
    result = shell(
        "distill --teacher", tuned, "--student", "distil", "--data", tags, "--loss", "hard", "--epochs", 12,
        "--lr", "5e-3", "--out", "student", *QUICK,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert fall([m for m in read_log(Path("student")) if "loss" in m], "hard") < 0.4


def test_masked_tokens_alone(pico_distilbert: Path, text: Path, shell: Shell) -> None:
    result = shell(
        "distill", pico_distilbert, "--teacher", pico_distilbert, "--corpus", text, "--loss", "mlm", "--steps", 30,
        "--lr", "3e-3", "--out", "read", *QUICK,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "needs a teacher" in result.err
    steps = read_log(Path("read"))
    assert sum(s["mlm"] for s in steps[-5:]) < sum(s["mlm"] for s in steps[:5])


@pytest.mark.parametrize(
    ("student", "words", "losses"),
    [
        ("distil", (), "2 mlm + 5 kl + 1 cosine, temperature 2"),  # equation 4
        ("tiny", (), "1 embedding + 1 hidden + 1 soft, temperature 1"),  # equation 7; the teacher has other heads
        ("compact", (), "1 mlm + 3 hidden-cosine + 3 attention-kl-mean + 5 kl, temperature 1"),  # equation 9
        ("compact", ("--cache-teacher", "cache"), "1 mlm + 3 hidden-cosine + 5 kl, temperature 1"),
        ("compact", ("--loss", "minilm"), "(mlm: 1 minilm,"),
        ("bert-mini", (), "2 mlm + 5 kl + 1 cosine, temperature 2"),
    ],
)
def test_students_bring_the_losses_of_their_paper(
    student: str, words: tuple[str, ...], losses: str, pico_bert: Path, text: Path, shell: Shell
) -> None:
    result = shell(
        "distill --teacher", pico_bert, "--student", student, "--corpus", text, "--dry-run", "--json", *words
    )
    assert losses in json.loads(result.out)["steps"][0], result.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--student", "tiny"), "the attention of 12 heads cannot be compared with that of 4"),
        (("--student", "distil", "--cache-teacher", "cache"), "--cache-teacher stores no attention"),
    ],
)
def test_default_losses_without_attention(
    words: tuple[str, ...], why: str, tuned: Path, tags: Path, shell: Shell
) -> None:
    result = shell("distill --teacher", tuned, "--data", tags, "--steps", 2, "--out", "student", *words, *QUICK)
    assert result.code == 0, result.err
    assert f"{why}: training on soft labels and hidden states" in result.err
    manifest = json.loads(Path(result.path, "biosqueeze.json").read_text())
    assert manifest["metrics"]["losses"] == {"kl": 1.0, "hidden": 1.0}
