"""Small runs with --cache-teacher: data, loss configurations, and a teacher that counts its calls."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from transformers import PreTrainedModel

from biosqueeze.data.collate import Features
from biosqueeze.data.output_types import OUTPUT_TYPES, TOKENS
from biosqueeze.data.text.prepared import prepare_corpus
from biosqueeze.distillation.learner import Distiller
from biosqueeze.distillation.losses.config import LossConfig
from biosqueeze.distillation.options import DistillationOptions
from biosqueeze.distillation.request import CacheSettings
from biosqueeze.distillation.teachers.cache.fill import ITEM
from biosqueeze.distillation.teachers.cache.plan import CacheRequest
from biosqueeze.distillation.teachers.sources import LiveTeacher, OutputSpec, Teacher, TeacherOutputs
from biosqueeze.training.batches import Batch, ItemSource
from biosqueeze.training.job import TrainingJob
from biosqueeze.training.loop import train
from biosqueeze.training.sources import MaskedBlocks, Mixture
from tests import pico
from tests.metrics_log import log_of

TOKENIZER = pico.tokenizer_of("bert")


CLASSES = 3


def model_of(head: str = "mlm", seed: int = 0) -> PreTrainedModel:
    return pico.model_of("bert", len(TOKENIZER), head, seed=seed)


def masked(text: Path, *, pack: bool = False, rate: float = 0.15, field: str = "text") -> MaskedBlocks:
    return MaskedBlocks.of(prepare_corpus([str(text)], field, TOKENIZER, 48, pack=pack), TOKENIZER, rate)


def labelled(output_type: str, count: int = 13, seed: int = 0) -> Mixture:
    """Windows of different lengths with labels of the output_type; the first may be unlabelled."""
    rng = np.random.default_rng(seed)
    items: list[Features] = []
    for number in range(count):
        ids = rng.integers(5, len(TOKENIZER), size=rng.integers(3, 15))
        labels: Features = {
            "tokens": {"labels": np.where(rng.random(len(ids)) < 0.5, ids % CLASSES, -100)},
            "single": {"labels": np.array(-100 if number == 0 else number % CLASSES)},
            "multi": {"targets": rng.integers(0, 2, size=CLASSES).astype(np.float32)},
            "score": {"targets": np.array(np.nan if number == 0 else rng.random(), dtype=np.float32)},
        }[output_type]
        items.append({"input_ids": ids, **labels})
    return Mixture(items, None, 0.0, 0)


def mlm_losses(**changes) -> LossConfig:
    weights = {"mlm": 1.0, "kl": 2.0, "cosine": 1.0, "embedding": 1.0}
    spec = OutputSpec("mlm", TOKENS, logits=True)
    return replace(
        LossConfig(weights=weights, output_spec=spec, temperature=2.0, layer_map=((2, 1), (4, 3))), **changes
    )


def task_losses(output_type: str, **changes) -> LossConfig:
    spec = OutputSpec("task", OUTPUT_TYPES[output_type], logits=True)
    losses = LossConfig(weights={"kl": 1.0, "hard": 1.0, "hidden": 1.0}, output_spec=spec, layer_map=((2, 1), (4, 3)))
    return replace(losses, temperature=2.0, **changes)


@dataclass
class CountingTeacher:
    """A live teacher, or one that must not run, that records the items it was run on."""

    live: LiveTeacher | None
    items: list[int] = field(default_factory=list)
    after: Callable[[int], None] = lambda _count: None  # called with the number of items so far

    def outputs(self, batch: Batch) -> TeacherOutputs:
        assert self.live is not None, "the teacher was run"
        self.items += batch[ITEM].tolist() if ITEM in batch else []
        outputs = self.live.outputs(batch)
        self.after(len(self.items))
        return outputs


UNUSED_TEACHER = CountingTeacher(None)


def live(config: LossConfig, *models: PreTrainedModel) -> LiveTeacher:
    teachers = models or (model_of() if config.output_spec.kind == "mlm" else model_of("token-classification"),)
    return LiveTeacher(teachers, config.output_spec, config.teacher_parts, temperature=config.temperature)


def cache_request(folder: Path, source: ItemSource, config: LossConfig, **changes) -> CacheRequest:
    values = {"batch_size": 4, "precision": "fp32", "lr": 1e-3, "dropout": 0.0, "cache_teacher": str(folder)}
    options = DistillationOptions(**{**values, **changes})
    return CacheRequest(
        teachers=["a"],
        teacher_weights=[1.0],
        loss_config=config,
        source=source,
        settings=CacheSettings(str(folder), options.cache_top, options.mask_rate),
        training=options,
        maskings=options.repeated_maskings or 1,
    )


def distil(
    directory: Path, request: CacheRequest, source: ItemSource, teacher: Teacher, student: PreTrainedModel
) -> list[dict]:
    directory.mkdir()
    learner = Distiller(student, teacher, request.loss_config, teacher_width=pico.HIDDEN)
    train(TrainingJob("test", learner, source, request.training, directory, maskings=request.maskings))
    return log_of(directory)
