"""Budgets: the most that a cut model may cost."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from biosqueeze.budgets.options import BudgetOptions
from biosqueeze.errors import UsageError
from biosqueeze.options import amount, positive_numbers

Quantity = Literal["parameters", "operations", "milliseconds"]

_ROUNDING_ERRORS = 1 + 1e-12  # a cost divided by a share and multiplied by it is not always the same number


@dataclass(frozen=True)
class Budget:
    """The most of one quantity."""

    quantity: Quantity
    value: float
    """Parameters; operations as a share of the original's; or the speed-up."""
    flag: str
    """As it was typed."""
    name: str = ""
    """Of the checkpoint in a family."""

    def limit(self, original: float) -> float:
        """Return the most of the quantity, from the original's."""
        if self.quantity == "parameters":
            return self.value
        limit = self.value * original if self.quantity == "operations" else original / self.value
        return limit * _ROUNDING_ERRORS

    def nearest(self, cost: float, original: float) -> str:
        """Return what to type for a budget that a cost fits, from the original's."""
        if self.quantity == "parameters":
            return f"--params {cost:.0f} or more"
        if self.quantity == "operations":
            return f"--flops {_rounded(cost / original, 3, math.ceil):g} or more"
        flag = self.flag.partition(" ")[0]
        return f"{flag} {_rounded(original / cost, 3, math.floor):.3g} or less"


def _rounded(value: float, digits: int, to_whole: Callable[[float], int]) -> float:
    """Round to a number of digits, up or down."""
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
    return to_whole(value / unit) * unit


def budgets_of(options: BudgetOptions) -> tuple[Budget, ...]:
    """Return the budgets that the options name, those of a family in ascending order.

    Raises:
        UsageError: a speed-up of the family is not above 1.
    """
    if options.params is not None:
        return (Budget("parameters", amount(options.params), f"--params {options.params}"),)
    if options.flops is not None:
        return (Budget("operations", options.flops, f"--flops {options.flops:g}"),)
    if options.speedup is not None:
        return (Budget("milliseconds", options.speedup, f"--speedup {options.speedup:g}"),)
    speedups = sorted({float(f"{each:g}") for each in positive_numbers(options.family or "")})  # as in their names
    if speedups[0] <= 1:
        raise UsageError(
            f"--family {options.family}: {speedups[0]:g} is not above 1, and so no speed-up; give such as 2,4,8"
        )
    return tuple(Budget("milliseconds", each, f"--family {each:g}", f"{each:g}x") for each in speedups)
