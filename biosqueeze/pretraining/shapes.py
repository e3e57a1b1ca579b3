"""Named shapes with other sizes in place of their own: `pretrain --shape`. Torch-free."""

from dataclasses import dataclass, replace

from biosqueeze.errors import UsageError
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
    if changed.hidden % changed.heads:
        raise UsageError(
            f"--hidden {changed.hidden} cannot be divided into {changed.heads} heads; give a multiple of the heads, "
            f"such as {max(1, changed.hidden // changed.heads) * changed.heads}, or other --heads"
        )
    return changed


def _following(shape: Shape, hidden: int | None) -> dict[str, int | None]:
    """Return the sizes that follow from another hidden size."""
    if hidden is None:
        return {}
    heads = max(1, hidden * shape.heads // shape.hidden)
    embedding = hidden if shape.embedding == shape.hidden else shape.embedding
    return {"heads": heads, "ffn": hidden * shape.ffn // shape.hidden, "embedding": embedding}
