"""Score a fine-tuned checkpoint on labelled data, on the backend that it will run on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from biosqueeze.checkpoint import open_checkpoint, write_result
from biosqueeze.errors import UsageError
from biosqueeze.options import (
    CheckpointArgument,
    InferenceOptions,
    OnDisk,
    Outcome,
    Plan,
    Purpose,
    Syntax,
    named_number,
)
from biosqueeze.progress import note, table
from biosqueeze.tasks.formulation import ReadingOptions

if TYPE_CHECKING:
    from biosqueeze.finetuning.evaluation import EvaluationRequest

PURPOSE = Purpose.MEASURE
EXAMPLES = (
    ("Score on the test split of the data it was fine-tuned on", "biosqueeze evaluate ner-tiny"),
    (
        "Score the int8 model, and fail with exit code 4 below an F1 of 0.80",
        "biosqueeze evaluate ner-tiny --data NCBI-disease --backend onnxruntime:int8 --min f1=0.80",
    ),
)
DEFAULT_TASK = "ner"


@dataclass(frozen=True, kw_only=True)
class Options(ReadingOptions, InferenceOptions):
    """Score a fine-tuned checkpoint on labelled data.

    The scores are written to results/evaluate-BACKEND.json in the checkpoint. A score below --min then ends the command
    with exit code 4.
    """

    checkpoint: CheckpointArgument
    data: Annotated[
        str | None,
        "Directory with the split's file, hub:NAME, or demo:ner. Default: the data of the fine-tuning.",
        OnDisk(),
    ] = None
    task: Annotated[
        str | None, "Task kind, or a named benchmark such as blurb/hoc. Default: that of the fine-tuning."
    ] = None
    split: Annotated[str, "Split to score: train, dev or test."] = "test"
    min: Annotated[
        tuple[str, ...],
        "Lowest score to accept, repeatable; a lower one ends with exit code 4.",
        Syntax("METRIC=FLOOR", named_number, "f1=0.80"),
    ] = ()


def _request(options: Options, *, weights: bool = True) -> "EvaluationRequest":
    """Resolve the options against the checkpoint: what they leave out is as in its fine-tuning.

    Raises:
        UsageError: neither the options nor the checkpoint name the data.
    """
    from biosqueeze.backends import canonical_spec, default_spec
    from biosqueeze.finetuning.evaluation import EvaluationRequest
    from biosqueeze.finetuning.finetuned_checkpoint import task_of
    from biosqueeze.finetuning.task_model import InferenceSettings

    floors = dict(map(named_number, options.min))
    checkpoint = open_checkpoint(options.checkpoint, weights=weights)
    recorded = checkpoint.task
    data = options.data or (recorded and recorded.data)
    if not data:
        raise UsageError(
            f"{checkpoint.name} does not name the data of its fine-tuning; give --data, a directory or demo:ner"
        )
    kind, task = task_of(checkpoint, options.task or (recorded.name if recorded else DEFAULT_TASK), "to score", options)
    inference = InferenceSettings(
        backend=canonical_spec(options.backend) if options.backend else default_spec(checkpoint),
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
