"""Checked access to a JSON object that was read from a file: each error names the file, the key and the type."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from biosqueeze.errors import SqueezeError

_Value = TypeVar("_Value")
# Larger integers overflow in other libraries, or as floats.
_LARGEST: Mapping[type, int] = {int: (1 << 63) - 1, float: 1 << 1000}
_LONGEST_NAME = 80
_TYPE_NAMES: Mapping[type, str] = {
    bool: "true or false",
    dict: "an object",
    float: "a number",
    int: "an integer",
    list: "a list",
    str: "a string",
    type(None): "null",
}


@dataclass(frozen=True)
class JsonObject:
    """A JSON object whose values are read by key and type.

    Args:
        values: as `json` parses them.
        source: the file, for error messages.
        advice: what the user can do about a damaged file, for error messages.
        place: where the object is within the file, such as "history[2]."; empty for the file's own object.
    """

    values: Mapping[str, Any]
    source: str
    advice: str
    place: str = ""

    def get(self, key: str, kind: type[_Value]) -> _Value:
        """Return a required value.

        Raises:
            SqueezeError: it is missing or of another type.
        """
        if key not in self.values:
            raise self.error(key, f"is missing, {_TYPE_NAMES[kind]} was expected")
        return self._checked(key, self.values[key], kind)

    def optional(self, key: str, kind: type[_Value]) -> _Value | None:
        """Return a value that may be missing or null; raise SqueezeError for another type."""
        value = self.values.get(key)
        return None if value is None else self._checked(key, value, kind)

    def items(self, key: str, kind: type[_Value]) -> tuple[_Value, ...]:
        """Return a list whose elements have one type; empty where it is missing or null."""
        values = self.optional(key, list) or []
        return tuple(self._checked(f"{key}[{n}]", value, kind) for n, value in enumerate(values))

    def mapping(self, key: str, kind: type[_Value]) -> dict[str, _Value]:
        """Return a required object whose values have one type."""
        return {name: self._checked(f"{key}.{name}", value, kind) for name, value in self.get(key, dict).items()}

    def optional_mapping(self, key: str, kind: type[_Value]) -> dict[str, _Value | None]:
        """Return a required object whose values have one type or are null."""
        values = self.get(key, dict).items()
        return {name: None if v is None else self._checked(f"{key}.{name}", v, kind) for name, v in values}

    def child(self, key: str) -> "JsonObject":
        """Return a required object for checked access."""
        return self._child(key, self.get(key, dict))

    def optional_child(self, key: str) -> "JsonObject | None":
        """Return an object for checked access, or None where it is missing or null."""
        values = self.optional(key, dict)
        return None if values is None else self._child(key, values)

    def children(self, key: str) -> "tuple[JsonObject, ...]":
        """Return a required list of objects for checked access."""
        self.get(key, list)
        return tuple(self._child(f"{key}[{n}]", values) for n, values in enumerate(self.items(key, dict)))

    def children_by_name(self, key: str) -> "dict[str, JsonObject]":
        """Return a required object of objects for checked access."""
        return {name: self._child(f"{key}.{name}", values) for name, values in self.mapping(key, dict).items()}

    def others(self, known: frozenset[str]) -> dict[str, Any]:
        """Return the entries whose keys are not among the known ones."""
        return {key: value for key, value in self.values.items() if key not in known}

    def error(self, key: str, problem: str) -> SqueezeError:
        """Build the error for the value of a key."""
        return SqueezeError(f"{self.source}: {_shown(self.place + key)} {problem}; {self.advice}")

    def _child(self, key: str, values: Mapping[str, Any]) -> "JsonObject":
        return JsonObject(values, self.source, self.advice, f"{self.place}{key}.")

    def _checked(self, key: str, value: Any, kind: type[_Value]) -> _Value:
        if not _is_a(value, kind):
            raise self.error(key, f"is {_TYPE_NAMES[type(value)]}, {_TYPE_NAMES[kind]} was expected")
        if kind in _LARGEST and isinstance(value, int) and abs(value) > _LARGEST[kind]:
            raise self.error(key, f"is an integer of {value.bit_length():,} bits, which is too large")
        checked: _Value = value
        return checked


def is_unicode(text: str) -> bool:
    """Return whether a string has no half of a surrogate pair, which JSON can hold and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(name: str) -> str:
    """Return a name from the file for a message of one line."""
    cut = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."
    return cut if cut.isprintable() else repr(cut)


def _is_a(value: Any, kind: type) -> bool:
    """Return whether a parsed value has a JSON type: an integer is a number too, a boolean is neither."""
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
