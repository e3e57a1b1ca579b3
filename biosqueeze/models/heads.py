"""The vocabulary projection of a masked language model, applied only where it is needed."""

from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from biosqueeze.errors import SqueezeError


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
