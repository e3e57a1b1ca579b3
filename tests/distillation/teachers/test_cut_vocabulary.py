"""A student with a part of its teacher's vocabulary learns as from a teacher with the same part."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.distillation.models import load_models
from biosqueeze.distillation.request import ModelSettings
from biosqueeze.distillation.teachers.cut_vocabulary import cut_teacher, tokens_in_teacher
from tests import pico
from tests.cli.run import Shell

QUICK = ("--steps", "2", "--batch-size", "4", "--max-length", "32", "--precision", "fp32", "--quiet")
SENTENCES = tuple(pico.sentences(12, seed=6))


@pytest.fixture(scope="module")
def tags(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tags")
    rows = [
        "\n".join(f"{word}\t{'B-Disease' if 'tis' in word else 'O'}" for word in each.split()) for each in SENTENCES
    ]
    for split, part in (("train", rows[:8]), ("dev", rows[8:10]), ("test", rows[10:])):
        (folder / f"{split}.tsv").write_text("\n\n".join([*part, ""]))
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pico.write_sentences(tmp_path_factory.mktemp("text") / "text.txt", 12, seed=6)


def weights(path: str) -> dict[str, torch.Tensor]:
    return load_file(Path(path) / "model.safetensors")


@pytest.mark.parametrize("kind", ["task", "mlm"])
def test_student_learns_as_from_a_teacher_that_was_cut(
    kind: str, pico_ner: Path, pico_roberta: Path, text: Path, tags: Path, shell: Shell
) -> None:
    whole = pico_ner if kind == "task" else pico_roberta
    data = ("--data", tags, "--task", "ner") if kind == "task" else ("--corpus", text)
    student = shell("shrink", whole, "--vocab-keep", text, "--layers", "2", "--out", "student").path
    cut = shell("shrink", whole, "--vocab-keep", text, "--out", "teacher").path
    command = ("distill", student, *data, *QUICK)
    from_whole = shell(*command, "--teacher", whole, "--out", "one")
    assert from_whole.code == 0, from_whole.err
    expected = weights(shell(*command, "--teacher", cut, "--out", "other").path)
    learned, start = weights(from_whole.path), weights(student)
    assert all(torch.equal(learned[name], tensor) for name, tensor in expected.items())
    assert not all(torch.equal(learned[name], tensor) for name, tensor in start.items())
    planned = shell(*command, "--teacher", whole, "--out", "one", "--dry-run")
    assert planned.code == 0 and "different vocabularies" not in planned.err


def test_teacher_that_was_cut_keeps_its_positions(pico_ner: Path, text: Path, tmp_path: Path, shell: Shell) -> None:
    student = shell("shrink", pico_ner, "--vocab-keep", text, "--layers", "1", "--out", "student").path
    shorter = shutil.copytree(pico_ner, tmp_path / "shorter")
    config, tensors = json.loads((shorter / "config.json").read_text()), weights(str(shorter))
    (shorter / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 24}))
    positions = "bert.embeddings.position_embeddings.weight"
    save_file(tensors | {positions: tensors[positions][:24].clone()}, shorter / "model.safetensors", {"format": "pt"})
    teachers, learner = [open_checkpoint(str(shorter))], open_checkpoint(student)
    models = load_models(ModelSettings(kind="task", teachers=teachers, student=learner, task="ner", max_length=32))
    assert not models.cross_vocabulary and models.length == 24


def test_other_vocabularies_are_no_parts() -> None:
    cased, uncased = pico.tokenizer_of("bert"), pico.tokenizer_of("bert", cased=False)
    assert uncased.get_vocab().keys() < cased.get_vocab().keys()
    assert tokens_in_teacher(uncased, cased) is None  # its texts are lower-cased
    assert tokens_in_teacher(cased, cased) is None and tokens_in_teacher(cased, uncased) is None
    assert tokens_in_teacher(pico.tokenizer_of("roberta"), cased) is None
    mpnet = pico.tokenizer_of("mpnet")
    assert cased.get_vocab().keys() < mpnet.get_vocab().keys()
    assert tokens_in_teacher(cased, mpnet) is None  # its texts stand between other tokens
    model = pico.model_of("bert", len(cased))
    assert cut_teacher(model, cased, uncased, "teacher") == (model, cased)
