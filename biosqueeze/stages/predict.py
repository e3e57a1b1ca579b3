"""Answer records with a fine-tuned checkpoint, in order and as they arrive."""

import json
import re
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.data.incoming import NAMES, STDIN, Incoming, Source, open_source
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.options import Argument, Data, InferenceOptions, Outcome, Plan
from biosqueeze.progress import held_warnings, note, track, warn
from biosqueeze.tasks.formulation import ReadingOptions

if TYPE_CHECKING:
    from biosqueeze.annotation.annotator import Annotator, Item, Posed
    from biosqueeze.tasks import Task

EXAMPLE = "biosqueeze predict ner-tiny abstracts.jsonl.gz --backend onnxruntime:int8 --out entities.jsonl"
AT_ONCE = 1024
_ERROR = "error"
_NUMBER = re.compile(r"\d[\d,]*")
_COUNTED = re.compile(r"(\d[\d,]*)( of \d[\d,]*)?")
_WRITTEN = {"jsonl": "a JSON object a line", "pubtator": "PubTator"}


@dataclass(frozen=True, kw_only=True)
class Options(InferenceOptions):
    """Answer records with a fine-tuned checkpoint, in their order, as they arrive.

    Without --out the predictions stream to standard output, one JSON object a line with the record's id and what the
    task says: entities, labels or answers with scores from 0 to 1, and characters of the text. So this is the one
    command whose standard output is data and not a path; with --out it is the path of the file.

    Dynamic int8 rounds by what else is in a batch: for answers that do not depend on it at all, give --batch-size 1.
    """

    checkpoint: Annotated[str, "Directory, Hub id, or - for the path on standard input.", Argument()]
    input: Annotated[
        str,
        "File of records, or - for those on standard input: JSON lines (text, tokens, or whatever the task reads), "
        "PubTator, or a text on each line; plain or .gz.",
        Argument(),
        Data(),
    ]
    task: Annotated[str | None, "Kind of task; that of the fine-tuning if left out."] = None
    out: Annotated[
        str | None, "File to write, whole or not at all; .gz is packed. Standard output if left out.", Data()
    ] = None
    force: Annotated[bool, "Replace an existing output."] = False
    format: Annotated[
        Literal["jsonl", "pubtator"], "What to write: a JSON object a line, or for entities also PubTator."
    ] = "jsonl"
    column: Annotated[
        tuple[str, ...], "ROLE=FIELD, repeatable: which field of a JSON record holds what, such as text=abstract."
    ] = ()
    keep_fields: Annotated[bool, 'Put the whole record beside its prediction, as "record".'] = False
    skip_bad: Annotated[bool, "Answer a bad record with its error, in its place, and go on."] = False


@dataclass(frozen=True)
class _Setting:
    """What is decided before anything heavy is loaded."""

    checkpoint: Checkpoint
    name: str  # of the task kind
    task: "Task"
    spec: str
    out: Path | None


@dataclass
class _Tally:
    """What came by."""

    records: int = 0
    first_fault: str = ""
    bad: int = 0
    warned: dict[str, str] = field(default_factory=dict)  # the first warning of those that differ in numbers alone
    chunks: Counter[str] = field(default_factory=Counter)  # in how many it came up
    sums: Counter[str] = field(default_factory=Counter)  # of the numbers that it begins with

    def count(self, posed: "Posed", warnings: Sequence[str]) -> None:
        """Add some records, and say a warning the first time that one of its kind is there."""
        self.records += len(posed.items)
        self.bad += len(posed.items) - len(posed.good)
        self.first_fault = self.first_fault or posed.first_fault or ""
        for message in warnings:
            kind = _NUMBER.sub("N", message)
            if kind not in self.warned:
                warn(message)
                self.warned[kind] = message
            counted = _COUNTED.match(message)
            self.chunks[kind] += 1
            self.sums[kind] += int(counted[1].replace(",", "")) if counted else 0

    def in_all(self) -> Iterator[str]:
        """What came up in several chunks, with the number that such a warning begins with added up."""
        for kind, message in self.warned.items():
            counted = _COUNTED.match(message)
            if counted and self.chunks[kind] > 1:
                of = f" of {self.records - self.bad:,}" if counted[2] else ""
                what = re.split(r" \(|[,;] ", message[counted.end() :])[0]
                yield f"in all, {self.sums[kind]:,}{of}{what}"


def plan(options: Options) -> Plan:
    """What would be answered, and where the answers would go; reads the config, neither weights nor records."""
    setting = _settle(options, weights=False)
    source = "standard input" if options.input == STDIN else options.input
    target = setting.out or "standard output"
    step = f"predict {setting.name} with {setting.checkpoint.name} on {setting.spec} for every record of {source}"
    return Plan(out=setting.out, steps=(step, f"write {_WRITTEN[options.format]} to {target}"))


def run(options: Options) -> Outcome:
    """Answer every record.

    Returns:
        the file and the counts with `out`; else the lines, made while they are read.

    Raises:
        SqueezeError: the checkpoint has no trained head of the task, a record is bad (without `skip_bad`), or all are.
        UsageError: the options contradict each other, or the task is not known.
    """
    setting = _settle(options)
    source = open_source(options.input)
    setting = replace(setting, task=_posing(setting.task, source, options))
    answerer = _load(options, setting)
    tally = _Tally()
    note(f"{source.name} is read as {NAMES[source.format]}; {setting.name} with {setting.spec}")
    lines = _lines(options, answerer, source, tally)
    if setting.out is None:
        return Outcome(setting.checkpoint.path, lines=lines)
    started = time.monotonic()
    _write(setting.out, lines, tally)
    facts = {"task": setting.name, "backend": setting.spec, "records": tally.records, "bad": tally.bad}
    return Outcome(setting.out, {**facts, "seconds": round(time.monotonic() - started, 3)})


def _settle(options: Options, *, weights: bool = True) -> _Setting:
    from biosqueeze.backends import default_spec, normal_spec
    from biosqueeze.finetuning.finetuned_checkpoint import task_of

    if options.skip_bad and options.format == "pubtator":
        raise UsageError("--skip-bad writes errors as JSON, and PubTator has no place for them; leave one of both out")
    if options.keep_fields and options.format == "pubtator":
        raise UsageError("--keep-fields writes records as JSON, and PubTator has no place for them; leave one out")
    out = _target(options)
    checkpoint = open_checkpoint(options.checkpoint, weights=weights)
    name, task = task_of(checkpoint, options.task, "to predict with", ReadingOptions(column=options.column))
    if options.format == "pubtator" and task.HEAD != "token-classification":
        raise UsageError(f"--format pubtator is for entities, and {name} finds none; leave it out")
    spec = normal_spec(options.backend) if options.backend else default_spec(checkpoint)
    return _Setting(checkpoint, name, task, spec, out)


def _target(options: Options) -> Path | None:
    """The file to write, if it is free."""
    if options.out in (None, STDIN):
        if options.force:
            raise UsageError("--force means nothing without --out; leave it out")
        return None
    out = Path(str(options.out)).expanduser()
    if out.is_dir():
        raise SqueezeError(f"{out} is a directory; name a file with --out, such as {out / 'predictions.jsonl'}")
    if out.exists() and not options.force:
        raise SqueezeError(f"{out} exists already; give --force to replace it, or another name with --out")
    return out


def _posing(task: "Task", source: Source, options: Options) -> "Task":
    """The task for records of this format: texts have no fields whose names could have been other ones."""
    if source.format == "jsonl":
        return task
    if options.column:
        raise UsageError(f"--column: {source.name} is {NAMES[source.format]}, which has no fields; leave it out")
    return replace(task, form=replace(task.form, column=()))  # type: ignore[type-var] # every Kind is a dataclass


def _load(options: Options, setting: _Setting) -> "Annotator":
    from biosqueeze.annotation.annotator import Annotator
    from biosqueeze.backends import open_predictor
    from biosqueeze.finetuning.finetuned_checkpoint import check_head, sequence_length
    from biosqueeze.models.custom_heads import decoding_parameters
    from biosqueeze.models.load import load_tokenizer
    from biosqueeze.tasks import bound

    checkpoint = setting.checkpoint
    check_head(checkpoint, setting.task.HEAD, setting.name, "to predict with")
    tokenizer = load_tokenizer(checkpoint)
    return Annotator(
        bound(setting.task, decoding_parameters(checkpoint)),
        checkpoint.labels,
        tokenizer,
        open_predictor(checkpoint, setting.spec, threads=options.threads),
        sequence_length(checkpoint, options.max_length, tokenizer.model_max_length),
        options.batch_size,
    )


def _lines(options: Options, answerer: "Annotator", source: Source, tally: _Tally) -> Generator[str, None, None]:
    """What goes out, a chunk of records at a time.

    Raises:
        SqueezeError: a record is bad, and that is not allowed; what stands before it has gone out.
    """
    started = time.monotonic()
    with track("predict") as tracker:
        for chunk in _chunks(source.records, options.batch_size):
            with held_warnings() as warnings:
                posed = answerer.pose(chunk, as_document=options.format == "pubtator")
                fault = None if options.skip_bad else posed.first_fault
                posed = posed if fault is None else posed.until_fault()
                answerer.answer(posed)
            tally.count(posed, warnings)
            yield "".join(_line(item, options) for item in posed.items)
            if fault is not None:
                raise SqueezeError(f"{fault} (or skip bad records with --skip-bad)")
            tracker.advance(len(chunk), speed=_speed(tally.records, started))
    _conclude(tally, source, _speed(tally.records, started))


def _chunks(records: Iterator[Incoming], first: int) -> Iterator[list[Incoming]]:
    """The first ones soon, and then enough at once to put texts of like length together.

    Raises:
        SqueezeError: the input is damaged; what was read before that is given first.
    """
    size = first
    chunk: list[Incoming] = []
    try:
        for record in records:
            chunk.append(record)
            if len(chunk) == size:
                yield chunk
                size, chunk = max(first, min(2 * size, AT_ONCE)), []
    except SqueezeError:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


def _speed(records: int, started: float) -> str:
    return f"{records / max(time.monotonic() - started, 1e-9):,.0f} records/s"


def _line(item: "Item", options: Options) -> str:
    if options.format == "pubtator":
        return item.pubtator()
    answer = {_ERROR: item.fault} if item.answer is None else item.answer
    kept = {"record": item.incoming.values} if options.keep_fields else {}
    return json.dumps({"id": item.incoming.id, **answer, **kept}, ensure_ascii=False) + "\n"


def _write(out: Path, lines: Generator[str, None, None], tally: _Tally) -> None:
    """A reader sees a whole file or none; what there was before an error stays in FILE.partial."""
    partial = out.with_name(f"{out.name}.partial")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with _opened(partial, packed=out.suffix == ".gz") as stream:
            for text in lines:
                stream.write(text.encode())
        partial.replace(out)
    except OSError as error:
        raise SqueezeError(
            f"{out} cannot be written ({error.strerror or error}); give another place with --out"
        ) from error
    except SqueezeError as error:
        raise type(error)(f"{error}; {partial} holds the answers to the first {tally.records:,}") from error


@contextmanager
def _opened(path: Path, *, packed: bool) -> Iterator[BinaryIO]:
    import gzip

    with path.open("wb") as plain:
        if packed:
            with gzip.GzipFile(filename="", mode="wb", fileobj=plain, mtime=0) as stream:  # the same bytes every time
                yield stream  # type: ignore[misc] # GzipFile writes as a BinaryIO does
        else:
            yield plain


def _conclude(tally: _Tally, source: Source, speed: str) -> None:
    for message in tally.in_all():
        note(message)
    if tally.bad == tally.records:
        raise SqueezeError(f"{source.name}: every record is bad; the first: {tally.first_fault}")
    bad = f", {tally.bad:,} of them bad (the first: {tally.first_fault})" if tally.bad else ""
    note(f"{tally.records:,} records{bad}, {speed}")
