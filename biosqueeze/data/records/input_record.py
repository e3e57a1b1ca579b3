"""One record of a user's input."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any


@dataclass(frozen=True)
class InputRecord:
    """One record, or the error of an invalid one."""

    where: str  # file and line
    values: Mapping[str, Any]  # fields by name; {"id", "text"} of a document or a line; of an invalid record its id
    error: str | None = None
    id_field: str = "id"
    number: int | None = None  # of the line in a table: the id, where no column has one

    @property
    def id(self) -> Any:
        """The id of the record, or the number of its line where its format has no ids; None if it has none."""
        return self.values.get(self.id_field, self.number)

    @property
    def characters(self) -> int:
        """The number of characters in its texts and lists of words."""
        words = (value if isinstance(value, list) else [value] for value in self.values.values())
        return sum(len(word) for word in chain.from_iterable(words) if isinstance(word, str))
