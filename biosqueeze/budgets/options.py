"""Options of `shrink` that name a result, from which the shape follows. Torch-free."""

from dataclasses import dataclass
from typing import Annotated

from biosqueeze.options import Bounds, Excludes, Group, Requires, Syntax, amount, positive_numbers

SHAPE = ("layers", "width", "ffn", "heads", "hidden", "embedding", "student")
BUDGETS = ("params", "flops", "speedup", "family")
_SHAPE = Excludes(*SHAPE, why="a budget chooses the shape")
_TIMED = ("speedup", "family")
_ONE = "a cut has one budget"


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """What the cut model may cost; of the shapes that fit, the one that keeps the most importance is taken."""

    params: Annotated[
        str | None,
        "Most parameters, embeddings and head included: 15M, 700K or 15000000. Of the shapes with fewer layers, heads "
        "and neurons that fit, the one that keeps the most importance is taken.",
        Syntax("NUMBER", amount, "15M"),
        _SHAPE,
        Excludes("flops", "speedup", "family", why=_ONE),
        Group.BUDGET,
    ] = None
    flops: Annotated[
        float | None,
        "Most floating-point operations, as a share of the original's.",
        Bounds(above=0, below=1),
        _SHAPE,
        Excludes("speedup", "family", why=_ONE),
        Group.BUDGET,
    ] = None
    speedup: Annotated[
        float | None,
        "How many times as fast as the original the cut model is to be, estimated from the times of small models "
        "that are measured on this machine once, in a minute or two.",
        Bounds(above=1),
        _SHAPE,
        Excludes("family", why=_ONE),
        Group.BUDGET,
    ] = None
    family: Annotated[
        str | None,
        "Several speed-ups: OUT becomes a directory with one checkpoint for each, such as OUT/2x.",
        Syntax("X,X,...", positive_numbers, "2,4,8", is_list=True),
        _SHAPE,
        Group.BUDGET,
    ] = None
    batch: Annotated[int, "Sequences in a batch, for the times.", Bounds(least=1), Requires(*_TIMED), Group.BUDGET] = 1
    length: Annotated[
        int,
        "Tokens of the sequences that times are measured and operations counted for.",
        Bounds(least=3),
        Requires("flops", *_TIMED),
        Group.BUDGET,
    ] = 128
    backend: Annotated[
        str,
        "Runtime and precision, for the times.",
        Syntax("RUNTIME[:PRECISION]"),
        Requires(*_TIMED),
        Group.BUDGET,
    ] = "onnxruntime:int8"
    threads: Annotated[
        int | None,
        "CPU threads, for the times. Default: one for each physical core.",
        Bounds(least=1, most=1024),
        Requires(*_TIMED),
        Group.BUDGET,
    ] = None

    @property
    def has_budget(self) -> bool:
        """Whether a budget chooses the shape."""
        return any(value is not None for value in (self.params, self.flops, self.speedup, self.family))

    @property
    def budget_name(self) -> str:
        """The end of the output's name, where none is given."""
        if self.params is not None:
            return f"p{self.params}"
        if self.flops is not None:
            return f"flops{self.flops:g}"
        return "family" if self.speedup is None else f"{self.speedup:g}x"
