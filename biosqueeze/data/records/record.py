"""One record of a data set, with its place in the source."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DataRecord:
    """Named values, and their place in the source for error messages."""

    where: str  # train.tsv:12
    values: Mapping[str, Any]
