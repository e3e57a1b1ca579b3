"""--layer-decay: parameter groups of the optimiser, with learning rates that fall towards the embeddings."""

from torch import nn
from transformers import PreTrainedModel

from biosqueeze.models.custom_heads.encoder import HeadedEncoder
from biosqueeze.models.families import family_of
from biosqueeze.models.layers import encoder_layers
from biosqueeze.training.optimiser.parameter_groups import Group, parameter_groups


def layered_groups(
    learner: nn.Module, model: PreTrainedModel | HeadedEncoder, weight_decay: float, lr: float, layer_decay: float
) -> list[Group]:
    """Return two groups for each layer, with rates that fall from the head (lr) to the embeddings.

    Discriminative fine-tuning (Howard and Ruder 2018, section 3.2): layer i of n, from 0, has the rate
    lr * layer_decay ** (n - i), the embeddings lr * layer_decay ** (n + 1), and the head, the pooler and everything
    else outside of the encoder lr.

    Args:
        learner: the learner, of which `model` is part.
        model: a transformers model, with or without a head.
        weight_decay: of matrices.
        lr: the head's learning rate.
        layer_decay: above 0, at most 1.
    """
    depths = _depths(model)
    groups = []
    for depth in sorted({depths.get(id(p), 0) for p in learner.parameters()}):
        for group in parameter_groups(learner, weight_decay):
            chosen = [p for p in group["params"] if depths.get(id(p), 0) == depth]
            if chosen:
                groups.append({**group, "params": chosen, "lr": lr * layer_decay**depth})
    return groups


def _depths(model: PreTrainedModel | HeadedEncoder) -> dict[int, int]:
    """Return the number of layers between the head and each parameter of the encoder, by id; 0 after the layers."""
    layers = encoder_layers(model)
    after = [getattr(model.base_model, name, None) for name in ("pooler", family_of(model.config).final_norm) if name]
    depths = {id(p): len(layers) + 1 for p in model.base_model.parameters()}
    for part in after:
        depths |= {id(p): 0 for p in (part.parameters() if isinstance(part, nn.Module) else ())}
    for number, layer in enumerate(layers):
        depths |= {id(p): len(layers) - number for p in layer.parameters()}
    return depths
