"""Annotate a stream of records chunk by chunk, in order and as they arrive."""

import time
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from biosqueeze.annotation.output import RecordFormatter
from biosqueeze.annotation.tally import Tally
from biosqueeze.data.records.incoming import InputStream
from biosqueeze.data.records.input_record import InputRecord
from biosqueeze.errors import SqueezeError
from biosqueeze.progress import CountedWarning, collect_warnings, track, warn

if TYPE_CHECKING:
    from biosqueeze.annotation.annotator import AnnotatedRecord, Annotator

LARGEST_CHUNK = 1024
MOST_CHARACTERS = 1_000_000  # of text in a chunk, beside those of its last record: memory grows with them
_MOST_IDS = 1_000_000  # of documents that are kept in memory; ids of sentences repeat early
_SLOW = 0.5  # seconds in which a chunk arrives


def annotate_stream(
    annotator: "Annotator", source: InputStream, formatter: RecordFormatter, tally: Tally, *, skip_bad: bool
) -> Generator[str, None, None]:
    """Yield the output lines of one chunk of records at a time.

    Args:
        annotator: the loaded model.
        source: the records.
        formatter: how they are written.
        tally: counts the records and their warnings.
        skip_bad: write the error of a bad record in its place, and continue.

    Raises:
        SqueezeError: a record is bad and `skip_bad` is off, after the lines of the records before it; or all are bad.
    """
    as_document = formatter.format == "pubtator"
    seen: dict[str, int] = {}
    has_windows = False
    with track("predict", done=tally.before) as tracker:
        for records in chunk_records(source.records, annotator.model.batch_size):
            about = source.position and source.position.expected(tally.records + len(records))
            if about:
                tracker.set_total(about)
            with collect_warnings() as warnings:
                chunk = annotator.prepare(records, as_document=as_document)
                error = None if skip_bad else chunk.first_error
                chunk = chunk if error is None else chunk.before_first_error()
                annotator.annotate(chunk)
                if as_document:
                    _warn_of_ids(chunk.valid, seen)
            has_windows |= len(chunk.windows) > 0
            tally.add(chunk, warnings)
            if chunk.records:
                yield "".join(map(formatter.lines, chunk.records))
            if error is not None:
                way_out = "with --format jsonl, --skip-bad skips bad records" if as_document else "or give --skip-bad"
                raise SqueezeError(f"{error} ({way_out})")
            tracker.advance(len(records), speed=tally.speed)
    tally.conclude(source.name)
    kinds = getattr(annotator.model.task, "pairs", ())
    if kinds and not has_windows and tally.records > tally.before:
        listed = ", ".join(f"{kind.head} and {kind.tail}" for kind in kinds)
        warn(f"no record has two entities of types that may be related: the model was trained on {listed}")


def _warn_of_ids(records: Sequence["AnnotatedRecord"], seen: dict[str, int]) -> None:
    """Warn of documents with the id of an earlier one and another text, which no reader of PubTator can keep apart.

    Args:
        records: valid ones.
        seen: hash of the text by id, of earlier documents; those of the records are added, up to `_MOST_IDS`.
    """
    repeated = 0
    for record in records:
        name, content = str(record.record.id), hash(record.example.text)
        repeated += seen.get(name, content) != content
        if len(seen) < _MOST_IDS:
            seen.setdefault(name, content)
    if repeated:
        problem = "documents have the id of an earlier one, so they cannot be read as training data"
        warn(CountedWarning(repeated, problem, detail="; give each its own id, or use --format jsonl"))


def chunk_records(records: Iterator[InputRecord], first: int) -> Iterator[list[InputRecord]]:
    """Yield chunks of records that double in size, from `first` to `LARGEST_CHUNK`; from 1 they do not grow.

    The first predictions appear early, and large chunks put more texts of similar length into each batch. Whoever
    writes a record may wait for its prediction, so single records are not held back for others, and larger chunks do
    not grow while records arrive slowly. A chunk of long records ends at `MOST_CHARACTERS`.

    Raises:
        SqueezeError: the input is damaged, after the records before the damage.
    """
    size, characters, started = first, 0, time.monotonic()
    chunk: list[InputRecord] = []
    try:
        for record in records:
            chunk.append(record)
            characters += record.characters
            if len(chunk) == size or characters >= MOST_CHARACTERS:
                may_grow = first > 1 and time.monotonic() - started <= _SLOW
                yield chunk
                size = max(first, min(2 * size, LARGEST_CHUNK)) if may_grow else first
                chunk, characters, started = [], 0, time.monotonic()
    except SqueezeError:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk
