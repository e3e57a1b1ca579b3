"""--compile gives the same losses."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.finetuning.options import FineTuningOptions
from biosqueeze.stages import finetune, pretrain
from biosqueeze.training.compilation import check_compiler
from tests import pico
from tests.training import runs

PLAIN = FineTuningOptions(steps=3, batch_size=4, lr=1e-3, precision="fp32", seed=3)
NO_COMPILER = not any(map(shutil.which, [os.environ.get("CXX") or "g++", "clang++"]))


def count_calls(monkeypatch: pytest.MonkeyPatch, backend: str) -> list[dict[str, object]]:
    """Make torch.compile use another backend; return the options of each call."""
    asked: list[dict[str, object]] = []
    original = torch.compile

    def compile_(*given: object, **more: object) -> object:
        asked.append(more)
        return original(*given, **{**more, "backend": backend})

    monkeypatch.setattr("torch.compile", compile_)
    return asked


def test_the_model_is_compiled_and_keeps_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)
    asked = count_calls(monkeypatch, "eager")  # Dynamo traces the model, and no compiler is needed
    monkeypatch.setattr(pico, "LAYERS", 1)
    plain = runs.run(tmp_path / "plain", PLAIN, model=runs.model_of(dropout=0.0))
    assert not asked
    fast = runs.run(tmp_path / "fast", replace(PLAIN, compile=True), model=runs.model_of(dropout=0.0))
    assert len(asked) == 1
    assert fast.losses == pytest.approx(plain.losses, rel=1e-5)
    assert fast.weights.keys() == plain.weights.keys()
    fast.model.save_pretrained(tmp_path / "saved")
    assert not any("_orig_mod" in name for name in fast.weights)
    assert fast.model.base_model._compiled_call_impl is None


@pytest.mark.slow
@pytest.mark.skipif(NO_COMPILER, reason="no C++ compiler")
def test_the_real_compiler_gives_the_same_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pico, "LAYERS", 1)
    short = replace(PLAIN, steps=1)
    plain = runs.run(tmp_path / "plain", short, model=runs.model_of(dropout=0.0))
    fast = runs.run(tmp_path / "fast", replace(short, compile=True), model=runs.model_of(dropout=0.0))
    assert fast.losses == pytest.approx(plain.losses, rel=1e-4)


def test_compile_without_a_compiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(SqueezeError, match="--compile needs a C\\+\\+ compiler"):
        check_compiler()


def test_noise_on_embeddings_is_refused() -> None:
    """A hook adds it, which a compiled graph leaves out."""
    with pytest.raises(UsageError, match="--smart cannot be combined with --compile"):
        finetune.Options(checkpoint="a", data="b", smart=1.0, compile=True)
    with pytest.raises(UsageError, match="--adversarial cannot be combined with --compile"):
        pretrain.Options(checkpoint="a", corpus=("b",), adversarial=True, compile=True)
