"""Annotate records with a fine-tuned checkpoint, in order and as they arrive."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from biosqueeze.annotation.output import RecordFormatter, write_output
from biosqueeze.annotation.stream import annotate_stream
from biosqueeze.annotation.tally import Tally
from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.data.incoming import NAMES, STDIN, InputStream, open_input
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.options import Argument, Data, InferenceOptions, Outcome, Plan
from biosqueeze.progress import note
from biosqueeze.tasks.formulation import ReadingOptions

if TYPE_CHECKING:
    from biosqueeze.annotation.annotator import Annotator
    from biosqueeze.tasks import Task

EXAMPLE = "biosqueeze predict ner-tiny abstracts.jsonl.gz --backend onnxruntime:int8 --out entities.jsonl"
_FORMAT_NAMES = {"jsonl": "a JSON object a line", "pubtator": "PubTator"}


@dataclass(frozen=True, kw_only=True)
class Options(InferenceOptions):
    """Annotate records with a fine-tuned checkpoint, in order and as they arrive.

    Without --out the predictions stream to standard output: one JSON object a line, with the record's id and the
    task's entities, labels or answers, with scores from 0 to 1 and character offsets. This is the only command whose
    standard output is data and not a path; with --out it is the path of the file.

    With dynamic int8 a prediction depends a little on the other texts in its batch; --batch-size 1 avoids that.
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
class _PredictionRequest:
    """The options resolved against the checkpoint."""

    checkpoint: Checkpoint
    kind: str
    """Of the task."""
    task: "Task"
    backend: str
    out: Path | None


def plan(options: Options) -> Plan:
    """Return what would be predicted, and where it would be written; read the config, neither weights nor records."""
    request = _resolve(options, weights=False)
    source = "standard input" if options.input == STDIN else options.input
    target = request.out or "standard output"
    step = f"predict {request.kind} with {request.checkpoint.name} on {request.backend} for every record of {source}"
    return Plan(out=request.out, steps=(step, f"write {_FORMAT_NAMES[options.format]} to {target}"))


def run(options: Options) -> Outcome:
    """Annotate every record.

    Returns:
        With --out the file and the counts; else a generator of lines, which annotates while it is read.

    Raises:
        SqueezeError: the checkpoint has no trained head of the task; a record is bad (without --skip-bad), or all are.
        UsageError: the options contradict each other, or the task is unknown.
    """
    request = _resolve(options)
    source = open_input(options.input)
    request = replace(request, task=_task_of_format(request.task, source, options.column))
    annotator = _load(options, request)
    note(f"{source.name} is read as {NAMES[source.format]}; {request.kind} with {request.backend}")
    tally = Tally()
    formatter = RecordFormatter(options.format, options.keep_fields)
    lines = annotate_stream(annotator, source, formatter, tally, skip_bad=options.skip_bad)
    if request.out is None:
        return Outcome(request.checkpoint.path, lines=lines)
    started = time.monotonic()
    write_output(request.out, lines, lambda: tally.records)
    facts = {"task": request.kind, "backend": request.backend, "records": tally.records, "bad": tally.bad}
    return Outcome(request.out, {**facts, "seconds": round(time.monotonic() - started, 3)})


def _resolve(options: Options, *, weights: bool = True) -> _PredictionRequest:
    from biosqueeze.backends import default_spec, normal_spec
    from biosqueeze.finetuning.finetuned_checkpoint import task_of

    if options.skip_bad and options.format == "pubtator":
        raise UsageError("--skip-bad writes errors as JSON, and PubTator has no place for them; leave one of both out")
    if options.keep_fields and options.format == "pubtator":
        raise UsageError("--keep-fields writes records as JSON, and PubTator has no place for them; leave one out")
    out = _output_file(options)
    checkpoint = open_checkpoint(options.checkpoint, weights=weights)
    kind, task = task_of(checkpoint, options.task, "to predict with", ReadingOptions(column=options.column))
    if options.format == "pubtator" and task.HEAD != "token-classification":
        raise UsageError(f"--format pubtator needs entities, and {kind} finds none; leave it out")
    backend = normal_spec(options.backend) if options.backend else default_spec(checkpoint)
    return _PredictionRequest(checkpoint, kind, task, backend, out)


def _output_file(options: Options) -> Path | None:
    """Return the file to write; None for standard output.

    Raises:
        SqueezeError: it exists, or is a directory.
    """
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


def _task_of_format(task: "Task", source: InputStream, column: tuple[str, ...]) -> "Task":
    """Return the task for records of the input's format: only JSON records have fields for `--column` to name."""
    if source.format == "jsonl":
        return task
    if column:
        raise UsageError(f"--column: {source.name} is {NAMES[source.format]}, which has no fields; leave it out")
    return replace(task, form=replace(task.form, column=()))  # type: ignore[type-var] # every Kind is a dataclass


def _load(options: Options, request: _PredictionRequest) -> "Annotator":
    from biosqueeze.annotation.annotator import Annotator
    from biosqueeze.finetuning.finetuned_checkpoint import check_head
    from biosqueeze.finetuning.task_model import InferenceSettings, load_task_model

    check_head(request.checkpoint, request.task.HEAD, request.kind, "to predict with")
    settings = InferenceSettings(
        backend=request.backend,
        batch_size=options.batch_size,
        max_length=options.max_length,
        threads=options.threads,
    )
    return Annotator(load_task_model(request.checkpoint, request.task, settings))
