"""Budgets: the most that a cut model may cost."""

import math
from dataclasses import dataclass
from typing import Literal

from biosqueeze.budgets.options import BudgetOptions
from biosqueeze.options import amount

Quantity = Literal["parameters", "operations"]


@dataclass(frozen=True)
class Budget:
    """The most of one quantity."""

    quantity: Quantity
    value: float
    """Parameters; or operations as a share of the original's."""
    flag: str
    """As it was typed."""

    def limit(self, original: float) -> float:
        """Return the most of the quantity, from the original's."""
        return self.value if self.quantity == "parameters" else self.value * original

    def least(self, cost: float, original: float) -> str:
        """Return what to type for a budget that a cost fits, from the original's."""
        if self.quantity == "parameters":
            return f"--params {round_up(cost):,.0f} or more".replace(",", "")
        return f"--flops {round_up(cost / original):g} or more"


def round_up(value: float) -> float:
    """Round up to two digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / unit) * unit


def budgets_of(options: BudgetOptions) -> tuple[Budget, ...]:
    """Return the budgets that the options name."""
    if options.params is not None:
        return (Budget("parameters", amount(options.params), f"--params {options.params}"),)
    if options.flops is not None:
        return (Budget("operations", options.flops, f"--flops {options.flops:g}"),)
    return ()
