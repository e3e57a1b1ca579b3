"""Which axis of each tensor depends on a size of the config."""

from transformers import PreTrainedConfig

from biosqueeze.models.loading.load import skeleton


def changed_axes(config: PreTrainedConfig, changed: PreTrainedConfig, architecture: str) -> dict[str, int]:
    """Return the tensors of a class that have another shape by another config, and the first axis that differs."""
    shapes, others = (skeleton(each, architecture).state_dict() for each in (config, changed))
    return {
        name: next(axis for axis, size in enumerate(tensor.shape) if size != others[name].shape[axis])
        for name, tensor in shapes.items()
        if name in others and tensor.shape != others[name].shape
    }
