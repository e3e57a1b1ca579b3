"""Named shapes with other sizes in place of their own: `pretrain --shape`. Torch-free."""

from dataclasses import dataclass, replace

from biosqueeze.errors import UsageError
from biosqueeze.models.families import FAMILIES
from biosqueeze.models.named.shapes import SHAPES, Shape
from biosqueeze.registry import closest


@dataclass(frozen=True, kw_only=True)
class ShapeChanges:
    """--layers, --hidden and so on: sizes in place of the named shape's."""

    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    ffn: int | None = None
    positions: int | None = None
    embedding: int | None = None


def find_shape(name: str, changes: ShapeChanges) -> Shape:
    """Return the named shape with other sizes in place of its own.

    A changed hidden size changes the sizes that follow from it and were not given: the heads keep their size, the FFN
    its ratio to the hidden size, and embeddings as wide as the layers stay so.

    Raises:
        UsageError: there is no such shape, or the sizes do not fit together.
    """
    if name not in SHAPES:
        raise UsageError(f"--shape: there is no shape {name!r}.{closest(name, SHAPES)} Known: {', '.join(SHAPES)}")
    shape = SHAPES[name]
    given = {size: value for size, value in vars(changes).items() if value is not None}
    if "embedding" in given and shape.embedding is None:
        raise UsageError(f"--embedding: the embeddings of {shape.family} are as wide as its layers; leave it out")
    changed = replace(shape, **{**_following(shape, changes.hidden), **given})
    if changed.family == "mobilebert" and changed.embedding and changed.hidden < changed.embedding:
        raise UsageError(
            f"--hidden {changed.hidden} is narrower than the embeddings, {changed.embedding}, which mobilebert cannot "
            f"be; give --embedding {changed.hidden} too"
        )
    _check_heads(changed)
    return changed


def _check_heads(shape: Shape) -> None:
    """Check that a shape can be divided into its heads.

    Raises:
        UsageError: it cannot.
    """
    hidden, heads = shape.hidden, shape.heads
    size = max(1, hidden // heads)
    if hidden % heads:
        raise UsageError(
            f"--hidden {hidden} cannot be divided into {heads} heads; give a multiple of the heads, such as "
            f"{size * heads}, or other --heads"
        )
    if FAMILIES[shape.family].rotary and size % 2:  # the two halves of each head are rotated
        raise UsageError(
            f"--hidden {hidden} with {heads} heads makes heads of {size} dimensions, and {shape.family} needs an even "
            f"number; give --hidden {(size + 1) * heads}, or other --heads"
        )
    bottleneck = int(shape.settings.get("intra_bottleneck_size", hidden))
    if bottleneck % heads:
        fitting = max(number for number in range(1, heads) if bottleneck % number == hidden % number == 0)
        raise UsageError(
            f"--hidden {hidden} with {heads} heads: {shape.family} also divides its bottleneck of {bottleneck} "
            f"dimensions into heads, and {heads} do not fit; give other --heads, such as {fitting}"
        )


def _following(shape: Shape, hidden: int | None) -> dict[str, int | None]:
    """Return the sizes that follow from another hidden size."""
    if hidden is None:
        return {}
    heads = max(1, hidden * shape.heads // shape.hidden)
    embedding = hidden if shape.embedding == shape.hidden else shape.embedding
    return {"heads": heads, "ffn": hidden * shape.ffn // shape.hidden, "embedding": embedding}
