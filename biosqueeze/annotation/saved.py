"""What an interrupted run has left of FILE: predictions (FILE.partial), and of which records they are (a journal).

The journal, FILE.partial.journal, has a JSON object on each line: first what the predictions are made by, then, after
each chunk of records, how many there are so far, how many of them are bad, and a hash of what they contain. A run that
continues reads its records from the beginning, and takes over the predictions of those that are the same.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal

from biosqueeze.annotation.tally import Tally
from biosqueeze.data.records.input_record import InputRecord
from biosqueeze.errors import SqueezeError
from biosqueeze.progress import track

Mark = dict[str, Any]  # an entry of the journal: records, bad and sha256
_DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError)
_OVER = "start over with --force instead of --resume"


@dataclass(frozen=True)
class SavedPredictions:
    """The files beside FILE that hold unfinished predictions.

    Args:
        out: FILE; the predictions of a .gz are compressed.
        is_pubtator: whether a prediction is a PubTator document, and not a line.
    """

    out: Path
    is_pubtator: bool = False

    @property
    def path(self) -> Path:
        """The predictions so far."""
        return self.out.with_name(f"{self.out.name}.partial")

    @property
    def journal(self) -> Path:
        """Of which records they are."""
        return self.out.with_name(f"{self.out.name}.partial.journal")

    def continues(self, *, resume: bool | Literal["auto"], force: bool) -> bool:
        """Return whether there are predictions to continue.

        Args:
            resume: whether to continue; auto: if there are any.
            force: whether they may be replaced.

        Raises:
            SqueezeError: there are none to continue, or some that would be lost.
        """
        if self.path.is_dir():
            raise SqueezeError(f"{self.path} is a directory; remove it, or give another --out")
        exists = self.path.is_file() and not self._is_empty()
        if exists and not (resume or force):
            raise SqueezeError(
                f"{self.path} holds the predictions of an interrupted run; continue it with --resume, or discard them "
                "with --force"
            )
        if resume is True and not exists:
            raise SqueezeError(f"there is no {self.path} to continue; leave --resume out")
        return bool(resume) and exists

    def _is_empty(self) -> bool:
        """Return whether the journal says that there are no predictions yet."""
        return self.journal.is_file() and self.journal.read_bytes().count(b"\n") == 1

    def marks(self, request: Mapping[str, Any]) -> list[Mark]:
        """Return the entries of the journal on records.

        Raises:
            SqueezeError: the predictions were made by something else than the request, or the journal is damaged.
        """
        try:
            with self.journal.open("rb") as file:
                made_by, *marks = map(json.loads, _whole_lines(file))
            names = [name for name, value in json.loads(json.dumps(request)).items() if made_by.get(name) != value]
        except (OSError, ValueError, AttributeError) as error:
            raise SqueezeError(
                f"{self.journal} is missing or damaged, which says what made {self.path}; {_OVER}"
            ) from (error)
        if names:
            raise SqueezeError(
                f"{self.path} was made with another {', another '.join(names)}; give the same, or {_OVER}"
            )
        return marks

    def take_over(self, marks: list[Mark], records: Iterator[InputRecord], tally: Tally) -> Iterator[tuple[str, Mark]]:
        """Yield the whole chunks of predictions and their entries, take their records from the input, and count them.

        Raises:
            SqueezeError: these are other records.
        """
        with self.path.open("rb") as file, track("read the predictions so far") as tracker:
            lines = _whole_lines(gzip.GzipFile(fileobj=file) if self.out.suffix == ".gz" else file)
            predictions = _documents(lines) if self.is_pubtator else lines
            for mark in marks:
                wanted = mark["records"] - tally.records
                texts = list(islice(predictions, wanted))
                if len(texts) < wanted:
                    return
                tally.count(list(islice(records, wanted)), bad=mark["bad"] - tally.bad)
                if tally.mark() != mark:
                    raise SqueezeError(
                        f"{self.path} holds predictions of other records: among the first {mark['records']:,} of the "
                        f"input one has changed, or is missing; give the input as it was, or {_OVER}"
                    )
                tally.before = tally.records
                yield "".join(texts), mark
                tracker.advance(wanted)


def _whole_lines(stream: "BinaryIO | gzip.GzipFile") -> Iterator[str]:
    """Yield the lines up to one that was cut off or damaged."""
    try:
        for line in stream:
            if not line.endswith(b"\n"):
                return
            yield line.decode()
    except _DAMAGE:
        return


def _documents(lines: Iterator[str]) -> Iterator[str]:
    """Yield PubTator documents, each with the empty line that ends it."""
    document: list[str] = []
    for line in lines:
        document.append(line)
        if line == "\n":
            yield "".join(document)
            document = []
