"""Calibration data: batches of a task's training split with labels, or of text; with the loss of the model's head.

The loss of a batch is the sum over its examples, so that gradients of one example do not depend on the others.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from biosqueeze.backends.torch import input_names
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.collate import Features, pad
from biosqueeze.data.feature_keys import ATTENTION_MASK, IGNORED, INPUT_IDS, LABELS, TARGETS
from biosqueeze.data.text.corpus import read_lines
from biosqueeze.data.text.masking import Masking
from biosqueeze.finetuning.finetuned_checkpoint import sequence_length, task_of
from biosqueeze.importance.sources import CalibrationRequest
from biosqueeze.models.custom_heads.cosine import CosineHead, stack_texts
from biosqueeze.models.custom_heads.files import has_cosine, predicts_masked, saved_score_range
from biosqueeze.models.heads import main_output
from biosqueeze.models.output_tensors import tensors_of
from biosqueeze.progress import CountedWarning, collect_warnings, warn
from biosqueeze.tasks import Dataset, open_task

Batch = Mapping[str, Tensor]
_BATCH_SIZE = 8
_CHUNK = 64  # examples that are encoded at a time, until there are enough tokens
_SAMPLED_LINES = 20_000  # lines are drawn from the beginning of a corpus, and from as many more where it is short


@dataclass(frozen=True)
class Calibration:
    """Batches of padded sequences, and the loss that is to stay low."""

    batches: Sequence[Batch] = ()
    """Model inputs and labels, see `data.output_types`; of pairs that are encoded separately, see `stack_texts`."""
    inputs: tuple[str, ...] = ()
    """The names of the model's inputs."""
    loss_sum: Callable[[Tensor, Batch], Tensor] | None = None
    """From logits and a batch to the summed loss of its examples; None without labels."""

    @property
    def tokens(self) -> int:
        """Number of real tokens."""
        return sum(int(batch[ATTENTION_MASK].sum()) for batch in self.batches)

    @property
    def examples(self) -> int:
        """Number of sequences, or of pairs of them that are encoded separately."""
        return sum(example_count(batch) for batch in self.batches)

    def token_counts(self, vocabulary: int) -> Tensor:
        """Return how often each token of a vocabulary of that size occurs in the text, (vocabulary,)."""
        ids = torch.cat([self._text_of(batch)[batch[ATTENTION_MASK] == 1] for batch in self.batches])
        return torch.bincount(ids, minlength=vocabulary)

    def _text_of(self, batch: Batch) -> Tensor:
        """Return the ids of a batch as they were before any was masked."""
        ids = batch[INPUT_IDS]
        return torch.where(batch[LABELS] == IGNORED, ids, batch[LABELS]) if self.loss_sum is _masked_loss else ids

    def samples(self, tokens: int) -> "tuple[Calibration, Calibration]":
        """Return two samples of about as many tokens, at most half of all each, spread over all lengths.

        They have no sequence in common, unless there is only one batch.
        """
        step = max(2, round(self.tokens / tokens))
        first, second = self.batches[::step], self.batches[1::step]
        return replace(self, batches=first), replace(self, batches=second or first)

    def run(self, model: PreTrainedModel, batch: Batch) -> Tensor:
        """Return the model's main output for a batch, see `heads.main_output`."""
        return main_output(model(**{name: batch[name] for name in self.inputs if name in batch}))

    def loss(self, model: PreTrainedModel, batch: Batch) -> Tensor:
        """Return the loss of a batch, summed over its examples. Scalar."""
        if self.loss_sum is None:
            raise ValueError("there is no loss; see `sources.check_loss`")
        return self.loss_sum(self.run(model, batch), batch)


def example_count(batch: Batch) -> int:
    """Return the number of examples in a batch, which has two rows for each of some, see `stack_texts`."""
    return len(batch[TARGETS if TARGETS in batch else INPUT_IDS])


def read_calibration(
    request: CalibrationRequest | None,
    checkpoint: Checkpoint,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
) -> Calibration:
    """Read batches until they have the requested number of tokens.

    Args:
        request: checked, see `sources.open_request`; None reads nothing.
        checkpoint: that the model was loaded from.
        model: with its head.
        tokenizer: the model's.

    Raises:
        SqueezeError: the data cannot be read, or hold no text.
    """
    if request is None:
        return Calibration()
    reader = _task_features if request.task else _text_features
    features, count = [], 0
    for feature in reader(request, checkpoint, tokenizer):
        features.append(feature)
        count += len(feature[INPUT_IDS])
        if count >= request.tokens:
            break
    else:
        warn(f"{request.source} has {count:,} tokens to calibrate on, --calibration-tokens is {request.tokens:,}")
    batches = [stack_texts(batch, int(tokenizer.pad_token_id)) for batch in _batches(features, tokenizer)]
    return Calibration(batches, input_names(model), _loss_of(request, checkpoint))


def _task_features(
    request: CalibrationRequest, checkpoint: Checkpoint, tokenizer: PreTrainedTokenizerFast
) -> Iterator[Features]:
    """Yield the windows of the training examples of the checkpoint's task, in random order."""
    _, task = task_of(checkpoint, request.task, "to calibrate")
    length = sequence_length(checkpoint, None, tokenizer.model_max_length)
    seen: set[str] = set()
    for part in _shuffled(task.read(request.source, ("train",)), request):
        with collect_warnings() as warnings:
            windows = task.encode(part, checkpoint.labels, tokenizer, length)
        _warn_once(warnings, seen)
        yield from (window.features for window in windows)


def _shuffled(data: Dataset, request: CalibrationRequest) -> Iterator[Sequence[Any]]:
    """Yield some training examples at a time, in random order."""
    examples = list(data.splits["train"])
    Random(request.seed).shuffle(examples)
    for start in range(0, len(examples), _CHUNK):
        yield examples[start : start + _CHUNK]


def _warn_once(warnings: Sequence[str | CountedWarning], seen: set[str]) -> None:
    """Print warnings of a new kind; a length is that of the fine-tuning, so their advice on options is left out."""
    for warning in warnings:
        message = f"some {warning.what}, as in the fine-tuning" if isinstance(warning, CountedWarning) else warning
        if message not in seen:
            seen.add(message)
            warn(message)


def _text_features(
    request: CalibrationRequest, checkpoint: Checkpoint, tokenizer: PreTrainedTokenizerFast
) -> Iterator[Features]:
    """Yield text in random order; with masked tokens if the model has a head that predicts them."""
    length = min(request.max_length, tokenizer.model_max_length)
    mask = Masking.of(tokenizer) if predicts_masked(checkpoint) else None
    rng = np.random.default_rng(request.seed)
    for ids in (_text_of_examples if request.text_of else _lines)(request, tokenizer, length):
        inputs, labels = mask(ids, rng) if mask else (ids, None)
        yield {INPUT_IDS: inputs} | ({} if labels is None else {LABELS: labels})


def _lines(request: CalibrationRequest, tokenizer: Any, length: int) -> Iterator[NDArray[np.int64]]:
    lines = _drawn(read_lines(request.source, request.field), request.seed)
    while chunk := list(islice(lines, _CHUNK)):
        for row in tokenizer(chunk, truncation=True, max_length=length)["input_ids"]:
            yield np.array(row, dtype=np.int64)


def _text_of_examples(request: CalibrationRequest, tokenizer: Any, length: int) -> Iterator[NDArray[np.int64]]:
    task = open_task(str(request.text_of))
    data = task.read(request.source, ("train",))
    task = task.with_scheme(data.scheme)
    for part in _shuffled(data, request):
        with collect_warnings():  # long ones are cut like lines
            windows = task.encode(part, data.labels, tokenizer, length)
        yield from (np.asarray(window.features[INPUT_IDS], dtype=np.int64) for window in windows)


def _drawn(lines: Iterator[str], seed: int) -> Iterator[str]:
    """Yield lines in random order: first those of the beginning, and where they do not suffice, of what follows."""
    rng = Random(seed)
    while part := list(islice(lines, _SAMPLED_LINES)):
        rng.shuffle(part)
        yield from part


def _batches(features: Sequence[Features], tokenizer: PreTrainedTokenizerFast) -> list[Batch]:
    """Return batches of sequences of similar length, with little padding."""
    ordered = sorted(features, key=lambda feature: len(feature[INPUT_IDS]))
    parts = (ordered[start : start + _BATCH_SIZE] for start in range(0, len(ordered), _BATCH_SIZE))
    padded = (pad(part, int(tokenizer.pad_token_id)) for part in parts)
    return [{name: torch.from_numpy(array) for name, array in batch.items()} for batch in padded]


def _loss_of(request: CalibrationRequest, checkpoint: Checkpoint) -> Callable[[Tensor, Batch], Tensor] | None:
    """Return the loss of the head: of a tagger with a CRF, that of its emissions alone."""
    if request.task:
        tensors, head = tensors_of(request.output_type), _cosine_head(checkpoint)

        def loss(output: Tensor, batch: Batch) -> Tensor:
            logits = output if head is None else head(output, batch[ATTENTION_MASK])
            return tensors.loss(logits.float(), batch) * tensors.scored(batch)

        return loss
    return _masked_loss if predicts_masked(checkpoint) else None


def _cosine_head(checkpoint: Checkpoint) -> CosineHead | None:
    if not has_cosine(checkpoint):
        return None
    head = CosineHead()
    head.set_range(*saved_score_range(checkpoint))
    return head


def _masked_loss(logits: Tensor, batch: Batch) -> Tensor:
    """Return the summed cross-entropy of the masked tokens. Scalar."""
    return functional.cross_entropy(
        logits.flatten(0, 1).float(), batch[LABELS].flatten(), ignore_index=IGNORED, reduction="sum"
    )
