"""Distillation in the training loop: resume, compilation, checkpointing, --auto-batch and bf16."""

from dataclasses import replace
from pathlib import Path

import pytest

from biosqueeze.data.output_types import TOKENS
from biosqueeze.distillation.learner import Distiller
from biosqueeze.distillation.losses.config import LossConfig
from biosqueeze.distillation.teachers.memory_cache import MemoryCachedTeacher, cached_in_memory
from biosqueeze.distillation.teachers.sources import LiveTeacher, OutputSpec, Teacher
from biosqueeze.distillation.training_data.unlabelled import UnlabelledExamples
from biosqueeze.finetuning.options import FineTuningOptions
from biosqueeze.models.dropout import set_dropout
from biosqueeze.training.job import TrainingJob
from biosqueeze.training.loop import train
from biosqueeze.training.sources import Mixture
from tests import pico
from tests.training import runs
from tests.training.interruption import interrupted
from tests.training.test_compilation import count_calls

PLAIN = FineTuningOptions(steps=6, batch_size=4, lr=1e-3, precision="fp32", seed=3, eval_every=1)
LOSSES = LossConfig(
    weights={"kl": 1.0, "hard": 1.0, "hidden": 1.0, "attention-kl": 1.0, "minilmv2": 1.0},
    output_spec=OutputSpec("task", TOKENS, logits=True),
    temperature=2.0,
    layer_map=((1, 2), (2, 4)),
    projection="per-layer",
)


def distil(
    directory: Path, options: FineTuningOptions = PLAIN, *, at: int = 0, dropout: float = 0.0, in_memory: bool = False
) -> runs.Run:
    """Train a narrow student of two layers; press Ctrl-C after step `at`, if it is not 0.

    With `in_memory` the teacher's outputs on the labelled half of the sequences are computed in advance.
    """
    directory.mkdir(exist_ok=True)
    teacher, student = runs.model_of(), narrow()
    evaluate = interrupted(lambda _model: {"f1": 0.5}, at)
    source: Teacher = LiveTeacher([teacher], LOSSES.output_spec, LOSSES.teacher_parts, temperature=LOSSES.temperature)
    mixture = Mixture(runs.windows(), UnlabelledExamples(runs.windows(seed=1)) if in_memory else None, 1.0, 0)
    if in_memory:
        source = cached_in_memory(source, mixture, options.batch_size, epochs=3)
        assert isinstance(source, MemoryCachedTeacher)
    set_dropout(student, dropout)
    learner = Distiller(student, source, LOSSES, teacher_width=teacher.config.hidden_size)
    summary = train(TrainingJob("test", learner, mixture, options, directory, evaluate))
    return runs.Run(learner.model, summary, runs.log_of(directory))


def narrow() -> "pico.transformers.PreTrainedModel":
    config = pico.config_of("bert", runs.VOCABULARY)
    config.hidden_size, config.num_hidden_layers = pico.HIDDEN // 2, 2
    with pico.torch.random.fork_rng():
        pico.torch.manual_seed(7)
        return pico.transformers.BertForTokenClassification(config)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> runs.Run:
    return distil(tmp_path_factory.mktemp("distil") / "whole", dropout=0.1)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("at", range(1, 6))
def test_resumed_run_equals_the_uninterrupted_one(at: int, workers: int, whole: runs.Run, tmp_path: Path) -> None:
    options = replace(PLAIN, workers=workers)
    with pytest.raises(KeyboardInterrupt, match=f"the state at step {at} of 6"):
        distil(tmp_path, options, at=at, dropout=0.1)
    resumed = distil(tmp_path, replace(options, resume=True), dropout=0.1)
    assert resumed.log == whole.log
    assert runs.same(resumed, whole)


def test_resumed_run_with_outputs_in_memory_equals_the_whole_one(tmp_path: Path) -> None:
    whole = distil(tmp_path / "whole", in_memory=True, dropout=0.1)
    with pytest.raises(KeyboardInterrupt, match="the state at step 4 of 6"):
        distil(tmp_path / "cut", at=4, in_memory=True, dropout=0.1)
    resumed = distil(tmp_path / "cut", replace(PLAIN, resume=True), in_memory=True, dropout=0.1)
    assert resumed.log == whole.log
    assert runs.same(resumed, whole)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> runs.Run:
    return distil(tmp_path_factory.mktemp("distil") / "plain")


@pytest.mark.slow
def test_compiled(plain: runs.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)
    calls = count_calls(monkeypatch, "eager")
    fast = distil(tmp_path, replace(PLAIN, compile=True))
    assert calls
    assert fast.losses == pytest.approx(plain.losses, rel=1e-5)


def test_gradient_checkpointing(plain: runs.Run, tmp_path: Path) -> None:
    again = distil(tmp_path, replace(PLAIN, gradient_checkpointing=True))
    assert again.losses == pytest.approx(plain.losses, rel=1e-5)
    assert again.weights.keys() == plain.weights.keys()


def test_auto_batch(plain: runs.Run, tmp_path: Path) -> None:
    assert distil(tmp_path, replace(PLAIN, auto_batch=True)).losses == plain.losses


def test_bf16_losses_are_close(plain: runs.Run, tmp_path: Path) -> None:
    rounded = distil(tmp_path, replace(PLAIN, precision="bf16"))
    assert rounded.losses == pytest.approx(plain.losses, rel=0.05)
    assert rounded.losses != plain.losses
