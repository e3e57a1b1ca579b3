"""Small runs with --cache-teacher: data, recipes, and a teacher that counts what it is asked."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from transformers import PreTrainedModel

from biosqueeze.data.collate import Features
from biosqueeze.data.output_types import OUTPUT_TYPES, TOKENS
from biosqueeze.data.prepared import prepare_corpus
from biosqueeze.distillation.learner import Distiller
from biosqueeze.distillation.loss_config import LossConfig
from biosqueeze.distillation.options import DistillationOptions
from biosqueeze.distillation.teacher_cache.fill import ITEM
from biosqueeze.distillation.teacher_cache.plan import CacheRequest
from biosqueeze.distillation.teachers import Answer, LiveTeacher, Question, Teacher
from biosqueeze.training.batches import Batch, ItemSource
from biosqueeze.training.loop import TrainingJob, train
from biosqueeze.training.sources import MaskedBlocks, Mixture
from tests import pico
from tests.training.runs import log_of

TOKENIZER = pico.tokenizer_of("bert")


CLASSES = 3


def model_of(head: str = "mlm", seed: int = 0) -> PreTrainedModel:
    return pico.model_of("bert", len(TOKENIZER), head, seed=seed)


def masked(text: Path, *, pack: bool = False, rate: float = 0.15, field: str = "text") -> MaskedBlocks:
    return MaskedBlocks.of(prepare_corpus([str(text)], field, TOKENIZER, 48, pack=pack), TOKENIZER, rate)


def labelled(output_type: str, count: int = 13, seed: int = 0) -> Mixture:
    """Windows of ragged lengths with labels of an output type; the first of some is unlabelled."""
    rng = np.random.default_rng(seed)
    items: list[Features] = []
    for number in range(count):
        ids = rng.integers(5, len(TOKENIZER), size=rng.integers(3, 15))
        truth: Features = {
            "tokens": {"labels": np.where(rng.random(len(ids)) < 0.5, ids % CLASSES, -100)},
            "single": {"labels": np.array(-100 if number == 0 else number % CLASSES)},
            "multi": {"targets": rng.integers(0, 2, size=CLASSES).astype(np.float32)},
            "score": {"targets": np.array(np.nan if number == 0 else rng.random(), dtype=np.float32)},
        }[output_type]
        items.append({"input_ids": ids, **truth})
    return Mixture(items, None, 0.0, 0)


def mlm_recipe(**changes) -> LossConfig:
    weights = {"mlm": 1.0, "kl": 2.0, "cosine": 1.0, "embedding": 1.0}
    question = Question("mlm", TOKENS, logits=True)
    return replace(LossConfig(weights=weights, question=question, temperature=2.0, layers=((2, 1), (4, 3))), **changes)


def task_recipe(output_type: str, **changes) -> LossConfig:
    question = Question("task", OUTPUT_TYPES[output_type], logits=True)
    made = LossConfig(weights={"kl": 1.0, "hard": 1.0, "hidden": 1.0}, question=question, layers=((2, 1), (4, 3)))
    return replace(made, temperature=2.0, **changes)


@dataclass
class Counting:
    """A live teacher, or one that must not be asked, that counts what it is asked about."""

    live: LiveTeacher | None
    items: list[int] = field(default_factory=list)
    after: Callable[[int], None] = lambda _count: None  # told how many batches there were

    def answer(self, batch: Batch) -> Answer:
        assert self.live is not None, "the teacher was asked"
        self.items += batch[ITEM].tolist() if ITEM in batch else []
        said = self.live.answer(batch)
        self.after(len(self.items))
        return said


NOBODY = Counting(None)


def live(recipe: LossConfig, *models: PreTrainedModel) -> LiveTeacher:
    known = models or (model_of() if recipe.question.kind == "mlm" else model_of("token-classification"),)
    return LiveTeacher(known, recipe.question, recipe.wanted(1), temperature=recipe.temperature)


def options(folder: Path, **changes) -> DistillationOptions:
    known = {"batch_size": 4, "precision": "fp32", "lr": 1e-3, "dropout": 0.0, "cache_teacher": str(folder)}
    return DistillationOptions(**{**known, **changes})


def inquiry(folder: Path, source: ItemSource, recipe: LossConfig, **changes) -> CacheRequest:
    return CacheRequest(teachers=["a"], shares=[1.0], recipe=recipe, source=source, options=options(folder, **changes))


def distil(
    directory: Path, asked: CacheRequest, source: ItemSource, teacher: Teacher, student: PreTrainedModel
) -> list[dict]:
    directory.mkdir()
    learner = Distiller(student, teacher, asked.recipe, teacher_width=pico.HIDDEN)
    train(TrainingJob("test", learner, source, asked.options, directory, maskings=asked.options.repeated_maskings))
    return log_of(directory)
