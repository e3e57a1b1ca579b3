"""The manifest biosqueeze.json: how a checkpoint was made, as typed records; read with checks, written as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from biosqueeze import __version__
from biosqueeze.environment import Environment
from biosqueeze.errors import SqueezeError
from biosqueeze.files import read_json
from biosqueeze.files.json_object import JsonObject
from biosqueeze.model_facts import ModelShape

FILE_NAME = "biosqueeze.json"
FORMAT = 1
_WITHOUT_PARENT = ("pretrain", "vocab")  # stages that need not continue from a checkpoint
_ADVICE = "restore the file or fetch it again, or delete it, which loses the checkpoint's task and history"


@dataclass(frozen=True)
class ParentRef:
    """A checkpoint that a stage read: its name as the user typed it, and the hash of its weights."""

    name: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class HistoryEntry:
    """One stage that a checkpoint or an ancestor of it went through.

    Args:
        stage: the subcommand.
        version: of biosqueeze.
        created: ISO 8601, UTC.
        options: the resolved options.
        sources: where each option's value came from: flag, environment, recipe or default.
        parents: the checkpoints that were read, by role: "parent", and for a distillation "teacher", "teacher 2", ...
        layers: the parent's layers, from 0, that the model consists of; empty where none was taken over, None where
            all are unchanged.
        heads: for each layer of the model the parent's attention heads, from 0, that it has; None where all are kept.
        inputs: hashes of the data and text of a training, by option.
        extra: entries of a later release, kept as they are.
    """

    stage: str
    version: str
    created: str
    options: Mapping[str, Any]
    sources: Mapping[str, str]
    parents: Mapping[str, ParentRef]
    layers: tuple[int, ...] | None = None
    heads: tuple[tuple[int, ...], ...] | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parent(self) -> ParentRef | None:
        """The checkpoint that the stage continued from; None for a model from random weights."""
        return self.parents.get("parent")

    def given_options(self) -> dict[str, Any]:
        """Return the options that were not left at their defaults."""
        return {name: value for name, value in self.options.items() if self.sources.get(name, "default") != "default"}

    def as_json(self) -> dict[str, Any]:
        """Return the entry as it is written."""
        return {
            "stage": self.stage,
            "version": self.version,
            "created": self.created,
            "options": dict(self.options),
            "sources": dict(self.sources),
            "parents": {role: asdict(parent) for role, parent in self.parents.items()},
            **({"layers": list(self.layers)} if self.layers is not None else {}),
            **({"heads": [list(layer) for layer in self.heads]} if self.heads is not None else {}),
            **({"inputs": dict(self.inputs)} if self.inputs else {}),
            **self.extra,
        }


@dataclass(frozen=True, kw_only=True)
class TaskRecord:
    """The task that a checkpoint was fine-tuned on.

    Args:
        name: the kind of task, such as ner.
        data: the data set as the user named it.
        labels: class names in the order of the logits.
        scheme: the tag scheme, or the output type of a task on whole texts.
        metric: the score by which the best step was chosen.
        max_length: tokens in a sequence.
        formulation: the fields of `tasks.formulation.Formulation` that are not at their defaults.
        benchmark: the named benchmark, such as blurb/hoc.
        pairs: for relations between entities of documents, the types of head and tail that may be related, and whether
            the head comes first in the text.
        extra: entries of a later release, kept as they are.
    """

    name: str
    data: str | None = None
    labels: tuple[str, ...] = ()
    scheme: str | None = None
    metric: str | None = None
    max_length: int | None = None
    formulation: Mapping[str, Any] = field(default_factory=dict)
    benchmark: str | None = None
    pairs: tuple[tuple[str, str, bool], ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def existing_data(self) -> str | None:
        """The data set; None where none is recorded, or where it is a directory that does not exist on this machine."""
        is_known = self.data and (":" in self.data or Path(self.data).expanduser().exists())
        return self.data if is_known else None

    def as_json(self) -> dict[str, Any]:
        """Return the record as it is written: what is unknown is left out."""
        values = {name: value for name, value in vars(self).items() if name != "extra" and value not in (None, {}, ())}
        return {**values, "labels": list(self.labels), **self.extra}


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """The weights and their shape; `parameters` by part (embeddings, attention, ffn, head) and in total."""

    family: str | None
    sha256: str
    shape: ModelShape
    parameters: Mapping[str, int]
    megabytes: float


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """All that biosqueeze.json holds.

    Args:
        stage: the stage that wrote the checkpoint.
        version: of biosqueeze.
        created: ISO 8601, UTC.
        parent: the checkpoint that the stage continued from; None for a model from random weights.
        head: the kind of head, such as token-classification.
        custom_head: the head in head.safetensors, such as crf, where there is one.
        task: None for a checkpoint that is not fine-tuned.
        model: facts of the weights.
        metrics: the stage's measurements.
        notes: details of the stage, by its name.
        environment: versions and processor.
        history: every stage, the first one first.
    """

    stage: str
    version: str
    created: str
    parent: ParentRef | None
    head: str
    custom_head: str | None
    task: TaskRecord | None
    model: ModelFacts
    metrics: Mapping[str, Any]
    notes: Mapping[str, Any]
    environment: Environment
    history: tuple[HistoryEntry, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the manifest as it is written."""
        return {
            "format": FORMAT,
            "stage": self.stage,
            "version": self.version,
            "created": self.created,
            "parent": asdict(self.parent) if self.parent else None,
            "head": self.head,
            **({"own_head": self.custom_head} if self.custom_head else {}),
            "task": self.task.as_json() if self.task else None,
            "model": asdict(self.model),
            "metrics": dict(self.metrics),
            "notes": dict(self.notes),
            "environment": asdict(self.environment),
            "history": [entry.as_json() for entry in self.history],
        }


def read_manifest(directory: Path) -> Manifest | None:
    """Read the manifest of a directory; None where there is none.

    Keys that this version does not know are ignored, and kept in the history and the task, which a child inherits.

    Raises:
        SqueezeError: the file is not JSON, of a newer format, or a key is missing or of the wrong type.
    """
    path = directory / FILE_NAME
    if not path.is_file():
        return None
    return parse_manifest(read_json(path), str(path))


def parse_manifest(values: Mapping[str, Any], source: str) -> Manifest:
    """Check a parsed manifest; `source` names the file in errors.

    Raises:
        SqueezeError: it is of a newer format, or a key is missing or of the wrong type.
    """
    json = JsonObject(values, source, _ADVICE)
    _check_format(json)
    stage, task = json.get("stage", str), json.optional_child("task")
    parent = (json.optional_child if stage in _WITHOUT_PARENT else json.child)("parent")
    history = tuple(_parse_entry(entry) for entry in json.children("history"))
    if not history:
        raise json.error("history", "is empty, at least one stage was expected")
    return Manifest(
        stage=stage,
        version=json.get("version", str),
        created=json.get("created", str),
        parent=_parse_parent(parent) if parent else None,
        head=json.get("head", str),
        custom_head=json.optional("own_head", str),
        task=_parse_task(task) if task else None,
        model=_parse_model(json.child("model")),
        metrics=json.get("metrics", dict),
        notes=json.get("notes", dict),
        environment=_parse_environment(json.child("environment")),
        history=history,
    )


def _check_format(json: JsonObject) -> None:
    number = json.get("format", int)
    if number > FORMAT:
        raise SqueezeError(
            f"{json.source}: format is {number}, and biosqueeze {__version__} reads {FORMAT}; install the version that "
            f"wrote the file ({json.values.get('version', 'a later one')})"
        )
    if number < 1:
        raise json.error("format", f"is {number}, {FORMAT} was expected")


def _parse_parent(json: JsonObject) -> ParentRef:
    return ParentRef(json.get("name", str), json.get("sha256", str))


def _parse_entry(json: JsonObject) -> HistoryEntry:
    parents = {role: _parse_parent(parent) for role, parent in json.children_by_name("parents").items()}
    stage = json.get("stage", str)
    if "parent" not in parents and stage not in _WITHOUT_PARENT:
        raise json.error("parents.parent", "is missing, an object was expected")
    layers = json.items("layers", int)
    if any(layer < 0 for layer in layers):
        raise json.error("layers", "holds a negative number, layers counted from 0 were expected")
    return HistoryEntry(
        stage=stage,
        version=json.get("version", str),
        created=json.get("created", str),
        options=json.get("options", dict),
        sources=json.mapping("sources", str),
        parents=parents,
        layers=layers if json.values.get("layers") is not None else None,
        heads=_parse_heads(json) if json.values.get("heads") is not None else None,
        inputs=json.mapping("inputs", str) if json.values.get("inputs") is not None else {},
        extra=json.others(frozenset(HistoryEntry.__dataclass_fields__)),
    )


def _parse_heads(json: JsonObject) -> tuple[tuple[int, ...], ...]:
    rows = json.items("heads", list)
    if not all(type(head) is int and head >= 0 for row in rows for head in row):
        raise json.error("heads", "holds something else than heads counted from 0 in a list for each layer")
    return tuple(tuple(row) for row in rows)


def _parse_pairs(json: JsonObject) -> tuple[tuple[str, str, bool], ...]:
    rows = json.items("pairs", list)
    if not all(list(map(type, row)) == [str, str, bool] for row in rows):
        raise json.error("pairs", "holds something else than two types and true or false in each list")
    return tuple((head, tail, is_in_order) for head, tail, is_in_order in rows)


def _parse_task(json: JsonObject) -> TaskRecord:
    return TaskRecord(
        name=json.get("name", str),
        data=json.optional("data", str),
        labels=json.items("labels", str),
        scheme=json.optional("scheme", str),
        metric=json.optional("metric", str),
        max_length=json.optional("max_length", int),
        formulation=json.optional("formulation", dict) or {},
        benchmark=json.optional("benchmark", str),
        pairs=_parse_pairs(json),
        extra=json.others(frozenset(TaskRecord.__dataclass_fields__)),
    )


def _parse_model(json: JsonObject) -> ModelFacts:
    known = ModelShape.__dataclass_fields__
    sizes = {name: size for name, size in json.optional_mapping("shape", int).items() if name in known}
    return ModelFacts(
        family=json.optional("family", str),
        sha256=json.get("sha256", str),
        shape=ModelShape(**sizes),
        parameters={**json.mapping("parameters", int), "total": json.child("parameters").get("total", int)},
        megabytes=json.get("megabytes", float),
    )


def _parse_environment(json: JsonObject) -> Environment:
    return Environment(
        biosqueeze=json.get("biosqueeze", str),
        python=json.get("python", str),
        system=json.get("system", str),
        cpu=json.get("cpu", str),
        cpu_flags=json.items("cpu_flags", str),
        packages=json.optional_mapping("packages", str),
    )


def now() -> str:
    """Return the time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).replace(microsecond=0).isoformat()
