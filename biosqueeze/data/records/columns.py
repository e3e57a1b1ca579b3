"""Find the columns of a table by their roles: from --column, or by the names that are common for a role."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from biosqueeze.data.records.record import DataRecord
from biosqueeze.data.records.splits import shortened
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.registry import closest

# What rows with too many or too few cells may lack.
ADVICE_ON_CSV = 'quote a field that holds a comma, "like, this"'
ADVICE_ON_TSV = "a tab or a line end inside a text must become a space"
SHOWN = 30
"""Columns or labels that a message names."""
_QUOTED = re.compile(r'"[^"]*(?:"|$)')


@dataclass(frozen=True)
class Columns:
    """The roles that a task kind reads, and the names that the column of each role may have."""

    known: Mapping[str, Sequence[str]]  # role -> names, the most common first
    requested: Mapping[str, str] = field(default_factory=dict)  # role -> column, from --column
    optional: frozenset[str] = frozenset()  # roles that need no column

    def __post_init__(self) -> None:
        """Check the requested roles.

        Raises:
            UsageError: `requested` has a role that `known` lacks.
        """
        for role in self.requested:
            if role not in self.known:
                raise UsageError(
                    f"--column {role}={self.requested[role]}: no column is read as {role!r}."
                    f"{closest(role, self.known)} Roles: {', '.join(self.known)}"
                )

    @property
    def header(self) -> tuple[str, ...]:
        """The names that mark a header, for `read_records`. Numbers are column positions, and may occur as values."""
        names = [*self.requested.values(), *(name for role in self.known.values() for name in role)]
        return tuple(dict.fromkeys(name for name in names if not name.isdecimal()))

    def of(self, records: Sequence[DataRecord]) -> dict[str, str]:
        """Return the column of each role; an optional role without a column is left out.

        Raises:
            SqueezeError: a required column is missing.
        """
        names = _column_names(records)
        matches = {role: _match(names, known) for role, known in self.known.items()}
        roles = [role for role in self.known if role not in self.optional or role in self.requested or matches[role]]
        return {role: find_column(records, role, self.known[role], self.requested) for role in roles}


def find_column(records: Sequence[DataRecord], role: str, known: Sequence[str], requested: Mapping[str, str]) -> str:
    """Return the column of a role, and check that every record has it.

    Args:
        records: of one split; the columns of another split may have other names.
        role: what the column is read as, such as text.
        known: names that such a column may have, the most common first; letter case is ignored.
        requested: role -> column, as `parse_column_options` returns it; takes precedence over `known`.

    Raises:
        SqueezeError: there is no such column, or a record lacks it.
    """
    names = _column_names(records)
    column = _match(names, [requested[role]] if role in requested else known)
    if column is None:
        problem = f"no column {requested[role]!r}" if role in requested else f"no column for {role!r}"
        tried = "" if role in requested else f" (looked for {', '.join(known)})"
        raise SqueezeError(
            f"{records[0].where if records else 'no record'}: {problem}{tried}; there are "
            f"{shortened(names, SHOWN) or 'none'}: name the right one with --column {role}=NAME"
        )
    incomplete = next((record for record in records if column not in record.values), None)
    if incomplete is not None:
        raise SqueezeError(
            f"{incomplete.where}: no field {column!r}, which other records have as their {role}; add it, "
            f"or name another with --column {role}=NAME"
        )
    return column


def parse_column_options(column: Sequence[str]) -> dict[str, str]:
    """Parse the values of --column into role -> column.

    Args:
        column: each ROLE=COLUMN.

    Raises:
        UsageError: a value has another form, or a role is given twice.
    """
    requested: dict[str, str] = {}
    for item in column:
        role, equals, name = (part.strip() for part in item.partition("="))
        if not (role and equals and name):
            raise UsageError(f"--column {item!r} is not ROLE=COLUMN; write for example --column text=abstract")
        if role in requested:
            raise UsageError(f"--column gives {role!r} twice, {requested[role]!r} and {name!r}; keep one")
        requested[role] = name
    return requested


def check_unique(records: Sequence[DataRecord], column: str) -> None:
    """Check that no two records have the same value in a column, such as an id.

    Raises:
        SqueezeError: a value occurs twice; the message has both places.
    """
    first_places: dict[str, str] = {}
    for record in records:
        value = str(record.values[column])
        if value in first_places:
            raise SqueezeError(
                f"{record.where}: the {column} {value!r} is already used at {first_places[value]}; remove one of the "
                "two records, or change its value"
            )
        first_places[value] = record.where


def check_line_ends(line: str, where: str) -> None:
    """Check that a line of a file whose cells are words, or names, has no carriage return within.

    Raises:
        SqueezeError: it has; the file ends its lines with carriage returns alone.
    """
    if "\r" in line:
        raise SqueezeError(
            f"{where}: a carriage return within the line, as in files whose lines end with nothing else; convert it "
            "first: tr '\\r' '\\n' < FILE > NEW"
        )


def delimiter_of(first_line: str) -> str:
    """Return what separates the fields of a .csv: tabs or semicolons where its first line has them and no comma.

    Spreadsheets write semicolons in countries with a decimal comma. A mark in quotes, or before a space, is text.
    """
    bare = _QUOTED.sub("", first_line)
    return next((mark for mark in ",\t;" if re.search(rf"{mark}(?! )", bare)), ",")


def check_names(columns: Sequence[str], where: str) -> None:
    """Check that no two columns of a table have the same name.

    Raises:
        SqueezeError: two do; `where` is the place of the header.
    """
    duplicate = first_duplicate(columns)
    if duplicate is not None:
        raise SqueezeError(f"{where}: two columns are called {duplicate!r}; rename one of them")


def first_duplicate(names: Sequence[str]) -> str | None:
    """Return the first name that occurs before, if any does."""
    return next((name for position, name in enumerate(names) if name in names[:position]), None)


def invalid_csv(where: str, error: csv.Error) -> SqueezeError:
    """Return the error for a place in a .csv that cannot be parsed."""
    return SqueezeError(
        f"{where}: not a row of a .csv ({error}); quote a field that holds a comma, a quote or a line end, and write a "
        'quote in it as ""; or save it as .tsv, where quotes are text'
    )


def _column_names(records: Sequence[DataRecord]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for record in records for name in record.values))


def _match(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the first of the names that is a column, as the column spells it."""
    folded = {column.casefold(): column for column in reversed(columns)}
    return next(
        (name if name in columns else folded[name.casefold()] for name in names if name.casefold() in folded), None
    )
