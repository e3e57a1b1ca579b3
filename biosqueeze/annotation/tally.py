"""Counts of annotated records, and warnings of many chunks reported once with their counts added up."""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from biosqueeze.data.records.input_record import InputRecord
from biosqueeze.errors import SqueezeError
from biosqueeze.progress import CountedWarning, note, warn

if TYPE_CHECKING:
    from biosqueeze.annotation.annotator import RecordChunk


_SUSPICIOUS = 10  # so many records without an entity are worth a warning


@dataclass
class Tally:
    """Counts of records, bad records and warnings so far."""

    records: int = 0  # with those before
    before: int = 0  # that an interrupted run has annotated
    bad: int = 0
    first_error: str = ""
    entities: int | None = None  # None for a task that finds none
    is_complete: bool = False  # whether the input has been read to its end
    _digest: Any = field(default_factory=hashlib.sha256)
    _started: float = field(default_factory=time.monotonic)
    _seen: set[str] = field(default_factory=set)  # warnings that were printed
    _times: Counter[str] = field(default_factory=Counter)  # number of counted warnings of each kind
    _sums: Counter[str] = field(default_factory=Counter)  # of their counts

    def count(self, records: Sequence[InputRecord], *, bad: int) -> None:
        """Count records, of which some are bad, and hash their content."""
        self.records += len(records)
        self.bad += bad
        for record in records:
            self._digest.update(json.dumps([record.id, record.values], default=str).encode())

    def mark(self) -> dict[str, Any]:
        """Return the number of records and of bad ones so far, and the hash of their content."""
        return {"records": self.records, "bad": self.bad, "sha256": self._digest.hexdigest()}

    def add(self, chunk: "RecordChunk", warnings: Sequence[str | CountedWarning]) -> None:
        """Count the records of a chunk, and print its warnings of a new kind."""
        bad = len(chunk.records) - len(chunk.valid)
        self.count([each.record for each in chunk.records], bad=bad)
        self.first_error = self.first_error or chunk.first_error or ""
        if chunk.entities is not None:
            self.entities = (self.entities or 0) + chunk.entities
        for warning in warnings:
            kind = warning.what if isinstance(warning, CountedWarning) else warning
            if kind not in self._seen:
                warn(warning)
                self._seen.add(kind)
            if isinstance(warning, CountedWarning):
                self._times[kind] += 1
                self._sums[kind] += warning.count

    def sums(self) -> Iterator[CountedWarning]:
        """Yield the warnings that occurred several times, with their counts added up.

        They have no total: a record may have several items, such as pairs of entities, or none.
        """
        for kind, times in self._times.items():
            if times > 1:
                yield CountedWarning(self._sums[kind], kind)

    @property
    def speed(self) -> str:
        """Records per second, as text."""
        rate = (self.records - self.before) / max(time.monotonic() - self._started, 1e-9)
        return f"{rate:,.0f} records/s" if rate >= 10 else f"{rate:.2g} records/s"

    def conclude(self, source: str) -> None:
        """Print the sums of the warnings and the number of records.

        Raises:
            SqueezeError: there is no record, or every one is bad.
        """
        self.is_complete = True
        for warning in self.sums():
            note(f"{'in this run' if self.before else 'in all'}, {warning}")
        if not self.records:
            raise SqueezeError(f"{source} has no record; check that it was written in full")
        if self.bad == self.records:
            raise SqueezeError(f"{source}: every record is bad; the first: {self.first_error or 'see its predictions'}")
        new = self.records - self.before
        if self.entities == 0 and new >= _SUSPICIOUS:
            warn(f"no entity was found in any of {new:,} records; is this the checkpoint that was fine-tuned?")
        first = f" (the first: {self.first_error})" if self.first_error else ""
        bad = f", {self.bad:,} of them bad{first}" if self.bad else ""
        records = "1 record" if self.records == 1 else f"{self.records:,} records"
        former = f", {self.before:,} of them by the interrupted run" if self.before else ""
        note(f"{records}{former}{bad}, {self.speed}")
