"""Fit a masked-language-model head to a frozen encoder, and measure its perplexity on held-out text."""

import hashlib
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from biosqueeze.data.collate import Features
from biosqueeze.errors import SqueezeError
from biosqueeze.models.device import own_device
from biosqueeze.models.fast_training.fast_layers import EncodedRows
from biosqueeze.pretraining.learner import MaskedLanguageLearner
from biosqueeze.progress import note
from biosqueeze.system import processes
from biosqueeze.training.batches import BatchSchedule, ItemSource, loader
from biosqueeze.training.failures import TrainingError
from biosqueeze.training.job import TrainingJob
from biosqueeze.training.learner import Learner
from biosqueeze.training.loop import train
from biosqueeze.training.options import TrainingOptions
from biosqueeze.training.precision import precision_of
from biosqueeze.training.sources import Blocks, Ids, MaskedBlocks

LEARNING_RATE = 1e-3  # a head alone trains stably at a higher rate than a whole model
HELD_OUT = 64  # blocks of the corpus at most, and at most a tenth of it
HELD_OUT_BATCH = 16  # without gradients, the logits of all masked rows of a batch are in memory at once


@dataclass(frozen=True)
class HeadFitting:
    """How and on what a head is fitted."""

    steps: int
    source: ItemSource  # masked text
    training: TrainingOptions  # of the distillation: batch size, precision, seed
    directory: Path  # for temporary files

    def head_training(self) -> TrainingOptions:
        """Return the options of the head's training; no state is saved before its end."""
        training = self.training
        return TrainingOptions(
            steps=self.steps,
            save_every=self.steps,
            lr=LEARNING_RATE,
            batch_size=training.batch_size,
            accumulate=training.accumulate,
            auto_batch=training.auto_batch,
            precision=training.precision,
            max_length=training.max_length,
            workers=training.workers,
            seed=training.seed,
        )


@dataclass(frozen=True)
class FittedHead:
    """The weights of a head by their names in the model, and its perplexity on held-out text (main process)."""

    weights: dict[str, Tensor]
    before: float  # perplexity of masked tokens with the newly initialized head
    after: float

    @property
    def facts(self) -> dict[str, Any]:
        """What the manifest records."""
        perplexities = {"perplexity_before": round(self.before, 3), "perplexity": round(self.after, 3)}
        return {**perplexities, "sha256": self.sha256}

    @property
    def sha256(self) -> str:
        """SHA-256 over the weights."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.weights.items()):
            digest.update(name.encode())
            digest.update(tensor.numpy().data)
        return digest.hexdigest()


def fit_head(model: PreTrainedModel, name: str, fitting: HeadFitting) -> FittedHead:
    """Fit the head of a model. Of several processes the main one alone measures it and returns all of it.

    Args:
        model: with a newly initialized head; trained in place.
        name: of the model, for messages.
        fitting: how and on what.

    Raises:
        SqueezeError: the corpus is too small, or the training failed.
        KeyboardInterrupt: Ctrl-C; nothing is kept.
    """
    learner = HeadFitter(model)
    held_out, rest = hold_out(fitting.source)
    count = sum(parameter.numel() for parameter in learner.parameters() if parameter.requires_grad)
    tied = "; the decoder is the encoder's frozen word embedding" if _is_tied(model) else ""
    note(f"fitting a head to {name}, the encoder frozen: {count:,} weights, {fitting.steps:,} steps{tied}")
    before = perplexity(learner, held_out, fitting.training) if processes.is_main() else math.nan
    _train(learner, rest, fitting)
    after = perplexity(learner, held_out, fitting.training) if processes.is_main() else math.nan
    note(f"perplexity of held-out masked tokens: {before:,.1f} before, {after:,.1f} after")
    learner.to("cpu")
    weights = {weight: tensor.detach() for weight, tensor in head_parameters(learner.model).items()}
    return FittedHead(weights, before, after)


def _train(learner: "HeadFitter", source: MaskedBlocks, fitting: HeadFitting) -> None:
    directory = fitting.directory / "fit-head"
    if processes.is_main():  # the others may be here before it has made the parent
        directory.mkdir(exist_ok=True)
    try:
        train(TrainingJob("fit the head", learner, source, fitting.head_training(), directory))
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt("the head was not fitted to the end; nothing of it is kept") from interrupt
    except TrainingError as error:
        # The loop's own advice is for a training with --lr and --resume.
        auto_batch = "" if fitting.training.auto_batch else "--auto-batch, "
        raise SqueezeError(
            f"the head could not be fitted ({error.cause}); give {auto_batch}a smaller --batch-size or --max-length, "
            "or --precision fp32"
        ) from error
    finally:
        if processes.is_main():
            shutil.rmtree(directory, ignore_errors=True)


class HeadFitter(MaskedLanguageLearner):
    """Train the head of a model by masked language modelling; the encoder is frozen and its dropout off."""

    fast_layers = False

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        model.requires_grad_(requires_grad=False)
        for parameter in head_parameters(model).values():
            parameter.requires_grad_()

    def train(self, mode: bool = True) -> "HeadFitter":
        """Set the mode of the head alone."""
        super().train(mode)
        self.model.base_model.train(False)
        return self

    def encode(self, batch: Mapping[str, Tensor]) -> EncodedRows:
        """Run the encoder without gradients."""
        with torch.no_grad():
            return super().encode(batch)


def head_parameters(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """Return the parameters of the head by name; a tied decoder belongs to the encoder."""
    encoder = {id(parameter) for parameter in model.base_model.parameters()}
    return {name: parameter for name, parameter in model.named_parameters() if id(parameter) not in encoder}


def _is_tied(model: PreTrainedModel) -> bool:
    head = head_parameters(model)
    return not any(len(tensor) == model.config.vocab_size and tensor.dim() > 1 for tensor in head.values())


@dataclass(frozen=True)
class BlockSubset:
    """A selection of the blocks of a corpus."""

    blocks: Blocks
    items: Ids  # (selected blocks,)

    def __len__(self) -> int:
        """Return the number of selected blocks."""
        return len(self.items)

    def lengths_of(self, items: Ids) -> Ids:
        """Return their lengths in tokens, (items,)."""
        return self.blocks.lengths_of(self.items[items])

    def features(self, item: int) -> Features:
        """Return the features of a selected block."""
        return self.blocks.features(int(self.items[item]))


def hold_out(source: ItemSource) -> tuple[MaskedBlocks, MaskedBlocks]:
    """Split off a few blocks, evenly spread over the corpus: (held out, rest).

    Raises:
        SqueezeError: the corpus is a single block.
    """
    if not isinstance(source, MaskedBlocks):
        raise TypeError(f"masked text was expected, not {type(source).__name__}")
    total = len(source.blocks)
    if total < 2:
        raise SqueezeError(
            "--fit-head holds out a part of the corpus to measure the head, and this corpus is a single sequence; give "
            "more text with --corpus"
        )
    held_out = np.linspace(0, total - 1, max(1, min(HELD_OUT, total // 10))).astype(np.int64)
    rest = np.setdiff1d(np.arange(total), held_out)
    return (
        replace(source, blocks=BlockSubset(source.blocks, held_out)),
        replace(source, blocks=BlockSubset(source.blocks, rest)),
    )


@torch.no_grad()
def perplexity(learner: Learner, source: MaskedBlocks, training: TrainingOptions) -> float:
    """Compute exp(mean cross entropy with the original tokens) at masked positions, which depend on the seed alone."""
    device = own_device()
    learner.to(device).train(False)
    size = min(training.batch_size, HELD_OUT_BATCH, len(source.blocks))
    schedule = BatchSchedule(source, size, training.seed, total=math.ceil(len(source.blocks) / size))
    total, count = 0.0, 0
    for batch in loader(schedule, 0):
        with torch.autocast(device.type, torch.bfloat16, enabled=precision_of(training) == "bf16"):
            term = learner(**{name: tensor.to(device) for name, tensor in batch.items()})["mlm"]
        masked = learner.counts(batch)["mlm"]
        total, count = total + float(term) * masked, count + masked
    return math.exp(min(total / max(1, count), 700.0))
