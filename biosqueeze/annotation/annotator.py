"""Annotate a chunk of records: build examples, encode them, predict in batches of similar length, keep the order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from biosqueeze.data.annotations.annotated import Annotation, Document
from biosqueeze.data.annotations.pubtator import pubtator_lines
from biosqueeze.data.records.input_record import InputRecord
from biosqueeze.errors import SqueezeError
from biosqueeze.finetuning.task_model import TaskModel
from biosqueeze.progress import collect_warnings
from biosqueeze.tasks import Window

_RECORD = "the record"  # how the errors of the tasks name a record


@dataclass
class AnnotatedRecord:
    """A record with its example and, once predicted, its annotation; or with the error that it was rejected for."""

    record: InputRecord
    example: Any = None
    annotation: Mapping[str, Any] | None = None
    error: str | None = None

    def pubtator(self) -> str:
        """Return the text and the predicted entities as PubTator lines."""
        entities = (self.annotation or {}).get("entities", ())
        annotations = tuple(
            Annotation(entity["start"], entity["end"], entity["type"], entity["text"]) for entity in entities
        )
        document = Document(str(self.record.id), self.example.text, annotations, self.record.where)
        return "".join(f"{line}\n" for line in pubtator_lines(document))

    def reject(self, error: SqueezeError) -> None:
        """Store an error, with the file and line of the record in front."""
        message, where = str(error), self.record.where
        self.example = None
        self.error = message if message.startswith(where) else f"{where}: {message.removeprefix(_RECORD).lstrip(': ')}"


@dataclass(frozen=True)
class RecordChunk:
    """Consecutive records, and the encoded windows of the valid ones."""

    records: list[AnnotatedRecord]
    windows: Sequence[Window]

    @property
    def valid(self) -> list[AnnotatedRecord]:
        """The records without an error."""
        return [record for record in self.records if record.error is None]

    @property
    def entities(self) -> int | None:
        """The number of predicted entities; None for a task that finds none."""
        found = [
            each.annotation["entities"] for each in self.records if each.annotation and "entities" in each.annotation
        ]
        return sum(map(len, found)) if found else None

    @property
    def first_error(self) -> str | None:
        """The error of the first bad record, if there is one."""
        return next((record.error for record in self.records if record.error is not None), None)

    def before_first_error(self) -> "RecordChunk":
        """Return the chunk up to, and without, its first bad record."""
        records = list(takewhile(lambda record: record.error is None, self.records))
        return RecordChunk(records, [window for window in self.windows if window.example < len(records)])


@dataclass(frozen=True)
class Annotator:
    """Prepare and annotate chunks of records with one loaded model."""

    model: TaskModel

    def prepare(self, records: Sequence[InputRecord], *, as_document: bool = False) -> RecordChunk:
        """Build and encode the examples; a record for which that fails gets an error.

        Args:
            records: consecutive records.
            as_document: reject records that cannot be written as PubTator.
        """
        built = [self._build(record, as_document) for record in records]
        valid = [each for each in built if each.error is None]
        try:
            windows = self._encode(valid)
        except SqueezeError:
            self._reject_unencodable(valid)
            windows = self._encode([each for each in valid if each.error is None])
        return RecordChunk(built, windows)

    def annotate(self, chunk: RecordChunk) -> None:
        """Predict, and store the annotation in every valid record."""
        valid = chunk.valid
        if not valid:
            return
        annotations = self.model.describe(chunk.windows, [each.example for each in valid])
        for record, annotation in zip(valid, annotations, strict=True):
            record.annotation = annotation

    def _build(self, record: InputRecord, as_document: bool) -> AnnotatedRecord:
        built = AnnotatedRecord(record, error=record.error)
        if built.error is None:
            try:
                built.example = self.model.task.example_from_record(record.values)
                if as_document:
                    _check_document(record, built.example.text)
            except SqueezeError as error:
                built.reject(error)
        return built

    def _encode(self, records: Sequence[AnnotatedRecord]) -> Sequence[Window]:
        return self.model.encode([each.example for each in records])

    def _reject_unencodable(self, records: Sequence[AnnotatedRecord]) -> None:
        """Encode one record at a time to find those that cannot be; the chunk is encoded, and warned of, afterwards."""
        with collect_warnings():
            for record in records:
                try:
                    self._encode([record])
                except SqueezeError as error:
                    record.reject(error)


def _check_document(record: InputRecord, text: str) -> None:
    needs = {
        'an "id"': record.id is not None,
        'a "text" that is not empty': bool(text),
        'a "text" without NUL characters': "\0" not in text,
    }
    lacking = [need for need, is_met in needs.items() if not is_met]
    if lacking:
        raise SqueezeError(f"PubTator needs {' and '.join(lacking)}; correct the record, or leave --format out")
    list(pubtator_lines(Document(str(record.id), text, (), record.where)))
