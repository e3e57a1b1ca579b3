"""Score a fine-tuned checkpoint on labelled data, on the backend that it will run on."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from biosqueeze import registry
from biosqueeze.checkpoint import Checkpoint, open_checkpoint, write_result
from biosqueeze.errors import QualityGateMissedError, SqueezeError, UsageError
from biosqueeze.options import Argument, InferenceOptions, Outcome, Plan
from biosqueeze.progress import note, table
from biosqueeze.tasks.formulation import ReadingOptions

if TYPE_CHECKING:
    from biosqueeze.tasks import Dataset, Task

EXAMPLE = "biosqueeze evaluate ner-tiny --data NCBI-disease --backend onnxruntime:int8 --min f1=0.80"
DEFAULT_TASK = "ner"


@dataclass(frozen=True, kw_only=True)
class Options(ReadingOptions, InferenceOptions):
    """Score a fine-tuned checkpoint on labelled data, and note the scores beside it.

    The scores go to results/evaluate-BACKEND.json. A score below --min ends with exit code 4, after they are noted.
    """

    checkpoint: Annotated[str, "Directory, Hub id, or - for the path on standard input.", Argument()]
    data: Annotated[
        str | None, "Directory with the split's file, or demo:ner; the data of the fine-tuning if left out."
    ] = None
    task: Annotated[
        str | None, "Kind of task, or a named benchmark such as blurb/hoc; that of the fine-tuning if left out."
    ] = None
    split: Annotated[str, "Which split to score."] = "test"
    min: Annotated[tuple[str, ...], "METRIC=FLOOR, repeatable; a score below its floor exits with code 4."] = ()


@dataclass(frozen=True)
class _Setting:
    """What is decided before anything heavy is loaded."""

    checkpoint: Checkpoint
    name: str  # of the task kind
    task: "Task"
    data: str
    spec: str
    floors: Mapping[str, float]


def _settle(options: Options, *, weights: bool = True) -> _Setting:
    from biosqueeze.backends import default_spec, normal_spec
    from biosqueeze.finetuning.finetuned_checkpoint import task_of

    floors = dict(map(_floor, options.min))
    checkpoint = open_checkpoint(options.checkpoint, weights=weights)
    known: Mapping[str, Any] = (checkpoint.manifest or {}).get("task") or {}
    data = options.data or known.get("data")
    if not data:
        raise UsageError(
            f"{checkpoint.name} does not say what it was fine-tuned on; give --data, a directory or demo:ner"
        )
    name, task = task_of(checkpoint, options.task or known.get("name") or DEFAULT_TASK, "to score", options)
    spec = normal_spec(options.backend) if options.backend else default_spec(checkpoint)
    return _Setting(checkpoint, name, task, str(data), spec, floors)


def _floor(asked: str) -> tuple[str, float]:
    name, _, value = asked.partition("=")
    try:
        floor = float(value)
    except ValueError:
        floor = math.nan
    if not name or not math.isfinite(floor):
        raise UsageError(f"--min {asked!r} does not read METRIC=FLOOR, like f1=0.80")
    return name, floor


def plan(options: Options) -> Plan:
    """What would be scored; reads the data and the config, no weights."""
    setting = _settle(options, weights=False)
    data = setting.task.read(setting.data, (options.split,))
    floors = [f"fail below {name} {floor:g}" for name, floor in setting.floors.items()]
    count = len(data.splits[options.split])
    return Plan(
        out=None,
        steps=(
            f"score {setting.checkpoint.name} with {setting.spec} "
            f"on {count:,} {options.split} examples of {setting.data}",
            *floors,
        ),
    )


def run(options: Options) -> Outcome:
    """Score, note the result, and see that every floor is kept.

    Raises:
        QualityGateMissedError: a score is below its floor.
        SqueezeError: the checkpoint is not fine-tuned on this task, or the data have labels that it lacks.
        UsageError: there is no metric of a floor's name.
    """
    from biosqueeze.finetuning.finetuned_checkpoint import check_head

    setting = _settle(options)
    task, checkpoint = setting.task, setting.checkpoint
    check_head(checkpoint, task.HEAD, setting.name, "to score")
    data = task.read(setting.data, (options.split,))
    _check_labels(checkpoint, data, setting.data)
    gold = [example.gold for example in data.splits[options.split]]
    _check_metrics(setting.floors, tuple(task.score(gold, gold)))
    started = time.monotonic()
    length, predicted = _predictions(options, setting, data.splits[options.split])
    metrics = task.score(gold, predicted)
    result = {
        "task": setting.name,
        "data": setting.data,
        "split": options.split,
        "backend": setting.spec,
        "metrics": metrics,
        "examples": len(gold),
        "max_length": length,
        "seconds": round(time.monotonic() - started, 3),
    }
    _show(result)
    write_result(checkpoint, f"evaluate-{setting.spec.replace(':', '-')}", result)
    _check_floors(checkpoint, setting.floors, metrics)
    return Outcome(checkpoint.path, result)


def _check_labels(checkpoint: Checkpoint, data: "Dataset", source: str) -> None:
    """Every label of the data must be one of the checkpoint's, whose ids count."""
    strange = [label for label in data.labels if label not in checkpoint.labels]
    if strange:
        raise SqueezeError(
            f"{source} has the labels {', '.join(strange)}, but {checkpoint.name} knows only "
            f"{', '.join(checkpoint.labels)}; evaluate on the data that it was fine-tuned on, or fine-tune it on these"
        )


def _check_metrics(floors: Mapping[str, float], known: Sequence[str]) -> None:
    for name in floors:
        if name not in known:
            raise UsageError(
                f"--min: there is no metric {name!r}.{registry.closest(name, known)} Known: {', '.join(known)}"
            )


def _predictions(options: Options, setting: _Setting, examples: Sequence[Any]) -> tuple[int, list[Any]]:
    """The tokens in a sequence, and the task's answer for each example."""
    from biosqueeze.backends import open_predictor
    from biosqueeze.backends.predict import predict_all
    from biosqueeze.finetuning.finetuned_checkpoint import sequence_length
    from biosqueeze.models.custom_heads import decoding_parameters
    from biosqueeze.models.load import load_tokenizer
    from biosqueeze.tasks import bound

    checkpoint = setting.checkpoint
    task = bound(setting.task, decoding_parameters(checkpoint))
    tokenizer = load_tokenizer(checkpoint)
    length = sequence_length(checkpoint, options.max_length, tokenizer.model_max_length)
    windows = task.encode(examples, checkpoint.labels, tokenizer, length)
    predictor = open_predictor(checkpoint, setting.spec, threads=options.threads)
    features = [window.features for window in windows]
    logits = predict_all(predictor, features, tokenizer.pad_token_id, options.batch_size)
    return length, task.decode(windows, logits, examples, checkpoint.labels)


def _show(result: Mapping[str, Any]) -> None:
    note(f"{result['task']} on {result['data']} ({result['split']}) with {result['backend']}:")
    rows = [
        (name, f"{value:,}" if isinstance(value, int) else f"{value:.4f}") for name, value in result["metrics"].items()
    ]
    table("", ("metric", "value"), rows)


def _check_floors(checkpoint: Checkpoint, floors: Mapping[str, float], metrics: Mapping[str, float]) -> None:
    missed = [
        f"{name} {metrics[name]:.4f} is below {floor:g}" for name, floor in floors.items() if metrics[name] < floor
    ]
    if missed:
        raise QualityGateMissedError(
            f"{checkpoint.name}: {', '.join(missed)}; train longer or squeeze less, or lower the floor given with --min"
        )
    if floors:
        note(f"{checkpoint.name}: every floor is kept ({', '.join(f'{n} >= {f:g}' for n, f in floors.items())})")
