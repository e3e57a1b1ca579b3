"""Cut in several steps with a training after each: the sizes on the way. Torch-free to import."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from biosqueeze.errors import UsageError
from biosqueeze.models.families import family_of, unprojected_hidden
from biosqueeze.options import Bounds, Excludes

if TYPE_CHECKING:
    from biosqueeze.models.cuts.width import Widths

MOST_STEPS = 50


@dataclass(frozen=True, kw_only=True)
class GradualOptions:
    """How much of a cut is done at once."""

    steps_of: Annotated[
        int | None,
        "Go only the first of N equal steps towards --layers, --ffn, --heads or --hidden. In a recipe: repeat the cut "
        "and the training after it until the shape is reached, N times.",
        Bounds(least=1, most=MOST_STEPS),
        Excludes(
            *("width", "embedding", "params", "flops", "speedup", "family", "student", "vocab_keep", "tokenizer"),
            why="its steps are between sizes; give --layers, --ffn, --heads or --hidden",
        ),
    ] = None


def next_size(now: int, target: int, steps: int, multiple: int = 1) -> int:
    """Return the size after the first of equal steps: a multiple of some size, if the steps are longer than that."""
    if target >= now:
        return target
    length = (now - target) / steps
    rounded_to = multiple if length >= multiple else 1
    return max(target, round((now - length) / rounded_to) * rounded_to)


def next_layers(config: Any, layers: str | None, steps: int | None) -> str | None:
    """Return --layers for the first of some steps.

    Raises:
        UsageError: the layers are not given as a number, or so many cannot be kept.
    """
    from biosqueeze.models.cuts.depth import parse_layers_of, whole_number

    if layers is None or steps is None or steps == 1:
        return layers
    parse_layers_of(config, layers)
    number = whole_number(layers)
    if number is None:
        raise UsageError(
            f"--steps-of {steps} needs a number of layers, and not --layers {layers}; give how many remain"
        )
    return str(next_size(config.num_hidden_layers, number, steps))


def check_steps(config: Any, layers: str | None, target: "Widths", steps: int | None) -> None:
    """Check that every step can cut something.

    Args:
        config: of the model that is cut.
        layers: the number that remains in the end, where layers are cut.
        target: the widths in the end.
        steps: their number.

    Raises:
        UsageError: there are more steps than layers, neurons, heads or dimensions to cut.
    """
    if steps is None or steps == 1:
        return
    neurons, heads, size, group = _sizes_of(config)
    most = max(
        neurons - (target.ffn or neurons),
        len(_smaller(config, heads, target.heads, group, size)),
        len(_narrower(config, size, target, heads)),
        config.num_hidden_layers - int(layers) if layers else 0,
    )
    if 1 <= most < steps:
        raise UsageError(
            f"--steps-of {steps} is more than the {most} layers, heads or neurons to cut, so some steps would cut "
            f"nothing; give --steps-of {most}"
        )


def next_widths(config: Any, target: "Widths", steps: int | None) -> "Widths":
    """Return the widths after the first of some steps; neurons are a multiple of what int8 kernels need."""
    from biosqueeze.models.cuts.shares import kernel_multiple

    if steps is None or steps == 1:
        return target
    neurons, heads, size, group = _sizes_of(config)
    ffn = target.ffn and next_size(neurons, target.ffn, steps, kernel_multiple(target.ffn))
    kept = target.heads and group * next_size(heads // group, target.heads // group, steps)
    narrow = target.head_size and next_size(size, target.head_size, steps)
    if kept and kept != target.heads and kept * (narrow or size) == unprojected_hidden(config):
        kept = _nearest(_smaller(config, heads, target.heads, group, narrow or size), kept, steps)
    if narrow and narrow not in {size, *(sizes := _narrower(config, size, target, kept or heads))}:
        narrow = _nearest(sizes, narrow, steps)
    return replace(
        target,
        ffn=None if ffn == neurons else ffn,
        heads=None if kept == heads else kept,
        head_size=None if narrow == size else narrow,
    )


def _smaller(config: Any, now: int, target: int | None, multiple: int, other: int) -> list[int]:
    """Return the sizes from the target up to the present one, without that at which an ELECTRA loses its projection.

    Args:
        config: of the model.
        now: the number of heads, or their size.
        target: in the end; None where it stays.
        multiple: of which sizes are possible.
        other: the size of the heads, or their number.
    """
    sizes = range(target, now, multiple) if target is not None else ()
    return [size for size in sizes if size * other != unprojected_hidden(config)]


def _narrower(config: Any, now: int, target: "Widths", heads: int) -> list[int]:
    """Return the sizes of heads on the way, as `_smaller` does.

    At a size that divides the hidden size in the end, --hidden would next cut heads, and not narrow all of them.
    """
    hidden = heads * target.head_size if target.head_size and not target.heads else None
    sizes = _smaller(config, now, target.head_size, 1, heads)
    return [size for size in sizes if size == target.head_size or hidden is None or hidden % size]


def _nearest(sizes: Sequence[int], wanted: int, steps: int) -> int:
    """Return the nearest of some ascending sizes that leaves one of them for each of the later steps."""
    return min(sizes[min(steps, len(sizes)) - 1 :], key=lambda size: (abs(size - wanted), size))


def _sizes_of(config: Any) -> tuple[int, int, int, int]:
    """Return the neurons, the heads, the size of a head, and how many heads are cut together."""
    from biosqueeze.models.layers import query_group

    family = family_of(config)
    neurons, heads = int(getattr(config, family.ffn_key)), int(getattr(config, family.heads_key))
    return neurons, heads, int(config.hidden_size) // heads, query_group(config)
