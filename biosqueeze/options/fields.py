"""Read the fields of an `Options` class from its annotations."""

import dataclasses
import functools
import inspect
import types
import typing
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from biosqueeze.options.markers import Argument, OnDisk, Syntax

_Marker = TypeVar("_Marker")


@dataclass(frozen=True)
class OptionField:
    """One field of an `Options` class, read from its annotation."""

    name: str
    type: Any
    help: str
    default: Any
    required: bool
    optional: bool
    repeated: bool
    literals: tuple[str, ...]
    markers: tuple[object, ...]
    words: tuple[str, ...] = ()  # of a switch that takes one of them, as in --resume auto

    def marker(self, kind: type[_Marker]) -> _Marker | None:
        """Return the field's first marker of that class, or None."""
        return next((m for m in self.markers if isinstance(m, kind)), None)

    @property
    def flag(self) -> str:
        """How messages name the option: --layer-map, or CHECKPOINT for a positional one."""
        return self.name.upper() if self.marker(Argument) else flag_of(self.name)

    @property
    def is_input(self) -> bool:
        """Whether a value may be the path of something that the stage reads: a checkpoint or data."""
        on_disk = self.marker(OnDisk)
        return on_disk is not None and not on_disk.is_output

    @property
    def metavar(self) -> str:
        """Placeholder of the value in the help: N, X, TEXT, PATH or the marked syntax; empty for a plain switch."""
        if self.words:
            return f"[{'|'.join(self.words)}]"
        syntax = self.marker(Syntax)
        if syntax:
            return syntax.metavar
        text = "PATH" if self.marker(OnDisk) else "TEXT"
        return {bool: "", int: "N", float: "X"}.get(self.type, text)


def flag_of(name: str) -> str:
    """Return the flag of an option by the name of its field: --layer-map for layer_map."""
    return f"--{name.replace('_', '-')}"


def option_fields(options: type) -> tuple[OptionField, ...]:
    """Return the fields of an `Options` class: first those that the class declares itself, then the inherited ones.

    A field that overrides an inherited one keeps its markers, except those of a class that it declares itself.
    """
    return _read_fields(options)


@functools.cache
def _read_fields(options: Any) -> tuple[OptionField, ...]:
    hints = typing.get_type_hints(options, include_extras=True)
    own = list(inspect.get_annotations(options))
    ordered = sorted(dataclasses.fields(options), key=lambda f: own.index(f.name) if f.name in own else len(own))
    return tuple(_read(item, hints[item.name], _inherited(options, item.name)) for item in ordered)


def _inherited(options: type, name: str) -> list[object]:
    """Markers of a field in all base classes, the nearest first."""
    hints: list[Any] = [inspect.get_annotations(base).get(name) for base in options.__mro__]
    return [marker for hint in hints if typing.get_origin(hint) is Annotated for marker in hint.__metadata__[1:]]


def _read(item: "dataclasses.Field[Any]", hint: Any, inherited: list[object]) -> OptionField:
    base, text, *own = typing.get_args(hint)
    replaced = tuple({type(marker) for marker in own})
    inner, optional, words = _split_union(base)
    repeated = typing.get_origin(inner) is tuple
    if repeated:
        inner = typing.get_args(inner)[0]
    literals = typing.get_args(inner) if typing.get_origin(inner) is Literal else ()
    required = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
    return OptionField(
        name=item.name,
        type=str if literals else inner,
        help=text,
        default=item.default if item.default is not dataclasses.MISSING else None,
        required=required,
        optional=optional,
        repeated=repeated,
        literals=literals,
        markers=(*own, *(marker for marker in inherited if not isinstance(marker, replaced))),
        words=words,
    )


def _split_union(base: Any) -> tuple[Any, bool, tuple[str, ...]]:
    """Return the type, whether it may be None, and the words of `bool | Literal["auto"]`."""
    if typing.get_origin(base) not in (typing.Union, types.UnionType):
        return base, False, ()
    first, *rest = (arg for arg in typing.get_args(base) if arg is not type(None))
    words = tuple(word for arg in rest for word in typing.get_args(arg))
    return first, type(None) in typing.get_args(base), words
