"""Options of `shrink` that name a result, from which the shape follows. Torch-free."""

from dataclasses import dataclass
from typing import Annotated

from biosqueeze.options import Bounds, Excludes, Group, Requires, Syntax, amount

SHAPE = ("layers", "width", "ffn", "heads", "hidden", "student")
_SHAPE = Excludes(*SHAPE, why="a budget chooses the shape")
_ONE = "a cut has one budget"


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """What the cut model may cost; of the shapes that fit, the one is cut that keeps the most importance."""

    params: Annotated[
        str | None,
        "Most parameters, embeddings and head included: 15M, 700K or 15000000. Of the shapes with fewer layers, heads "
        "and neurons that fit, the one is cut that keeps the most importance.",
        Syntax("NUMBER", amount, "15M"),
        _SHAPE,
        Excludes("flops", why=_ONE),
        Group.BUDGET,
    ] = None
    flops: Annotated[
        float | None,
        "Most floating-point operations, as a share of the original's.",
        Bounds(above=0, below=1),
        _SHAPE,
        Group.BUDGET,
    ] = None
    length: Annotated[
        int,
        "Tokens of the sequences that operations are counted for.",
        Bounds(least=3),
        Requires("flops"),
        Group.BUDGET,
    ] = 128

    @property
    def has_budget(self) -> bool:
        """Whether a budget chooses the shape."""
        return any(value is not None for value in (self.params, self.flops))

    @property
    def budget_name(self) -> str:
        """The end of the output's name, where none is given."""
        return f"p{self.params}" if self.params is not None else f"flops{self.flops:g}"
