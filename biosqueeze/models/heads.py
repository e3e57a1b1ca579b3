"""The vocabulary projection of a masked language model, applied only where it is needed."""

from torch import Tensor, nn

from biosqueeze.errors import SqueezeError


def mlm_logits(model: nn.Module, hidden: Tensor) -> Tensor:
    """Logits over the vocabulary from last hidden states: (rows, hidden) -> (rows, vocabulary).

    Calling the head on the masked rows alone saves the projection of all others, which is most of a small student's work.

    Raises:
        SqueezeError: the model's family has no masked-language-model head that we know.
    """
    match model.config.model_type:
        case "bert":
            return model.cls(hidden)
        case "roberta":
            return model.lm_head(hidden)
        case "electra":
            return model.generator_lm_head(model.generator_predictions(hidden))
        case "distilbert":
            activated = model.activation(model.vocab_transform(hidden))
            return model.vocab_projector(model.vocab_layer_norm(activated))
        case "albert":
            return model.predictions(hidden)
    raise SqueezeError(f"{model.config.model_type} has no masked-language-model head that biosqueeze knows")
