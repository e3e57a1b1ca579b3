"""The words in which a stage says its options, once; everything else derives from them.

A stage's `Options` is a frozen dataclass whose fields are `Annotated[type, "help", markers...]`. The Click parameter,
the recipe key, the environment variable and the manifest entry all come from that field.
"""

import dataclasses
import inspect
import types
import typing
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from biosqueeze.errors import UsageError

_Marker = TypeVar("_Marker")

# NumPy takes twice as many, and several seeds or processes count on from it.
HIGHEST_SEED = 2**31 - 1


@dataclass(frozen=True)
class Argument:
    """Marks a positional field. A recipe feeds it the step before, unless the field named `unless` is set."""

    unless: str | None = None


@dataclass(frozen=True)
class Data:
    """Marks a field whose `-` is the data on standard input (or output), and not the path of a checkpoint there."""


@dataclass(frozen=True)
class Choices:
    """Marks a field whose values are the plugin names of one folder."""

    package: str


@dataclass(frozen=True)
class Short:
    """Gives a field's flag a short form: `Short("o")` is -o."""

    letter: str


@dataclass(frozen=True)
class Hidden:
    """Marks a field that is no option of the command line."""


@dataclass(frozen=True, kw_only=True)
class StageOptions:
    """Options of a stage that reads a checkpoint and adds at most a result to it."""

    sources: Annotated[Mapping[str, str], "Where each value came from.", Hidden()] = field(
        default_factory=dict, compare=False
    )


@dataclass(frozen=True, kw_only=True)
class WritingOptions(StageOptions):
    """Options of a stage that writes a checkpoint."""

    out: Annotated[
        str | None, "Directory to write; derived from the input and the stage when left out.", Short("o")
    ] = None
    force: Annotated[bool, "Replace an existing output."] = False
    seed: Annotated[int, "Seed of everything random in this stage."] = 0

    def __post_init__(self) -> None:
        """Refuse what no generator is seeded with.

        Raises:
            UsageError: the seed is out of range.
        """
        if not 0 <= self.seed <= HIGHEST_SEED:
            raise UsageError(f"--seed must be between 0 and {HIGHEST_SEED}, not {self.seed}")


@dataclass(frozen=True, kw_only=True)
class InferenceOptions(StageOptions):
    """Options of a stage that asks a fine-tuned checkpoint."""

    backend: Annotated[
        str | None,
        "RUNTIME[:PRECISION], such as torch:bf16 or onnxruntime:int8; if left out, what was last made for.",
    ] = None
    batch_size: Annotated[int, "Sequences in a batch."] = 32
    max_length: Annotated[
        int | None,
        "Tokens in a sequence, what is longer becoming windows (ner, pico, qa) or being cut; as in the fine-tuning if "
        "left out.",
    ] = None
    threads: Annotated[int | None, "Threads of the backend; its own choice if left out."] = None

    def __post_init__(self) -> None:
        """Refuse what nothing can be asked with.

        Raises:
            UsageError: a number is too small.
        """
        asked = {
            "--batch-size": (self.batch_size, 1),
            "--threads": (self.threads, 1),
            "--max-length": (self.max_length, 3),
        }
        for flag, (number, least) in asked.items():
            if number is not None and number < least:
                raise UsageError(f"{flag} {number} is too small; give {least} or more")


@dataclass(frozen=True)
class Plan:
    """What a stage would do: the answer to --dry-run."""

    out: Path | None
    steps: tuple[str, ...]
    parameters_before: int | None = None
    parameters_after: int | None = None


@dataclass(frozen=True)
class Outcome:
    """What a stage did: the path that goes to standard output, and the facts that go with --json.

    A stage whose answer is data gives `lines` instead: whole lines that go to standard output while they are made.
    """

    path: Path
    facts: dict[str, Any] = field(default_factory=dict)
    lines: Generator[str, None, None] | None = None


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

    def marker(self, kind: type[_Marker]) -> _Marker | None:
        """The field's marker of that kind, if it has one."""
        return next((m for m in self.markers if isinstance(m, kind)), None)


def option_fields(options: type) -> Iterator[OptionField]:
    """The fields of an `Options` class, the stage's own first and the inherited ones after."""
    hints = typing.get_type_hints(options, include_extras=True)
    own = list(inspect.get_annotations(options))
    ordered = sorted(dataclasses.fields(options), key=lambda f: own.index(f.name) if f.name in own else len(own))
    for item in ordered:
        yield _read(item, hints[item.name])


def _read(item: "dataclasses.Field[Any]", hint: Any) -> OptionField:
    base, text, *markers = typing.get_args(hint)
    inner, optional = _strip_none(base)
    repeated = typing.get_origin(inner) is tuple
    if repeated:
        inner = typing.get_args(inner)[0]
    literals = typing.get_args(inner) if typing.get_origin(inner) is Literal else ()
    required = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
    default = item.default if item.default is not dataclasses.MISSING else None
    return OptionField(
        name=item.name,
        type=str if literals else inner,
        help=text,
        default=default,
        required=required,
        optional=optional,
        repeated=repeated,
        literals=literals,
        markers=tuple(markers),
    )


def _strip_none(base: Any) -> tuple[Any, bool]:
    if typing.get_origin(base) in (typing.Union, types.UnionType):
        rest = [arg for arg in typing.get_args(base) if arg is not type(None)]
        return rest[0], True
    return base, False


def resolved(options: StageOptions) -> dict[str, Any]:
    """The options as plain values, for the manifest: no hidden field, tuples as lists."""
    values = {f.name: getattr(options, f.name) for f in option_fields(type(options)) if f.marker(Hidden) is None}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}
