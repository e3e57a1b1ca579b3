"""FILE.partial: the predictions that an interrupted run has written, and what they were made by (FILE.partial.json)."""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from biosqueeze.data.records.input_record import InputRecord
from biosqueeze.errors import SqueezeError
from biosqueeze.files import read_json
from biosqueeze.progress import track

_DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile)


@dataclass(frozen=True)
class SavedPrediction:
    """The prediction of one record: its lines, and the id in them."""

    text: str
    id: Any


@dataclass(frozen=True)
class SavedPredictions:
    """What an interrupted run has left beside FILE.

    Args:
        out: FILE; the predictions of a .gz are compressed.
    """

    out: Path

    @property
    def path(self) -> Path:
        """The file of the predictions so far."""
        return self.out.with_name(f"{self.out.name}.partial")

    @property
    def request_file(self) -> Path:
        """The file that says what they were made by."""
        return self.out.with_name(f"{self.out.name}.partial.json")

    def continues(self, *, resume: bool | Literal["auto"], force: bool) -> bool:
        """Return whether there are predictions to continue.

        Args:
            resume: whether to continue; auto: if there are any.
            force: whether they may be replaced.

        Raises:
            SqueezeError: there are none to continue, or some that would be lost.
        """
        if self.path.exists() and not (resume or force):
            raise SqueezeError(
                f"{self.path} holds the predictions of an interrupted run; continue it with --resume, or start over "
                "with --force"
            )
        if resume is True and not self.path.exists():
            raise SqueezeError(f"there is no {self.path} to continue; leave --resume out")
        return bool(resume) and self.path.exists()

    def check_request(self, request: Mapping[str, Any]) -> None:
        """Check that they were made by the same model in the same way.

        Raises:
            SqueezeError: by another, or it is not known by which.
        """
        if not self.request_file.is_file():
            raise SqueezeError(f"{self.request_file} is missing, which says what made {self.path}; give --force")
        saved = read_json(self.request_file)
        names = [name for name, value in json.loads(json.dumps(request)).items() if saved.get(name) != value]
        if names:
            raise SqueezeError(
                f"{self.path} was made with other values of {', '.join(names)}; repeat the command as it was, or start "
                "over with --force instead of --resume"
            )

    def read(self, *, is_pubtator: bool) -> Iterator[SavedPrediction]:
        """Yield the whole predictions; what follows the first damaged or unfinished one is left out."""
        with self.path.open("rb") as file:
            lines = _whole_lines(file, compressed=self.out.suffix == ".gz")
            yield from _documents(lines) if is_pubtator else _json_lines(lines)


def matched(saved: Iterable[SavedPrediction], records: Iterator[InputRecord], where: Path) -> Iterator[str]:
    """Yield the lines of saved predictions, and take their records from the input.

    Raises:
        SqueezeError: a record has another id, or the input has fewer records.
    """
    with track("read the predictions so far") as tracker:
        for number, prediction in enumerate(saved, start=1):
            record = next(records, None)
            if record is None or prediction.id not in (record.id, str(record.id)):
                has = "the input has no such record" if record is None else f"{record.where} has the id {record.id!r}"
                raise SqueezeError(
                    f"{where}: prediction {number:,} has the id {prediction.id!r}, and {has}; give the input of the "
                    "interrupted run, or start over with --force instead of --resume"
                )
            yield prediction.text
            tracker.advance()


def _whole_lines(file: BinaryIO, *, compressed: bool) -> Iterator[str]:
    """Yield the lines up to one that was cut off, or is not UTF-8."""
    stream: Any = gzip.GzipFile(fileobj=file) if compressed else file
    try:
        for line in stream:
            if not line.endswith(b"\n"):
                return
            yield line.decode()
    except (*_DAMAGE, UnicodeDecodeError):
        return


def _json_lines(lines: Iterator[str]) -> Iterator[SavedPrediction]:
    for line in lines:
        try:
            values = json.loads(line)
        except ValueError:
            return
        if not isinstance(values, dict) or "id" not in values:
            return
        yield SavedPrediction(line, values["id"])


def _documents(lines: Iterator[str]) -> Iterator[SavedPrediction]:
    """Yield PubTator documents, each with the empty line that ends it."""
    document: list[str] = []
    for line in lines:
        document.append(line)
        if line == "\n":
            yield SavedPrediction("".join(document), document[0].partition("|")[0])
            document = []
