"""Count parameters from configs alone: models are built on torch's meta device, where tensors have no storage."""

from transformers import PreTrainedConfig, PreTrainedModel

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.model_facts import PARTS, part_of
from biosqueeze.models.families import family_of
from biosqueeze.models.loading.detection import detect_head
from biosqueeze.models.loading.load import label_changes, load_config, skeleton


def parameters_of(checkpoint: Checkpoint, head: str = "as-is", labels: int | None = None) -> int:
    """Count the parameters of a checkpoint, as it is or with another head, without reading its weights.

    Args:
        checkpoint: with at least config.json.
        head: "as-is", or the head that it would be loaded with.
        labels: number of classes, if the head has classes.

    Raises:
        SqueezeError: the model family is not supported.
    """
    config = load_config(checkpoint)
    kind = detect_head(checkpoint, config) if head == "as-is" else head
    for key, value in label_changes([f"LABEL_{i}" for i in range(labels or 0)]).items() if labels else ():
        setattr(config, key, value)
    return count_parts(config, family_of(config).architecture(kind))["total"]


def count_parts(config: PreTrainedConfig, architecture: str) -> dict[str, int]:
    """Count the parameters in embeddings, attention, ffn and head, and their total; tied ones count once.

    Raises:
        SqueezeError: transformers cannot build a model from the config.
    """
    return count_model(skeleton(config, architecture))


def count_model(model: PreTrainedModel) -> dict[str, int]:
    """Count a model's parameters by part; tied ones count once."""
    counts = dict.fromkeys(PARTS, 0)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if name not in model.all_tied_weights_keys:  # copies, which XLM-RoBERTa lists before their originals
            counts[part_of(name)] += parameter.numel()
    return counts | {"total": sum(counts.values())}
