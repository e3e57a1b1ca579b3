"""Which column of a table plays which role: as the user says, or by the names that a role usually has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from biosqueeze.data.record import DataRecord
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.registry import closest


@dataclass(frozen=True)
class Columns:
    """The roles that a task kind reads, and the names that each role's column may have."""

    known: Mapping[str, Sequence[str]]  # role -> names, the likeliest first
    asked: Mapping[str, str] = field(default_factory=dict)  # role -> column, as the user says
    optional: frozenset[str] = frozenset()  # roles that need no column

    def __post_init__(self) -> None:
        """Refuse a role that nothing reads.

        Raises:
            UsageError: `asked` has a role that `known` lacks.
        """
        for role in self.asked:
            if role not in self.known:
                raise UsageError(
                    f"--column {role}={self.asked[role]}: nothing here reads a column as {role!r}."
                    f"{closest(role, self.known)} Roles: {', '.join(self.known)}"
                )

    @property
    def header(self) -> tuple[str, ...]:
        """What `read_records` takes: every name that tells a header. A number is a place, and may well be a value."""
        names = [*self.asked.values(), *(name for role in self.known.values() for name in role)]
        return tuple(dict.fromkeys(name for name in names if not name.isdecimal()))

    def of(self, records: Sequence[DataRecord]) -> dict[str, str]:
        """The column of each role; a role without one is left out if it is optional.

        Raises:
            SqueezeError: a needed column is not there.
        """
        there = _columns(records)
        present = {role: _match(there, names) for role, names in self.known.items()}
        wanted = [role for role in self.known if role not in self.optional or role in self.asked or present[role]]
        return {role: pick(records, role, self.known[role], self.asked) for role in wanted}


def pick(records: Sequence[DataRecord], role: str, known: Sequence[str], asked: Mapping[str, str]) -> str:
    """The column that plays a role, in every one of the records.

    Args:
        records: of one split; columns of another split may have other names.
        role: what the column is read as, such as text.
        known: names that such a column may have, the likeliest first; capitals do not matter.
        asked: role -> column, as `parse_column_options` gives it; goes before `known`.

    Raises:
        SqueezeError: there is no such column, or some record lacks it.
    """
    there = _columns(records)
    column = _match(there, [asked[role]] if role in asked else known)
    if column is None:
        wanted = f"no column {asked[role]!r}" if role in asked else f"no column for {role!r}"
        looked = "" if role in asked else f" (looked for {', '.join(known)})"
        raise SqueezeError(
            f"{records[0].where if records else 'no record'}: {wanted}{looked}; there are "
            f"{', '.join(there) or 'none'}: name the right one with --column {role}=NAME"
        )
    lacking = next((record for record in records if column not in record.values), None)
    if lacking is not None:
        raise SqueezeError(
            f"{lacking.where}: no field {column!r}, which other records have as their {role}; add it, "
            f"or name another with --column {role}=NAME"
        )
    return column


def parse_column_options(column: Sequence[str]) -> dict[str, str]:
    """Parse what --column was given.

    Args:
        column: each ROLE=COLUMN.

    Raises:
        UsageError: one is not of that form, or a role is given twice.
    """
    asked: dict[str, str] = {}
    for item in column:
        role, equals, name = (part.strip() for part in item.partition("="))
        if not (role and equals and name):
            raise UsageError(f"--column {item!r} is not ROLE=COLUMN; write for example --column text=abstract")
        if role in asked:
            raise UsageError(f"--column gives {role!r} twice, {asked[role]!r} and {name!r}; keep one")
        asked[role] = name
    return asked


def check_unique(records: Sequence[DataRecord], column: str) -> None:
    """Refuse two records with the same value in a column, such as an id.

    Raises:
        SqueezeError: a value comes twice; the message says where both stand.
    """
    seen: dict[str, str] = {}
    for record in records:
        value = str(record.values[column])
        if value in seen:
            raise SqueezeError(
                f"{record.where}: the {column} {value!r} stands already at {seen[value]}; remove one of the two, "
                "or give it another"
            )
        seen[value] = record.where


def _columns(records: Sequence[DataRecord]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for record in records for name in record.values))


def _match(there: Sequence[str], names: Sequence[str]) -> str | None:
    """The first of the names that is there, as it is written there."""
    folded = {column.casefold(): column for column in reversed(there)}
    return next(
        (name if name in there else folded[name.casefold()] for name in names if name.casefold() in folded), None
    )
