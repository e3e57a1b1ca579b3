"""Annotate records with a fine-tuned checkpoint, in order and as they arrive."""

import os
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from biosqueeze import registry
from biosqueeze.annotation.output import (
    RecordFormatter,
    check_free,
    growing_file,
    is_standard_output,
    is_stream,
    reserved,
    write_to_stream,
)
from biosqueeze.annotation.saved import Mark, SavedPredictions
from biosqueeze.annotation.stream import annotate_stream
from biosqueeze.annotation.tally import Tally
from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.checkpoint_files import ARTEFACTS, has_weights
from biosqueeze.data.records.incoming import NAMES, STDIN, InputStream, given_texts, open_input
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.files import content_hash
from biosqueeze.options import (
    Argument,
    CheckpointArgument,
    Data,
    Group,
    InferenceOptions,
    OnDisk,
    OnlyWith,
    Outcome,
    Plan,
    Purpose,
    Requires,
    Short,
    Suggests,
    Summary,
    Syntax,
    flag_of,
    resolved,
)
from biosqueeze.progress import note
from biosqueeze.tasks import with_columns
from biosqueeze.tasks.formulation import ReadingOptions
from biosqueeze.training.resuming.finished import CONFIG_AND_TOKENIZER, model_hash

if TYPE_CHECKING:
    from biosqueeze.annotation.annotator import Annotator
    from biosqueeze.tasks import Task

PURPOSE = Purpose.DEPLOY
EXAMPLES = (
    (
        "Annotate a file of abstracts with the int8 model",
        "biosqueeze predict ner-tiny abstracts.jsonl.gz --backend onnxruntime:int8 --out entities.jsonl",
    ),
    ("Annotate a text", 'biosqueeze predict ner-tiny --text "Mutations of BRCA1 cause breast cancer."'),
    ("Annotate a stream", "zcat abstracts.jsonl.gz | biosqueeze predict ner-tiny -"),
    (
        "Read the text from another field, and write PubTator",
        "biosqueeze predict ner-tiny notes.jsonl --column text=body --format pubtator --out notes.pubtator",
    ),
)
_WITH_FIELDS = ("jsonl", "csv", "tsv")
_PAIRS = {
    "nli": "sentence1 and sentence2",
    "similarity": "sentence1 and sentence2",
    "qa": "question and context",
}  # the fields of the tasks that read two texts
# Options that do not change the predictions, or that are compared in another form.
_INCIDENTAL = frozenset(
    {"checkpoint", "input", "text", "out", "force", "resume", "skip_bad", "batch_size", "threads", "device"}
    | {"task", "backend"}
)
_FORMAT_NAMES = {"jsonl": "a JSON object a line", "pubtator": "PubTator"}


@dataclass(frozen=True, kw_only=True)
class Options(InferenceOptions):
    """Write the predictions of a fine-tuned checkpoint for records.

    The predictions come in the order of the records: one JSON object a line with the record's id and its entities,
    labels, relations or answers, with scores from 0 to 1 and character offsets. Without --out they are written to
    standard output as they are computed; in Python they are the `predictions` of the result, computed as they are read.

    Records are annotated in chunks of a batch or more. A program that waits for each prediction before it writes the
    next record needs --batch-size 1. So do int8 predictions that are not to depend on the other texts of a batch.
    """

    checkpoint: CheckpointArgument
    input: Annotated[
        str | None,
        "File of records, or - for standard input: JSON lines (text, tokens, or the fields of the task), a table "
        "(.csv, .tsv), PubTator, CoNLL, or one text a line; plain or .gz. Or give --text.",
        Argument(unless="text"),
        Data(),
        OnDisk(),
    ] = None
    text: Annotated[tuple[str, ...], "Text to annotate, repeatable, in place of INPUT.", Data()] = ()
    task: Annotated[
        str | None, "Task kind. Default: that of the fine-tuning.", Suggests(lambda: registry.names("tasks"))
    ] = None
    out: Annotated[
        str | None,
        "File to write, FILE.partial until it is complete; .gz is compressed. A device or a named pipe is written to. "
        "Default: standard output.",
        Short("o"),
        Data(),
        OnDisk(is_output=True),
        Group.OUTPUT,
    ] = None
    force: Annotated[
        bool, "Replace an existing file; without --resume discard FILE.partial.", Requires("out"), Group.OUTPUT
    ] = False
    resume: Annotated[
        bool | Literal["auto"],
        "Continue the FILE.partial of an interrupted run; the input is read from its beginning. With auto, start where "
        "there is none.",
        Requires("out"),
        Group.OUTPUT,
    ] = False
    format: Annotated[Literal["jsonl", "pubtator"], "JSON lines, or PubTator (for entities).", Group.OUTPUT] = "jsonl"
    column: Annotated[
        tuple[str, ...],
        "Field of a JSON record, or column of a table, that holds a role, repeatable, such as text=abstract; text=2 "
        "for a table without a header.",
        Syntax("ROLE=FIELD"),
    ] = ()
    keep_fields: Annotated[
        bool, 'Add the whole record to its prediction, as "record".', OnlyWith("format", "jsonl"), Group.OUTPUT
    ] = False
    skip_bad: Annotated[
        bool,
        "For a bad record, write its error in place of a prediction, and continue.",
        OnlyWith("format", "jsonl"),
        Group.OUTPUT,
    ] = False


@dataclass(frozen=True)
class _PredictionRequest:
    """The options resolved against the checkpoint."""

    checkpoint: Checkpoint
    kind: str
    """Of the task."""
    task: "Task"
    backend: str
    device: str
    out: Path | None


def plan(options: Options) -> Plan:
    """Return what would be predicted, and where it would be written; read the config and the input's beginning."""
    from biosqueeze.models.tokenizers.text_tokenizer import check_tokenizer_files

    request = _resolve(options, weights=False)
    check_tokenizer_files(request.checkpoint)
    if options.input != STDIN and not (options.input and is_stream(Path(options.input))):
        _task_of_format(request, _open(options, request), options.column)
    source = {None: "--text", STDIN: "standard input"}.get(options.input, options.input)
    target = request.out or "standard output"
    step = f"predict {request.kind} with {request.checkpoint.name} on {request.backend} for every record of {source}"
    out = None if request.out is None or is_stream(request.out) else request.out
    return Plan(
        out=out, steps=(*_continued(options, request), step, f"write {_FORMAT_NAMES[options.format]} to {target}")
    )


def run(options: Options) -> Outcome:
    """Annotate every record.

    Returns:
        With --out the file and the counts; else a generator of lines, which annotates while it is read.

    Raises:
        SqueezeError: the checkpoint has no trained head of the task; a record is bad (without --skip-bad), or all are.
        UsageError: the options contradict each other, or the task is unknown.
    """
    request = _resolve(options)
    source = _open(options, request)
    request = replace(request, task=_task_of_format(request, source, options.column))
    annotator = _load(options, request)
    read_as = f"{source.name} is read as {NAMES[source.format]}; " if options.input else ""
    note(f"{read_as}{request.kind} with {request.backend}")
    tally = Tally()
    started = time.monotonic()
    formatter = RecordFormatter(options.format, options.keep_fields)
    lines = annotate_stream(annotator, source, formatter, tally, skip_bad=options.skip_bad)
    if request.out is None:
        return Outcome(request.checkpoint.path, lines=lines)
    if is_stream(request.out):
        write_to_stream(request.out, lines)
    else:
        with reserved(request.out):
            _write_file(options, request, source, lines, tally)
    facts = {"task": request.kind, "backend": request.backend, "records": tally.records, "bad": tally.bad}
    facts |= {"seconds": round(time.monotonic() - started, 3)}
    return Outcome(request.out, facts, summary=Summary(machine=f"{request.backend} on {request.device}"))


def can_continue(options: Options) -> bool:
    """Return whether --resume would continue an interrupted run with the same model."""
    request = _resolve(replace(options, resume=False, force=True))
    if request.out is None or is_stream(request.out):
        return False
    saved = _saved(request.out, options)
    if not saved.continues(resume="auto", force=True):
        return False
    try:
        saved.marks(_made_by(options, request))
    except SqueezeError:
        return False
    return True


def _continued(options: Options, request: _PredictionRequest) -> tuple[str, ...]:
    """Return what is said of the interrupted run that would be continued, after the check that it can be."""
    if request.out is None or is_stream(request.out):
        return ()
    saved = _saved(request.out, options)
    if not saved.continues(resume=options.resume, force=options.force):
        return ()
    if has_weights(request.checkpoint.path):  # else only the small files were fetched
        saved.marks(_made_by(options, request))
    return (f"take over the predictions in {saved.path}",)


def _saved(out: Path, options: Options) -> SavedPredictions:
    return SavedPredictions(out, is_pubtator=options.format == "pubtator")


def _write_file(
    options: Options, request: _PredictionRequest, source: InputStream, lines: Iterator[str], tally: Tally
) -> None:
    """Write the predictions of the records that an interrupted run has left, or of all."""
    saved = _saved(Path(str(request.out)), options)
    made_by = _made_by(options, request)
    before: Iterator[tuple[str, Mark]] = iter(())
    if saved.continues(resume=options.resume, force=options.force):
        before = saved.take_over(saved.marks(made_by), source.records, tally)
    with growing_file(saved, made_by, before, force=options.force) as append:
        written = tally.records  # those that were taken over
        try:
            for text in lines:
                append(text, tally.mark())
                written = tally.records
        except (SqueezeError, KeyboardInterrupt, OSError) as error:
            if tally.is_complete or not written:
                raise
            kept = f"{saved.path} holds the predictions of the first {written:,} records; --resume continues"
            if isinstance(error, OSError):
                note(kept)
                raise
            raise type(error)(f"{error}; {kept}" if str(error) else kept) from error


def _made_by(options: Options, request: _PredictionRequest) -> dict[str, Any]:
    """Return what the predictions depend on beside the records."""
    checkpoint = request.checkpoint
    folders = () if request.backend.startswith("torch") else (checkpoint.path / name for name in ARTEFACTS)
    return {
        "checkpoint": checkpoint.weights_sha256(),
        CONFIG_AND_TOKENIZER: model_hash(checkpoint.path),
        "record of its task": checkpoint.task.as_json() if checkpoint.task else None,
        "graph": [content_hash(folder) for folder in folders if folder.is_dir()],
        "task": request.kind,
        "backend": request.backend,
        **{flag_of(name): value for name, value in resolved(options).items() if name not in _INCIDENTAL},
    }


def _resolve(options: Options, *, weights: bool = True) -> _PredictionRequest:
    from biosqueeze.backends import canonical_spec, check_runnable, default_spec, use_device
    from biosqueeze.finetuning.finetuned_checkpoint import check_head, task_of

    out = _output_file(options)
    checkpoint = open_checkpoint(options.checkpoint, weights=weights, slim=True)
    kind, task = task_of(checkpoint, options.task, "to predict with", ReadingOptions(column=options.column))
    if options.format == "pubtator" and task.HEAD != "token-classification":
        raise UsageError(f"--format pubtator needs entities, and {kind} finds none; leave it out")
    check_head(checkpoint, task.HEAD, kind, "to predict with")
    backend = canonical_spec(options.backend) if options.backend else default_spec(checkpoint)
    check_runnable(checkpoint, backend)
    return _PredictionRequest(checkpoint, kind, task, backend, use_device(backend, options.device), out)


def _output_file(options: Options) -> Path | None:
    """Return the file to write; None for standard output.

    Raises:
        SqueezeError: it exists, is a directory, or is the input; or FILE.partial exists, or is missing.
    """
    if options.out in (None, STDIN):
        return None
    out = Path(os.path.expanduser(str(options.out)))  # noqa: PTH111 - unlike Path's, it keeps unknown names
    if options.resume and (is_standard_output(out) or is_stream(out)):
        raise UsageError(f"--resume: {out} is no file, so an interrupted run leaves nothing there")
    if is_standard_output(out):
        return None
    if not is_stream(out):
        if options.input and out.exists() and Path(options.input).expanduser().resolve() == out.resolve():
            raise SqueezeError(f"{out} is the input; give another --out")
        check_free(out, force=options.force)
        saved = SavedPredictions(out)
        with reserved(out) if saved.path.exists() else nullcontext():
            saved.continues(resume=options.resume, force=options.force)
    return out


def _open(options: Options, request: _PredictionRequest) -> InputStream:
    if options.input is None:
        return given_texts(options.text)
    columns = (request.task.formulation.column, options.column)
    return open_input(options.input, *columns, with_entities=request.kind == "relation")


def _task_of_format(request: _PredictionRequest, source: InputStream, column: tuple[str, ...]) -> "Task":
    """Return the task for records of the input's format: only JSON records and tables have fields for --column.

    Where fields have names, the numbers of columns that the fine-tuning had are left out, and the usual names are read.

    Raises:
        UsageError: the format has no fields to name, or not the texts that the task needs.
    """
    task, what = request.task, f"{source.name} is {NAMES[source.format]}"
    if source.format in _WITH_FIELDS:
        if column or not source.has_names:
            return task
        named = (item for item in task.formulation.column if not item.partition("=")[2].strip().isdecimal())
        return with_columns(task, tuple(named))
    if request.kind in _PAIRS:
        fields = _PAIRS[request.kind]
        raise UsageError(f"{what}, and {request.kind} needs two texts; give JSON lines or a table with {fields}")
    if source.format == "conll" and task.HEAD != "token-classification":
        raise UsageError(f"{what}, and {request.kind} needs texts; give JSON lines, a table or a .txt")
    is_word = source.format == "conll" and all(item.startswith("word=") for item in column)
    if column and not is_word:
        way_out = "write --column word=1, or leave it out" if source.format == "conll" else "leave it out"
        raise UsageError(f"--column: {what}, which has no fields; {way_out}")
    return with_columns(task, ())


def _load(options: Options, request: _PredictionRequest) -> "Annotator":
    from biosqueeze.annotation.annotator import Annotator
    from biosqueeze.finetuning.task_model import InferenceSettings, load_task_model

    settings = InferenceSettings(
        backend=request.backend,
        batch_size=options.batch_size,
        max_length=options.max_length,
        threads=options.threads,
        device=request.device,
    )
    return Annotator(load_task_model(request.checkpoint, request.task, settings))
