"""Options of `shrink` that name the sizes to keep, or a student's shape. Torch-free."""

from dataclasses import dataclass
from typing import Annotated

from biosqueeze.models.named.presets import PRESETS
from biosqueeze.options import Bounds, Excludes, Suggests, Syntax

_NOT_WITH_STUDENT = Excludes("student", why="a preset sets the whole shape")


@dataclass(frozen=True, kw_only=True)
class ShapeOptions:
    """The sizes to keep, or the name of a shape."""

    layers: Annotated[
        str | None,
        "How many layers to keep (6: spread evenly), which ones (0,2,4), or every-other, odd, top or bottom (the upper "
        "or lower half).",
        Syntax("LAYERS", is_list=True, number_is_count=True),
        _NOT_WITH_STUDENT,
    ] = None
    width: Annotated[
        float | None,
        "Share of the feed-forward neurons and heads to keep in each layer, and so of the hidden size; the neurons "
        "rounded to a multiple of 64 (fewer in small models), which int8 kernels need.",
        Bounds(above=0, below=1),
        Excludes("ffn", "heads", "hidden", why="it sets all three"),
        _NOT_WITH_STUDENT,
    ] = None
    ffn: Annotated[
        int | None,
        "Feed-forward neurons to keep in each layer: the most important ones, see --importance.",
        _NOT_WITH_STUDENT,
    ] = None
    heads: Annotated[
        int | None,
        "Attention heads to keep in each layer; the hidden size becomes heads x head size.",
        _NOT_WITH_STUDENT,
    ] = None
    hidden: Annotated[
        int | None,
        "Hidden size: a multiple of the head size (fewer heads) or of the number of heads (narrower heads).",
        _NOT_WITH_STUDENT,
    ] = None
    embedding: Annotated[
        int | None,
        "Embedding size of an ELECTRA or ALBERT, from which a projection makes the hidden size. The projection is "
        "fitted to the original's over the vocabulary (not by --repair none).",
        _NOT_WITH_STUDENT,
    ] = None
    student: Annotated[
        str | None,
        f"Make a student of a named shape, see `biosqueeze students`: {', '.join(PRESETS)}.",
        Syntax("PRESET"),
        Suggests(lambda: PRESETS),
    ] = None
