"""The learners of pretraining: masked language modelling, alone or with a loss on pairs of texts."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from biosqueeze.data.feature_keys import ATTENTION_MASK, LABELS, PAIR_LABEL
from biosqueeze.models.fast_training.fast_layers import EncodedRows, encode_rows
from biosqueeze.models.full_precision import full
from biosqueeze.models.heads import mlm_logits, pair_logits
from biosqueeze.models.inputs import model_inputs
from biosqueeze.pretraining.masked_loss import masked_loss
from biosqueeze.training.learner import Learner

WORD_INDEX = "word_index"  # of held-out batches: the number of the word that a token belongs to, within the batch

Sums = dict[str, tuple[float, int]]  # sum and number of units by name of the score


class PretrainingLearner(Learner):
    """A learner with scores on held-out text."""

    fast_layers = True

    def held_out_sums(self, batch: Mapping[str, Tensor]) -> Sums:
        """Sum each score over its units in one held-out batch, without gradients.

        Args:
            batch: as in training, with `word_index` (batch, length).
        """
        raise NotImplementedError

    def save(self, directory: Path) -> tuple[Path, ...]:
        """Write the weights and configs that the training results in; return the directories of models."""
        self.model.save_pretrained(directory)
        return (directory,)


class MaskedLanguageLearner(PretrainingLearner):
    """Masked language modelling; with `pair` also the order or the adjacency of two texts, with equal weight.

    Devlin et al. 2019 (section 3.1) add the mean loss of the masked tokens and that of the next-sentence prediction;
    Lan et al. 2020 (section 3.1) put the order of two sentences in its place.
    """

    def __init__(self, model: PreTrainedModel, pair: str | None = None) -> None:
        """Take a model with its masked-language-model head; for `pair` ("nsp", "sop") with its own pretraining head."""
        super().__init__()
        self.model, self.pair = model, pair
        self.weights = {"mlm": 1.0} | ({pair: 1.0} if pair else {})

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, int]:
        """Return the number of masked tokens, and of pairs."""
        pairs = {self.pair: len(batch[PAIR_LABEL])} if self.pair else {}
        return {"mlm": int((batch[LABELS] >= 0).sum()), **pairs}

    def forward(self, **batch: Tensor) -> dict[str, Tensor]:
        """Compute `mlm`, the mean cross entropy at the masked positions, and that of the pairs. Scalars."""
        return self.losses(self.encode(batch), batch)

    def encode(self, batch: Mapping[str, Tensor]) -> EncodedRows:
        """Run the encoder; the rows are those of the masked tokens."""
        real, masked, inputs = batch[ATTENTION_MASK].bool(), batch[LABELS] >= 0, model_inputs(self.model, batch)
        return encode_rows(self.model, inputs, real, masked, pooled=self.pair is not None)

    def losses(self, encoded: EncodedRows, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute the loss terms from the outputs of the encoder."""
        labels = batch[LABELS][batch[LABELS] >= 0]  # (rows,)
        mean = {"mlm": masked_loss(self.model, encoded.rows, labels) / max(1, len(labels))}
        if self.pair is None or encoded.pooled is None:
            return mean
        logits = full(pair_logits(self.model, encoded.pooled))  # (batch, 2)
        return {**mean, self.pair: functional.cross_entropy(logits, batch[PAIR_LABEL])}

    @torch.no_grad()
    def held_out_sums(self, batch: Mapping[str, Tensor]) -> Sums:
        """Sum the loss, the words of which every masked piece is predicted, and the pairs that are."""
        encoded = self.encode(batch)
        masked = batch[LABELS] >= 0
        labels = batch[LABELS][masked]
        logits = full(mlm_logits(self.model, encoded.rows))  # (rows, vocabulary)
        loss = functional.cross_entropy(logits, labels, reduction="sum") if len(labels) else 0.0
        sums: Sums = {"mlm": (float(loss), len(labels))}
        sums["word_accuracy"] = whole_words(logits.argmax(dim=-1) == labels, batch[WORD_INDEX][masked])
        if self.pair and encoded.pooled is not None:
            right = pair_logits(self.model, encoded.pooled).argmax(dim=-1) == batch[PAIR_LABEL]
            sums[f"{self.pair}_accuracy"] = (int(right.sum()), len(right))
        return sums


def whole_words(right: Tensor, words: Tensor) -> tuple[int, int]:
    """Return how many words have every masked piece right, and how many words there are.

    Args:
        right: of each masked piece, bool (rows,).
        words: the number of its word, (rows,).
    """
    numbers = torch.unique(words)
    wrong = torch.unique(words[~right])
    return len(numbers) - len(wrong), len(numbers)
