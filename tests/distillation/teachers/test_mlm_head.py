"""Fitted heads: the head is trained, the encoder is not, and the second time the head comes from the cache."""

import json
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.data.text.masking import Masking
from biosqueeze.data.text.prepared import prepare_corpus
from biosqueeze.distillation.teachers import head_fitting
from biosqueeze.distillation.teachers.head_fitting import HeadFitter, HeadFitting, head_parameters, hold_out, perplexity
from biosqueeze.distillation.teachers.mlm_head import _key, load_or_fit_head
from biosqueeze.distillation.training_data.unlabelled import UnlabelledExamples
from biosqueeze.errors import SqueezeError
from biosqueeze.models.families import FAMILIES
from biosqueeze.models.loading.load import load_model, load_tokenizer
from biosqueeze.training.batches import BatchSchedule, loader
from biosqueeze.training.failures import TrainingError
from biosqueeze.training.options import TrainingOptions
from biosqueeze.training.resuming.hashes import checkpoint_hash
from biosqueeze.training.sources import MaskedBlocks
from tests import pico
from tests.cli.run import Shell

pytestmark = pytest.mark.usefixtures("own_cache")

STEPS = 30
MASK_RATE = 0.15


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pico.write_sentences(tmp_path_factory.mktemp("text") / "corpus.txt", 300, seed=5)


@pytest.fixture
def headless(tmp_path: Path) -> Callable[[str], Path]:
    """Save an encoder without its head; an ELECTRA as a discriminator."""
    heads = {"electra": "discriminator"}
    return lambda family: pico.save(family, tmp_path / family, heads.get(family, "base"))


def fitting_of(text: Path, teacher: Path, directory: Path, **changed: object) -> HeadFitting:
    values = {"precision": "fp32", "batch_size": 8, "max_length": 64, **changed}
    steps, rate = values.pop("steps", STEPS), values.pop("mask_rate", MASK_RATE)
    training = TrainingOptions(**values)
    checkpoint = open_checkpoint(str(teacher))
    packs = FAMILIES[checkpoint.config["model_type"]].supports_packing
    tokenizer = load_tokenizer(checkpoint)
    blocks = prepare_corpus([str(text)], "text", tokenizer, training.max_length, pack=packs)
    return HeadFitting(steps, MaskedBlocks.of(blocks, tokenizer, rate), training, directory)


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_head_is_trained_and_nothing_else_changes(
    family: str, headless: Callable[[str], Path], text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_fitting, "LEARNING_RATE", 3e-2)  # a head this small needs more
    path = headless(family)
    checkpoint = open_checkpoint(str(path))
    model = load_model(checkpoint, "mlm").model
    own = set(head_parameters(model))
    former = {name: tensor.clone() for name, tensor in model.named_parameters()}
    head = load_or_fit_head(model, checkpoint, fitting_of(text, path, tmp_path))
    assert head.after < 0.9 * head.before
    assert set(head.weights) == own
    for name, tensor in model.named_parameters():
        assert torch.equal(tensor, former[name]) == (name not in own), name
    untied = [name for name in own if "embeddings" in name or "decoder.weight" in name]
    assert not untied
    assert not (tmp_path / "fit-head").exists()


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_loss_equals_the_stock_model(family: str, text: Path, tmp_path: Path) -> None:
    path = pico.save(family, tmp_path / family, "mlm")
    model = load_model(open_checkpoint(str(path)), "mlm").model
    tokenizer = load_tokenizer(open_checkpoint(str(path)))
    unpacked = prepare_corpus([str(text)], "text", tokenizer, 64, pack=False)
    source = MaskedBlocks.of(unpacked, tokenizer, MASK_RATE)
    batch = next(iter(loader(BatchSchedule(source, 8, 0, total=1), 0)))
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    expected = model(**inputs, labels=batch["labels"]).loss
    own = head_parameters(model)
    gradients = dict(zip(own, torch.autograd.grad(expected, tuple(own.values())), strict=True))
    learner = HeadFitter(model)
    learner.train()
    term = learner(**batch)["mlm"]
    term.backward()
    assert term.item() == pytest.approx(expected.item(), rel=1e-5)
    for name, parameter in model.named_parameters():
        assert (parameter.grad is None) == (name not in own)
        if name in own:
            torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [3, 50])
def test_perplexity_equals_separate_sequences(size: int, text: Path, tmp_path: Path) -> None:
    path = pico.save("bert", tmp_path / "bert", "mlm")
    model = load_model(open_checkpoint(str(path)), "mlm").model
    fitting = fitting_of(text, path, tmp_path, batch_size=size, seed=4)
    held, _ = hold_out(fitting.source)
    total, count = 0.0, 0
    for item in range(len(held.blocks)):
        features = held.features(item, np.random.default_rng([4, 1, item]))
        for segment in range(1, features["segments"].max() + 1):
            of = features["segments"] == segment
            ids, labels = (torch.from_numpy(features[name][of]) for name in ("input_ids", "labels"))
            with torch.no_grad():
                logits = model(input_ids=ids.unsqueeze(0)).logits[0]
            total += float(torch.nn.functional.cross_entropy(logits, labels, reduction="sum"))
            count += int((labels >= 0).sum())
    assert perplexity(HeadFitter(model), held, fitting.training) == pytest.approx(np.exp(total / count), rel=1e-4)


def test_a_second_process_may_be_the_first(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The main process has not yet made OUT.partial."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr("biosqueeze.training.loop.build_accelerator", mock.Mock(side_effect=InterruptedError))
    path = pico.save("bert", tmp_path / "bert", "base")
    model = load_model(open_checkpoint(str(path)), "mlm").model
    with pytest.raises(InterruptedError):
        head_fitting.fit_head(model, "bert", fitting_of(text, path, tmp_path / "out.partial"))


def test_encoder_dropout_is_off(text: Path, tmp_path: Path) -> None:
    path = pico.save("bert", tmp_path / "bert", "base")
    learner = HeadFitter(load_model(open_checkpoint(str(path)), "mlm").model)
    learner.train()
    assert not any(m.training for m in learner.model.base_model.modules())
    assert learner.model.cls.training


def test_fitted_head_is_cached(
    headless: Callable[[str], Path], text: Path, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = headless("bert")
    checkpoint = open_checkpoint(str(path))
    first = load_or_fit_head(load_model(checkpoint, "mlm").model, checkpoint, fitting_of(text, path, tmp_path))
    (folder,) = [f for f in (own_cache / "heads").iterdir() if f.is_dir()]
    assert folder.name.startswith(checkpoint_hash(checkpoint)[:12])

    def never(*_: object) -> None:
        raise AssertionError("it was fitted again")

    with monkeypatch.context() as patched:
        patched.setattr(head_fitting, "train", never)
        second = load_or_fit_head(load_model(checkpoint, "mlm").model, checkpoint, fitting_of(text, path, tmp_path))
    assert (second.before, second.after) == (first.before, first.after)
    assert all(torch.equal(second.weights[name], first.weights[name]) for name in first.weights)
    file = folder / "head.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    third = load_or_fit_head(load_model(checkpoint, "mlm").model, checkpoint, fitting_of(text, path, tmp_path))
    assert all(torch.equal(third.weights[name], first.weights[name]) for name in first.weights)


@pytest.mark.parametrize(
    "changed", [{"steps": 31}, {"seed": 1}, {"mask_rate": 0.2}, {"max_length": 32}, {"batch_size": 4}]
)
def test_cache_key_changes_with_settings(
    changed: dict[str, object], headless: Callable[[str], Path], text: Path, tmp_path: Path
) -> None:
    path = headless("bert")
    usual = _key(fitting_of(text, path, tmp_path))
    assert _key(fitting_of(text, path, tmp_path)) == usual
    assert _key(fitting_of(text, path, tmp_path, lr=0.5)) == usual  # the head has its own learning rate
    assert _key(fitting_of(text, path, tmp_path, **changed)) != usual


def test_cache_key_changes_with_the_corpus(headless: Callable[[str], Path], text: Path, tmp_path: Path) -> None:
    path, other = headless("bert"), pico.write_sentences(tmp_path / "other.txt", 300, seed=6)
    assert _key(fitting_of(text, path, tmp_path)) != _key(fitting_of(other, path, tmp_path))


def test_interrupted_fitting_leaves_no_files(
    headless: Callable[[str], Path], text: Path, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, draft = headless("bert"), tmp_path / "draft"
    draft.mkdir()
    checkpoint = open_checkpoint(str(path))

    def interrupted(job: head_fitting.TrainingJob) -> None:
        state = job.directory / "state-00000003"
        state.mkdir()
        (state / "progress.json").write_text("{}")
        raise KeyboardInterrupt("the state at step 3 of 30 is saved; --resume goes on from there")

    monkeypatch.setattr(head_fitting, "train", interrupted)
    with pytest.raises(KeyboardInterrupt, match="nothing of it is kept"):
        load_or_fit_head(load_model(checkpoint, "mlm").model, checkpoint, fitting_of(text, path, draft))
    assert not list(draft.iterdir())
    assert not (own_cache / "heads").exists()


def test_failed_fitting_names_the_way_out(
    headless: Callable[[str], Path], text: Path, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(job: head_fitting.TrainingJob) -> None:
        raise TrainingError("out of memory at step 1 with 8 sequences", "give --gradient-checkpointing, then --resume")

    monkeypatch.setattr(head_fitting, "train", failing)
    path = headless("bert")
    checkpoint = open_checkpoint(str(path))
    with pytest.raises(SqueezeError, match=r"out of memory at step 1 with 8 sequences.*--auto-batch") as caught:
        load_or_fit_head(load_model(checkpoint, "mlm").model, checkpoint, fitting_of(text, path, tmp_path))
    assert "--gradient-checkpointing" not in str(caught.value)
    assert "--resume" not in str(caught.value)


@given(st.integers(2, 3000))
def test_held_out_blocks_are_not_trained_on(count: int) -> None:
    held, rest = hold_out(MaskedBlocks(_blocks(count), 0, Masking(4, (), 10), 0.15))
    seen = [
        int(part.blocks.features(item)["input_ids"][0]) for part in (held, rest) for item in range(len(part.blocks))
    ]
    assert sorted(seen) == list(range(count))
    assert 1 <= len(held.blocks) <= max(1, min(64, count // 10))
    items = np.arange(len(rest.blocks))
    assert (rest.blocks.lengths_of(items) == 1).all()


def test_single_block_cannot_be_held_out() -> None:
    with pytest.raises(SqueezeError, match="--corpus"):
        hold_out(MaskedBlocks(_blocks(1), 0, Masking(4, (), 10), 0.15))


def _blocks(count: int) -> UnlabelledExamples:
    """Create blocks of one token, whose id is the number of the block."""
    return UnlabelledExamples([{"input_ids": np.array([number])} for number in range(count)])


QUICK = ("--precision", "fp32", "--batch-size", "8", "--max-length", "32", "--steps", "4")


@pytest.mark.parametrize("family", ["bert", "electra"])
def test_distill_uses_the_fitted_head(family: str, headless: Callable[[str], Path], text: Path, shell: Shell) -> None:
    teacher = headless(family)
    command = ("distill", "--teacher", teacher, "--corpus", text, "--student", "distil", *QUICK)
    without = shell(*command, "--loss", "kl")
    assert without.code == 1
    assert "--fit-head 2000" in without.err
    result = shell(*command, "--fit-head", STEPS)
    assert result.code == 0, result.err
    assert "perplexity of held-out masked tokens" in result.err
    assert "the student starts with the head" in result.err
    lines = [json.loads(line) for line in (Path(result.path) / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 4
    assert all(line["kl"] > 0 for line in lines)
    assert not (Path(result.path) / "fit-head").exists()
    manifest = json.loads((Path(result.path) / "biosqueeze.json").read_text())
    (facts,) = manifest["metrics"]["fitted_heads"].values()
    assert facts["perplexity"] < facts["perplexity_before"]
    again = shell(*command, "--fit-head", STEPS, "--out", "again")
    assert "is read from" in again.err
    first, second = (load_file(Path(path) / "model.safetensors") for path in (result.path, again.path))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_unused_fitting_raises(
    headless: Callable[[str], Path], pico_bert: Path, pico_ner: Path, text: Path, shell: Shell
) -> None:
    def refused(teacher: Path, *more: str) -> str:
        result = shell(
            "distill --teacher",
            teacher,
            "--corpus",
            text,
            "--student",
            "distil",
            "--fit-head",
            9,
            "--out",
            "x",
            *more,
        )
        assert result.code == 2, result.err
        return result.err

    assert "has its own head; leave --fit-head out" in refused(pico_bert)
    assert "is fine-tuned on a task; leave it out" in refused(pico_ner)
    assert "none of the losses cosine reads a teacher's head" in refused(headless("bert"), "--loss", "cosine")
    assert "--fit-head must be at least 1" in refused(pico_bert, "--fit-head", "0")


def test_dry_run_lists_the_fitting(headless: Callable[[str], Path], text: Path, shell: Shell) -> None:
    command = ("distill", "--teacher", headless("bert"), "--corpus", text, "--student", "distil", "--fit-head", 9)
    result = shell(*command, "--dry-run")
    assert result.code == 0
    assert "first fit the masked-language-model head" in result.err + result.out
