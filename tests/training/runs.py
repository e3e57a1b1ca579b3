"""Small trainings with the real loop: a pico model, random windows, and all logged values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from biosqueeze.data.collate import Features
from biosqueeze.data.output_types import TOKENS
from biosqueeze.finetuning.build import build_fine_tuner
from biosqueeze.finetuning.options import FineTuningOptions
from biosqueeze.training.job import Probe, TrainingJob, TrainingSummary
from biosqueeze.training.loop import train
from biosqueeze.training.sources import Mixture
from tests import pico
from tests.metrics_log import log_of

VOCABULARY = 200
Evaluate = Callable[[Any], dict[str, float]]


def model_of(family: str = "bert", *, dropout: float = 0.1) -> PreTrainedModel:
    model = pico.model_of(family, VOCABULARY, "token-classification")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = dropout
    return model


def windows(count: int = 24, seed: int = 0) -> list[Features]:
    """Return token windows of ragged lengths; about half of the tokens have a label, in one window a single one."""
    rng = np.random.default_rng(seed)
    features: list[Features] = []
    for number in range(count):
        ids = rng.integers(5, VOCABULARY, size=rng.integers(4, 20))
        labels = np.where(rng.random(len(ids)) < 0.5, ids % 3, -100)
        if number == 0:
            labels[:] = -100
        labels[1] = ids[1] % 3
        features.append({"input_ids": ids, "labels": labels})
    return features


@dataclass
class Run:
    """A finished training."""

    model: PreTrainedModel
    summary: TrainingSummary
    log: list[dict[str, Any]] = field(default_factory=list)

    @property
    def losses(self) -> list[float]:
        return [line["loss"] for line in self.log if "loss" in line]

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        return self.model.state_dict()


def run(
    directory: Path,
    options: FineTuningOptions,
    *,
    features: Sequence[Features] | None = None,
    evaluate: Evaluate | None = None,
    model: PreTrainedModel | None = None,
    goal: float | None = None,
    keeps_better_start: bool = False,
    probe: Probe | None = None,
) -> Run:
    directory.mkdir(exist_ok=True)
    model = model or model_of()
    items = list(features or windows())
    learner = build_fine_tuner(options, model, TOKENS, items)
    source = Mixture(items, None, 0.0, 0)
    job = TrainingJob(
        "test", learner, source, options, directory, evaluate,
        goal=goal, keeps_better_start=keeps_better_start, probe=probe,
    )  # fmt: skip
    summary = train(job)
    return Run(model, summary, log_of(directory))


def same(first: Run, second: Run) -> bool:
    return all(torch.equal(first.weights[name], second.weights[name]) for name in first.weights)
