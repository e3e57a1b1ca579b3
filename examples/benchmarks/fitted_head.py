"""Held-out loss of a checkpoint without a language-model head: its head is fitted while the encoder is frozen."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.distillation.teachers.head_fitting import LEARNING_RATE, HeadFitter
from biosqueeze.pretraining.data import load_pretraining_data
from biosqueeze.pretraining.data_settings import PretrainingDataSettings
from biosqueeze.pretraining.held_out import HeldOut
from biosqueeze.pretraining.models import load_start
from biosqueeze.training.job import TrainingJob
from biosqueeze.training.loop import train
from biosqueeze.training.options import TrainingOptions
from biosqueeze.training.precision import precision_of

LENGTH = 128


@dataclass(frozen=True)
class Fitting:
    """How long a head is fitted."""

    steps: int
    batch_size: int  # sequences of 128 tokens
    threads: int


def scores(checkpoint: str, corpus: str, fitting: Fitting, directory: Path) -> dict[str, float]:
    """Fit a head by masked whole words, and score the model as `pretrain` does.

    Args:
        checkpoint: directory, Hub id or demo:NAME.
        corpus: what `biosqueeze corpus` wrote, with a held-out share.
        fitting: how long.
        directory: for temporary files.

    Returns:
        The held-out scores, such as "mlm", in nats per masked token.
    """
    torch.set_num_threads(fitting.threads)
    start = load_start(open_checkpoint(checkpoint), "mlm", seed=0)
    data = load_pretraining_data(PretrainingDataSettings(corpus=(corpus,), mask_unit="word"), start.tokenizer, LENGTH)
    if data.held_out is None:
        raise SystemExit(f"{corpus} has no held-out text")
    options = TrainingOptions(
        steps=fitting.steps, save_every=fitting.steps, lr=LEARNING_RATE, batch_size=fitting.batch_size
    )
    learner = HeadFitter(start.model)
    with tempfile.TemporaryDirectory(dir=directory) as temporary:
        train(TrainingJob("fit the head", learner, data.source, options, Path(temporary)))
    learner.train(False)
    return HeldOut.of(data.held_out, start.tokenizer, precision_of(options)).scores(learner)
