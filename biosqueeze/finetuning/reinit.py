"""--reinit-layers: initialise the top layers again before fine-tuning on few examples."""

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from biosqueeze.errors import UsageError
from biosqueeze.models.custom_heads.encoder import HeadedEncoder
from biosqueeze.models.families import family_of
from biosqueeze.models.layers import encoder_layers

_LOADED_MARK = "_is_hf_initialized"


def reinitialise(model: PreTrainedModel | HeadedEncoder, count: int, seed: int) -> None:
    """Initialise the top `count` layers, and the pooler if there is one, as in a new model.

    Zhang et al. 2021, "Revisiting few-sample BERT fine-tuning" (Re-init).

    Args:
        model: changed in place.
        count: layers, from the top; 0 changes nothing.
        seed: of the new weights; the global random generators keep their state.

    Raises:
        UsageError: the model has fewer layers.
    """
    if not count:
        return
    layers = encoder_layers(model)
    check_reinitialised(count, model.config)
    fresh: list[nn.Module] = [*layers[len(layers) - count :]]
    pooler = getattr(model.base_model, "pooler", None)
    fresh += [pooler] if isinstance(pooler, nn.Module) else []
    initialise: Any = model._init_weights
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for part in fresh:
            # A module with children sets the weights of its children anew in some families, so it comes after them.
            for module in sorted(part.modules(), key=lambda module: any(module.children())):
                for parameter in module.parameters(recurse=False):
                    # transformers' initialisers skip parameters that are marked as loaded.
                    setattr(parameter, _LOADED_MARK, False)
                initialise(module)


def check_reinitialised(count: int, config: PreTrainedConfig) -> None:
    """Check --reinit-layers against the number of layers with weights of their own.

    Raises:
        UsageError: the model has fewer.
    """
    shares = family_of(config).shares_layers
    layers = config.num_hidden_groups if shares else config.num_hidden_layers
    if count > layers:
        kind = "layers with weights of their own" if shares else "layers"
        raise UsageError(f"--reinit-layers {count} is more than the {layers} {kind} of this model; give fewer")
