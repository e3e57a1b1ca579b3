"""Markers of an option that describe its place on the command line: form, section, short flag. Rules are in `rules`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any


@dataclass(frozen=True)
class Argument:
    """A positional option. A recipe passes the output of the step before, unless the option `unless` is set.

    With `unless`, exactly one of the two options must be given.
    """

    unless: str | None = None


@dataclass(frozen=True)
class Data:
    """An option for which `-` is the data on standard input (or output), not the path of a checkpoint."""


@dataclass(frozen=True)
class OnDisk:
    """An option whose value may be a path: the Python functions accept a `Path`."""

    is_output: bool = False
    """Whether the stage writes there; else it reads what lies there."""
    may_be_name: bool = False
    """Whether a value may also be the name of a model on the Hub."""


@dataclass(frozen=True)
class Choices:
    """An option whose values are the plugin names of one folder of the package."""

    package: str


@dataclass(frozen=True)
class Suggests:
    """Values that the shell completes; others are valid too."""

    find: Callable[[], Iterable[str]]


@dataclass(frozen=True)
class Short:
    """The short form of a flag: `Short("o")` is -o."""

    letter: str


@dataclass(frozen=True)
class Hidden:
    """A field that is no option of the command line."""


@dataclass(frozen=True)
class Syntax:
    """The form of a text value, such as METRIC=FLOOR, shown in the help instead of TEXT.

    `parse`, if set, is called at construction of the options for every value; a ValueError becomes a UsageError that
    shows `example`.
    """

    metavar: str
    parse: Callable[[str], Any] | None = None
    example: str = ""
    is_list: bool = False
    """Whether the text is a list with commas; the Python functions accept a sequence too."""
    number_is_count: bool = False
    """Whether one number alone is a count, so that a list of one number ends with a comma."""


@dataclass(frozen=True)
class Common:
    """One of the options that most runs need: listed first in the help of a command with many options."""


class Group(Enum):
    """Section of the help that an option is listed in. The sections come in this order."""

    COMMON = "Common options"
    MAIN = "Options"
    MODELS = "Student and teachers"
    SHAPE = "Shape of a new model"
    BUDGET = "Budgets: a result, from which the shape follows"
    IMPORTANCE = "Choice by data, and repair"
    VOCABULARY = "Vocabulary"
    DATA = "Data"
    LABELLED = "Labelled examples (distillation on a task)"
    TASK = "Task"
    OBJECTIVE = "Objective and masking"
    LOSSES = "Losses"
    CACHE = "Teacher cache"
    OPTIMISATION = "Optimisation"
    DEV = "Scoring on dev"
    HELD_OUT = "Scoring on held-out text, and probes"
    SEARCH = "Search and repeated runs"
    MACHINE = "Machine and memory"
    OUTPUT = "Output"
    GENERAL = "General"


class Purpose(Enum):
    """Section of `biosqueeze --help` that a command is listed in. The sections come in this order."""

    SMALLER = "Make a checkpoint smaller"
    TRAIN = "Train on text or on a task"
    MEASURE = "Measure and inspect"
    DEPLOY = "Deploy"
    PIPELINE = "Pipelines and data"
