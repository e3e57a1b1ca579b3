"""One record of a data set, with the place where it stands."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DataRecord:
    """Named values, and where they stand, so that an error can say so."""

    where: str  # train.tsv:12
    values: Mapping[str, Any]
