"""Score a fine-tuned checkpoint on labelled data, on the backend that it will run on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from biosqueeze.checkpoint import open_checkpoint, write_result
from biosqueeze.errors import UsageError
from biosqueeze.options import Argument, InferenceOptions, Outcome, Plan
from biosqueeze.progress import note, table
from biosqueeze.tasks.formulation import ReadingOptions

if TYPE_CHECKING:
    from biosqueeze.finetuning.evaluation import EvaluationRequest

EXAMPLE = "biosqueeze evaluate ner-tiny --data NCBI-disease --backend onnxruntime:int8 --min f1=0.80"
DEFAULT_TASK = "ner"


@dataclass(frozen=True, kw_only=True)
class Options(ReadingOptions, InferenceOptions):
    """Score a fine-tuned checkpoint on labelled data, and write the scores into it.

    The scores go to results/evaluate-BACKEND.json. A score below --min ends with exit code 4, after they are written.
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


def _floor(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        floor = float(value)
    except ValueError:
        floor = math.nan
    if not name or not math.isfinite(floor):
        raise UsageError(f"--min {text!r} does not read METRIC=FLOOR, like f1=0.80")
    return name, floor


def _request(options: Options, *, weights: bool = True) -> "EvaluationRequest":
    """Resolve the options against the checkpoint: what they leave out is as in its fine-tuning.

    Raises:
        UsageError: neither the options nor the checkpoint name the data.
    """
    from biosqueeze.backends import default_spec, normal_spec
    from biosqueeze.finetuning.evaluation import EvaluationRequest
    from biosqueeze.finetuning.finetuned_checkpoint import task_of
    from biosqueeze.finetuning.task_model import InferenceSettings

    floors = dict(map(_floor, options.min))
    checkpoint = open_checkpoint(options.checkpoint, weights=weights)
    recorded = checkpoint.task
    data = options.data or (recorded and recorded.data)
    if not data:
        raise UsageError(
            f"{checkpoint.name} does not name the data of its fine-tuning; give --data, a directory or demo:ner"
        )
    kind, task = task_of(checkpoint, options.task or (recorded.name if recorded else DEFAULT_TASK), "to score", options)
    inference = InferenceSettings(
        backend=normal_spec(options.backend) if options.backend else default_spec(checkpoint),
        batch_size=options.batch_size,
        max_length=options.max_length,
        threads=options.threads,
    )
    return EvaluationRequest(
        checkpoint=checkpoint,
        kind=kind,
        task=task,
        data=str(data),
        split=options.split,
        inference=inference,
        floors=floors,
    )


def plan(options: Options) -> Plan:
    """Return what would be scored; read the data and the config, no weights."""
    request = _request(options, weights=False)
    count = len(request.read().splits[request.split])
    return Plan(
        out=None,
        steps=(
            f"score {request.checkpoint.name} with {request.inference.backend} "
            f"on {count:,} {request.split} examples of {request.data}",
            *(f"fail below {name} {floor:g}" for name, floor in request.floors.items()),
        ),
    )


def run(options: Options) -> Outcome:
    """Score, write the result, and compare it with the floors.

    Raises:
        QualityGateMissedError: a score is below its floor.
        SqueezeError: the checkpoint is not fine-tuned on this task, or the data have labels that it lacks.
        UsageError: a floor names no metric of the task.
    """
    from biosqueeze.finetuning.evaluation import check_floors, evaluate_checkpoint

    request = _request(options)
    result = evaluate_checkpoint(request)
    _show(result)
    write_result(request.checkpoint, f"evaluate-{request.inference.backend.replace(':', '-')}", result)
    check_floors(request.checkpoint.name, request.floors, result["metrics"])
    return Outcome(request.checkpoint.path, result)


def _show(result: Mapping[str, Any]) -> None:
    note(f"{result['task']} on {result['data']} ({result['split']}) with {result['backend']}:")
    rows = [
        (name, f"{value:,}" if isinstance(value, int) else f"{value:.4f}") for name, value in result["metrics"].items()
    ]
    table("", ("metric", "value"), rows)
