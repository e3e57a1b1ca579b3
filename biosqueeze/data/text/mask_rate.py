"""What is masked at once, and the share of the tokens that is masked: one rate, or one that climbs. Numpy-free."""

from dataclasses import dataclass
from typing import Literal, Self

MaskUnit = Literal["piece", "word", "ngram", "span"]


@dataclass(frozen=True)
class MaskRate:
    """A rate for each of `levels` equal parts of a training, from `first` to `last` in equal steps.

    PubMedBERT (Gu et al. 2021, section 2.2) names 5% to 25%, 5% more after every 20% of the training: `0.05:0.25:5`.
    """

    first: float = 0.15
    last: float | None = None  # None: as the first
    levels: int = 1

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse RATE or FROM:TO:LEVELS, such as 0.15 or 0.05:0.25:5.

        Raises:
            ValueError: it is neither; the rates are not between 0 and 1, or there are fewer than two levels.
        """
        parts = text.split(":")
        if len(parts) not in (1, 3):
            raise ValueError("expected RATE or FROM:TO:LEVELS")
        rates = [float(part) for part in parts[:2]]
        if not all(0 < rate < 1 for rate in rates):
            raise ValueError("a rate lies between 0 and 1")
        if len(parts) == 1:
            return cls(rates[0])
        if not parts[2].isdecimal() or int(parts[2]) < 2:
            raise ValueError("a climbing rate has 2 levels or more")
        return cls(rates[0], rates[1], int(parts[2]))

    @property
    def final(self) -> float:
        """The rate at the end."""
        return self.first if self.last is None else self.last

    def at(self, done: float) -> float:
        """Return the rate after a share of the training, from 0 to 1."""
        if self.levels == 1:
            return self.first
        level = min(int(done * self.levels), self.levels - 1)
        return self.first + (self.final - self.first) * level / (self.levels - 1)

    def __str__(self) -> str:
        return f"{self.first:g}" if self.levels == 1 else f"{self.first:g}:{self.final:g}:{self.levels}"
