"""Pretraining in two processes, with copied models and with sharded ones, against one process with twice the batch."""

import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForPreTraining

from biosqueeze.pretraining import replaced_tokens
from tests import pico
from tests.cli.run import Shell
from tests.metrics_log import log_of
from tests.stages.test_pretrain import interrupted, missing, same, weights_of
from tests.stages.test_pretrain import text as text  # a fixture
from tests.training.test_distributed import Work, forked

SHARDING = "ACCELERATE_USE_FSDP"
QUICK = ("--precision", "fp32", "--max-length", "24", "--lr", "1e-3", "--held-out", "0.2")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Work:
    root = tmp_path_factory.mktemp("distributed")
    for family in ("bert", "electra", "albert"):
        pico.save(family, root / family)
    return Work(root, root, text)


def words(work: Work, out: str, family: str, *more: object) -> list[str]:
    given = ("pretrain", work.root / family, "--corpus", work.data, *QUICK, *more, "--out", work.root / out)
    return [str(word) for word in given]


def most_likely(logits: torch.Tensor, _generator: object = None) -> torch.Tensor:
    """Replace what each process draws with random numbers of its own."""
    return logits.argmax(dim=-1)


def check_equal(one: Path, two: Path) -> None:
    """Compare logs, held-out scores and weights."""
    for alone, together in zip(log_of(one), log_of(two), strict=True):
        assert flat(together) == pytest.approx(flat(alone), rel=1e-4)
    first, second = weights_of(one), weights_of(two)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, rtol=1e-3, atol=1e-4)


def flat(line: dict[str, object]) -> dict[str, object]:
    dev = line.get("dev")
    return {**line, "dev": 0, **(dev if isinstance(dev, dict) else {})}


@pytest.mark.parametrize(("family", "objective"), [("bert", "mlm"), ("electra", "rtd")])
def test_two_processes_equal_one_with_twice_the_batch(family, objective, work, shell: Shell, monkeypatch) -> None:
    monkeypatch.setattr(replaced_tokens, "draw_tokens", most_likely)
    shared = ("--objective", objective, "--steps", 3, "--accumulate", 2, "--dropout", 0)
    assert shell(*words(work, f"{objective}-1", family, *shared, "--batch-size", 4)).code == 0
    pair = forked(work, words(work, f"{objective}-2", family, *shared, "--batch-size", 2))
    assert pair.ended() == [0, 0], pair.logs[0]
    assert "parameters, and as much" not in pair.logs[0]
    check_equal(work.root / f"{objective}-1", work.root / f"{objective}-2")


def test_sharded_models_with_shared_layers(work, shell: Shell, monkeypatch) -> None:
    """ALBERT's layers share their weights; the norms of LAMB are those of whole matrices."""
    shared = ("--objective", "mlm+sop", "--optimizer", "lamb", "--steps", 2, "--dropout", 0)
    assert shell(*words(work, "albert-1", "albert", *shared, "--batch-size", 4)).code == 0
    monkeypatch.setenv(SHARDING, "true")
    pair = forked(work, words(work, "albert-2", "albert", *shared, "--batch-size", 2))
    assert pair.ended() == [0, 0], pair.logs[0]
    check_equal(work.root / "albert-1", work.root / "albert-2")


@pytest.mark.slow
def test_sharded_training_is_exact_and_resumes_exactly(work, shell: Shell, monkeypatch) -> None:
    """Two models with tied embeddings; accumulation, clipping, recomputed layers, and scores in between."""
    monkeypatch.setattr(replaced_tokens, "draw_tokens", most_likely)
    shared = ("--objective", "rtd", "--steps", 3, "--accumulate", 2, "--eval-every", 2, "--dropout", 0, "--clip", 0.5)
    shared += ("--gradient-checkpointing",)
    alone, whole, parted = work.root / "alone", work.root / "whole", work.root / "parted"
    assert shell(*words(work, alone.name, "electra", *shared, "--batch-size", 4)).code == 0
    monkeypatch.setenv(SHARDING, "true")
    options = (*shared, "--batch-size", 2)
    pair = forked(work, words(work, whole.name, "electra", *options))
    assert pair.ended() == [0, 0], pair.logs[0]
    held = re.search(r"each process holds ([\d,]+) of ([\d,]+) parameters", pair.logs[0])
    part, total = (int(number.replace(",", "")) for number in held.groups()) if held else (0, 0)
    assert total / 2 <= part < 0.51 * total
    check_equal(alone, whole)
    with monkeypatch.context() as patch:
        interrupted(patch, 2)
        assert forked(work, words(work, parted.name, "electra", *options)).ended() == [130, 130]
    pair = forked(work, words(work, parted.name, "electra", *options, "--resume"))
    assert pair.ended() == [0, 0], pair.logs[0]
    assert "going on from step 2" in pair.logs[0]
    assert log_of(whole) == log_of(parted)
    assert same(whole, parted) and same(whole / "generator", parted / "generator")
    assert not missing(AutoModelForPreTraining, parted)


def test_what_sharding_excludes_is_named(work, shell: Shell, monkeypatch) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", SHARDING: "true"}.items():
        monkeypatch.setenv(name, value)
    for flag in ("--adversarial", "--auto-batch", "--compile"):
        said = shell(*words(work, "refused", "bert", "--steps", 1, flag))
        assert (said.code, f"{flag} does not work with sharded models" in said.err) == (2, True), said.err
