"""The cross entropy of masked tokens with the originals."""

from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedModel

from biosqueeze.models.fast_training.fast_layers import fast_layers_of
from biosqueeze.models.full_precision import full
from biosqueeze.models.heads import decoder_inputs, mlm_logits, vocabulary_parameters
from biosqueeze.objectives import LogitRows, mlm
from biosqueeze.training.chunked_loss import ChunkedTerms, chunk_rows, sum_in_chunks
from biosqueeze.training.vocabulary_loss import Observer, vocabulary_loss


def masked_loss(model: PreTrainedModel, hidden: Tensor, labels: Tensor, observe: Observer | None = None) -> Tensor:
    """Sum the cross entropy over masked tokens. Scalar.

    Args:
        model: with its masked-language-model head.
        hidden: last hidden states at the masked tokens, (rows, hidden).
        labels: the original tokens, (rows,).
        observe: gets the predicted probabilities of all rows, in order.
    """
    if fast_layers_of(model.base_model) and torch.is_autocast_enabled("cpu"):
        return vocabulary_loss(*decoder_inputs(model, hidden), labels, torch.bfloat16, observe)
    terms = ChunkedTerms(partial(_sums, model, labels, observe), [1.0], chunk_rows(model.config.vocab_size))
    return sum_in_chunks(terms, hidden, vocabulary_parameters(model))[0]


def _sums(model: PreTrainedModel, labels: Tensor, observe: Observer | None, hidden: Tensor, part: slice) -> Tensor:
    """Sum the one term over a slice of the rows: (1,)."""
    logits = mlm_logits(model, hidden)
    if observe:
        observe(full(logits.detach()).softmax(dim=-1), part)
    return mlm.loss(LogitRows(logits, None, labels[part])).unsqueeze(0)
