"""Widths as a share of a model's own, in sizes that int8 kernels multiply without remainder."""

from transformers import PreTrainedConfig

from biosqueeze.errors import UsageError
from biosqueeze.models.families import family_of
from biosqueeze.models.layers import query_group
from biosqueeze.progress import note

_MULTIPLES = (64, 32, 16, 8, 4)
"""AMX multiplies int8 tiles of 64 inputs by 16 outputs, and VNNI vectors of 4 inputs by 16 outputs."""
_ROUNDED = 8  # a size is rounded by a sixteenth of itself at most


def widths_of_share(config: PreTrainedConfig, share: float) -> tuple[int, int]:
    """Return numbers of neurons and heads: a share of the model's, at least one.

    The neurons are a multiple of 64, or of a smaller power of two if 64 would change a small number too much; the heads
    are whole groups of those that share a key.
    """
    family, group = family_of(config), query_group(config)
    neurons, heads = int(getattr(config, family.ffn_key)), int(getattr(config, family.heads_key)) // group
    multiple = kernel_multiple(round(neurons * share))
    kept = max(multiple, round(neurons * share / multiple) * multiple)
    return min(neurons, kept), max(1, round(heads * share)) * group


def check_share(config: PreTrainedConfig, share: float) -> None:
    """Check that a share cuts something, and print which share one head is where even that is more.

    Raises:
        UsageError: it is rounded to all neurons and heads.
    """
    family = family_of(config)
    own = int(getattr(config, family.ffn_key)), int(getattr(config, family.heads_key))
    if widths_of_share(config, share) == own:
        smaller = next((part / 100 for part in range(99, 0, -1) if widths_of_share(config, part / 100) != own), None)
        raise UsageError(
            f"--width {share:g} is rounded to all {own[0]} neurons and {own[1]} heads, so nothing would be narrower; "
            f"{'leave it out' if smaller is None else f'give {smaller:g} or less'}"
        )
    least = query_group(config)
    if share < least / own[1]:
        part = f"{least} of {own[1]} ({least / own[1]:.2g})"
        note(f"--width {share:g} is below the smallest share of the heads, {part}, which is taken")


def kernel_multiple(size: int) -> int:
    """Return the multiple that a size is rounded to."""
    return next((multiple for multiple in _MULTIPLES if size >= _ROUNDED * multiple), 1)
