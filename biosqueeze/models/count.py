"""Counting parameters from configs alone: models are built on torch's meta device, where tensors have no storage."""

import copy

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.model_facts import PARTS, part_of
from biosqueeze.models.families import family_of
from biosqueeze.models.load import head_in, label_changes, load_config, new_model


def parameters_of(checkpoint: Checkpoint, head: str = "as-is", labels: int | None = None) -> int:
    """Number of parameters of a checkpoint, as it is or with another head; weights are not read.

    Args:
        checkpoint: at least its config.json.
        head: "as-is", or the head that it would be loaded with.
        labels: number of classes, where the head has any.

    Raises:
        SqueezeError: the config is of no supported family.
    """
    config = load_config(checkpoint)
    kind = head_in(checkpoint, config) if head == "as-is" else head
    for key, value in label_changes([f"LABEL_{i}" for i in range(labels or 0)]).items() if labels else ():
        setattr(config, key, value)
    return count_parts(config, family_of(config).architecture(kind))["total"]


def count_parts(config: PreTrainedConfig, architecture: str) -> dict[str, int]:
    """Parameters in embeddings, attention, ffn and head, and their total; tied ones count once.

    Raises:
        SqueezeError: transformers refuses the config.
    """
    return count_model(skeleton(config, architecture))


def skeleton(config: PreTrainedConfig, architecture: str) -> PreTrainedModel:
    """The model that a config describes, without storage: for its names and shapes."""
    with torch.device("meta"):
        return new_model(copy.deepcopy(config), architecture, seed=0)


def count_model(model: PreTrainedModel) -> dict[str, int]:
    """Parameters of a model by part, tied ones once."""
    counts = dict.fromkeys(PARTS, 0)
    for name, parameter in model.named_parameters():
        counts[part_of(name)] += parameter.numel()
    return counts | {"total": sum(counts.values())}
