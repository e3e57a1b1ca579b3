"""Compare a changed model with its reference on a padded batch."""

from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import PreTrainedModel

from biosqueeze.errors import SqueezeError
from biosqueeze.models.families import longest_input

TOLERANCE = 1e-4
"""Largest difference of float32 logits and hidden states that counts as rounding, for values of at most 1; larger
values round in proportion to their size."""

_ROWS, _LENGTH = 4, 16


def check_finite_parameters(model: torch.nn.Module, name: str) -> None:
    """Check a model that is about to be trained or cut, or to be a teacher.

    Args:
        model: with its weights.
        name: of its checkpoint, for the message.

    Raises:
        SqueezeError: a parameter is NaN or infinite; the message names it.
    """
    for parameter, values in model.named_parameters():
        if not torch.isfinite(values).all():
            raise SqueezeError(f"{name}: {parameter} holds NaN or an infinite number; fetch or copy it again")


def padded_batch(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return random ids, each row shorter than the one before and padded: int64, (4, 16)."""
    config = model.config
    length = min(_LENGTH, longest_input(config))
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, config.vocab_size, (_ROWS, length), generator=generator)
    lengths = torch.tensor([max(1, length - row * length // _ROWS) for row in range(_ROWS)])
    mask = (torch.arange(length)[None] < lengths[:, None]).long()  # (batch, length)
    padding = config.pad_token_id or 0
    # A pad token among the real ones would shift RoBERTa's positions.
    ids = torch.where(ids == padding, (padding + 1) % config.vocab_size, ids)
    return {"input_ids": ids.masked_fill(mask == 0, padding), "attention_mask": mask}


@torch.no_grad()
def float_outputs(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """Compute all float tensors that the model returns: hidden states, logits, pooled outputs.

    In a model with local attention, padding far from any token has no token to attend to, and its states depend on the
    attention implementation: they are left out, and the others are (tokens, size).
    """
    returned = model(**batch, output_hidden_states=True)
    flat = [part for value in returned.values() for part in (value if isinstance(value, tuple) else (value,))]
    floats = tuple(part for part in flat if part is not None and part.is_floating_point())
    if not getattr(model.config, "layer_types", None):
        return floats
    real = batch["attention_mask"].bool()
    return tuple(part[real] if part.shape[:2] == real.shape else part for part in floats)


def check_same_outputs(change: str, outputs: tuple[Tensor, ...], reference: tuple[Tensor, ...]) -> float:
    """Return the largest difference between a model's outputs and those of its reference.

    Each tensor has its own limit: where hidden states are large, logits are not.

    Args:
        change: what was done to the model, for the message.
        outputs: of the changed model.
        reference: of the original.

    Raises:
        SqueezeError: the difference of a tensor is over `TOLERANCE` of its largest value, or NaN; or the shapes differ.
    """
    same_shapes = [part.shape for part in outputs] == [part.shape for part in reference]
    pairs = zip(outputs, reference, strict=True) if same_shapes else ()
    differences = [float((a - b).abs().max()) for a, b in pairs] or [float("inf")]
    limits = (TOLERANCE * max(1.0, float(part.abs().max())) for part in reference)
    for difference, limit in zip(differences, limits, strict=False):
        if not difference <= limit:
            raise SqueezeError(
                f"{change} changes the outputs by {difference:.3g}, and at most {limit:.3g} can be rounding: nothing "
                "was written; please report this with the checkpoint's name"
            )
    return max(differences)
