"""Score a learner on held-out text: the loss, its perplexity, and the share of words and pairs that are right."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from biosqueeze.data.feature_keys import IGNORED, INPUT_IDS, LABELS
from biosqueeze.data.word_starts import word_starts
from biosqueeze.errors import SqueezeError
from biosqueeze.pretraining.learner import WORD_INDEX, PretrainingLearner
from biosqueeze.training.batches import BatchSchedule, ItemSource, loader

BATCH_SIZE = 16  # without gradients, the logits of all masked rows of a batch are in memory at once
_HIGHEST_EXPONENT = 700.0


@dataclass(frozen=True)
class HeldOut:
    """Held-out text, which is masked in the same way at every evaluation."""

    source: ItemSource
    starts: np.ndarray[Any, np.dtype[np.bool_]] | None  # whether a token starts a word; None: every piece is one
    precision: str

    @classmethod
    def of(cls, source: ItemSource, tokenizer: PreTrainedTokenizerBase, precision: str) -> "HeldOut":
        """Prepare the text for a tokenizer; without signs of word borders in its pieces, each piece is a word."""
        try:
            starts = word_starts(tokenizer)
        except SqueezeError:
            starts = None
        return cls(source, starts, precision)

    def scores(self, learner: PretrainingLearner) -> dict[str, float]:
        """Compute the mean of each score over its units, and the perplexity of the masked tokens.

        Args:
            learner: in eval mode, on its device.
        """
        device = next(learner.parameters()).device
        items = len(self.source.draw(0, np.random.default_rng(0)))
        size = min(BATCH_SIZE, items)
        sums: dict[str, tuple[float, int]] = {}
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            for batch in loader(BatchSchedule(self.source, size, seed=0, total=math.ceil(items / size)), workers=0):
                inputs = {**batch, WORD_INDEX: self._word_index(batch)}
                values = learner.held_out_sums({name: tensor.to(device) for name, tensor in inputs.items()})
                for name, (value, count) in values.items():
                    former, units = sums.get(name, (0.0, 0))
                    sums[name] = (former + value, units + count)
        means = {name: value / max(1, count) for name, (value, count) in sums.items()}
        return with_perplexity(means)

    def _word_index(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the number of the word that each token belongs to, within the batch: (batch, length)."""
        ids = torch.where(batch[LABELS] != IGNORED, batch[LABELS], batch[INPUT_IDS]).numpy()
        starts = np.ones(ids.shape, dtype=bool) if self.starts is None else self.starts[ids]
        starts[:, 0] = True
        return torch.from_numpy(np.cumsum(starts).reshape(ids.shape))


def with_perplexity(means: Mapping[str, float]) -> dict[str, float]:
    """Put the perplexity, exp(mean loss of the masked tokens), after the loss."""
    scores: dict[str, float] = {}
    for name, value in means.items():
        scores[name] = value
        if name == "mlm":
            scores["perplexity"] = math.exp(min(value, _HIGHEST_EXPONENT))
    return scores
