"""Models with other names of their labels, or without some of their outputs."""

import copy
from collections.abc import Sequence

from transformers import PreTrainedModel

from biosqueeze.models.loading.load import OUTPUT_LAYER, label_changes, new_model


def with_outputs(
    model: PreTrainedModel, kept: Sequence[int], labels: Sequence[str], problem_type: str | None = None
) -> PreTrainedModel:
    """Return a classifier or tagger with some of its outputs, by other names.

    Args:
        model: with a classifier.
        kept: the outputs that remain, from 0; their weights are unchanged.
        labels: their names.
        problem_type: what config.json says of the outputs; None leaves it as it is.
    """
    config = copy.deepcopy(model.config)
    changes = label_changes(labels) | ({"problem_type": problem_type} if problem_type else {})
    for key, value in changes.items():
        setattr(config, key, value)
    rows = {name: t[list(kept)] if name in OUTPUT_LAYER else t for name, t in model.state_dict().items()}
    changed = new_model(config, type(model).__name__, seed=None)
    changed.load_state_dict(rows)
    return changed
