"""What comes out of a model's head, and the vocabulary projection applied only where it is needed."""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from biosqueeze.errors import SqueezeError


def output_of(output: Any) -> Tensor:
    """The one tensor that a model answers with: logits, a span head's two side by side, or last hidden states.

    Returns:
        (batch, length, labels); (batch, labels) from a classifier of sequences; (batch, length, 2) from a span head,
        starts first; (batch, length, hidden) from an encoder without a head.
    """
    if "start_logits" in output:
        return torch.stack([output.start_logits, output.end_logits], dim=-1)
    first: Tensor = output[0]
    return first


def mlm_logits(model: PreTrainedModel, hidden: Tensor) -> Tensor:
    """Logits over the vocabulary from last hidden states: (rows, hidden) -> (rows, vocabulary).

    Calling the head on the masked rows alone saves the projection of all others: most of a small student's work.

    Raises:
        SqueezeError: the model's family has no masked-language-model head that we know.
    """
    parts: Any = model
    logits: Tensor
    match model.config.model_type:
        case "bert":
            logits = parts.cls(hidden)
        case "mobilebert":
            logits = _two_part_logits(parts.cls.predictions, hidden)
        case "albert":
            logits = parts.predictions(hidden)
        case "roberta":
            logits = parts.lm_head(hidden)
        case "electra":
            logits = parts.generator_lm_head(parts.generator_predictions(hidden))
        case "distilbert":
            activated = parts.activation(parts.vocab_transform(hidden))
            logits = parts.vocab_projector(parts.vocab_layer_norm(activated))
        case family:
            raise SqueezeError(f"{family} has no masked-language-model head that biosqueeze knows")
    return logits


def _two_part_logits(head: Any, hidden: Tensor) -> Tensor:
    """MobileBERT's: its embeddings are narrower than its layers, so the decoder is the embeddings and a second matrix.

    transformers joins the two in every call, which for few rows takes longer than all the rest.
    """
    states = head.transform(hidden)  # (rows, hidden)
    tied, own = states.split([head.decoder.in_features, head.dense.out_features], dim=-1)
    return torch.addmm(head.decoder(tied), own, head.dense.weight)
