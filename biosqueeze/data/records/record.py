"""One record of a data set, with its place in the source."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DataRecord:
    """Named values, and their place in the source for error messages."""

    where: str  # train.tsv:12
    values: Mapping[str, Any]

    @property
    def has_names(self) -> bool:
        """Whether the values have names; the columns of a table without a header are "1", "2", ..."""
        return list(self.values) != [str(position) for position in range(1, len(self.values) + 1)]
