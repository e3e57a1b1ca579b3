"""Score a fine-tuned checkpoint on labelled data, on the backend that it will run on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from biosqueeze.benchmarks.suite import task_names
from biosqueeze.card.metadata import data_shown
from biosqueeze.card.results import evaluation_name
from biosqueeze.checkpoint import write_result
from biosqueeze.errors import UsageError
from biosqueeze.files import megabytes
from biosqueeze.models.custom_heads.files import BESIDE_ENCODER
from biosqueeze.options import (
    CheckpointArgument,
    InferenceOptions,
    OnDisk,
    Outcome,
    Plan,
    Purpose,
    Suggests,
    Summary,
    Syntax,
    named_number,
)
from biosqueeze.progress import draws_tables, note, table
from biosqueeze.summaries import measured_on, scored, share_of
from biosqueeze.tasks.formulation import ReadingOptions

if TYPE_CHECKING:
    from biosqueeze.finetuning.evaluation import Evaluation

PURPOSE = Purpose.MEASURE
EXAMPLES = (
    ("Score on the test split of the data it was fine-tuned on", "biosqueeze evaluate ner-tiny"),
    (
        "Score the int8 model, and fail with exit code 4 below an F1 of 0.80",
        "biosqueeze evaluate ner-tiny --data NCBI-disease --backend onnxruntime:int8 --min f1=0.80",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Options(ReadingOptions, InferenceOptions):
    """Score a fine-tuned checkpoint on labelled data.

    The scores are written to results/evaluate-BACKEND.json in the checkpoint. A score below --min then ends the command
    with exit code 4.
    """

    HAS_TABLE: ClassVar[bool] = True

    checkpoint: CheckpointArgument
    data: Annotated[
        str | None,
        "Directory with the split's file, hub:NAME, or demo:ner. Default: the data of the fine-tuning.",
        OnDisk(),
    ] = None
    task: Annotated[
        str | None,
        "Task kind, or a named benchmark such as blurb/hoc. Default: that of the fine-tuning.",
        Suggests(task_names),
    ] = None
    split: Annotated[str, "Split to score: train, dev or test."] = "test"
    min: Annotated[
        tuple[str, ...],
        "Lowest score to accept, repeatable; a lower one ends with exit code 4.",
        Syntax("METRIC=FLOOR", named_number, "f1=0.80"),
    ] = ()


def _resolved(options: Options, *, weights: bool = True) -> "Evaluation":
    """Open the checkpoint, and take from its manifest what the options leave out."""
    from biosqueeze.finetuning.evaluation import EvaluationRequest, resolve_evaluation

    request = EvaluationRequest(
        checkpoint=options.checkpoint,
        data=options.data,
        task=options.task,
        split=options.split,
        reading=options,
        backend=options.backend,
        batch_size=options.batch_size,
        max_length=options.max_length,
        threads=options.threads,
        device=options.device,
        floors=_floors(options),
    )
    return resolve_evaluation(request, weights=weights)


def _floors(options: Options) -> dict[str, float]:
    """Return the floor of each metric.

    Raises:
        UsageError: a metric has two.
    """
    floors: dict[str, float] = {}
    for name, floor in map(named_number, options.min):
        if name in floors:
            raise UsageError(f"--min gives {name} twice, {floors[name]:g} and {floor:g}; keep one")
        floors[name] = floor
    return floors


def plan(options: Options) -> Plan:
    """Return what would be scored; read the data and the config, no weights."""
    from biosqueeze.models.tokenizers.text_tokenizer import check_tokenizer_files

    evaluation = _resolved(options, weights=False)
    check_tokenizer_files(evaluation.checkpoint)
    count = len(evaluation.examples())
    return Plan(
        out=None,
        steps=(
            f"score {evaluation.checkpoint.name} with {evaluation.inference.backend} "
            f"on {count:,} {evaluation.split} examples of {evaluation.data}",
            *(f"fail below {name} {floor:g}" for name, floor in evaluation.floors.items()),
        ),
    )


def run(options: Options) -> Outcome:
    """Score, write the result, and compare it with the floors.

    Raises:
        QualityGateMissedError: a score is below its floor.
        SqueezeError: the checkpoint is not fine-tuned on this task, or the data have labels that it lacks.
        UsageError: a floor names no metric of the task.
    """
    from biosqueeze.finetuning.evaluation import check_floors

    evaluation = _resolved(options)
    result = evaluation.score()
    _show(result)
    checkpoint = evaluation.checkpoint
    written = write_result(checkpoint, evaluation_name(evaluation.inference.backend), result)
    check_floors(checkpoint.name, evaluation.floors, result["metrics"])
    teacher = _teacher_score(evaluation, result)
    return Outcome(
        checkpoint.path,
        {**result, **_beside_teacher(result["metrics"].get(evaluation.metric), teacher)},
        rows=_rows(checkpoint.name, result),
        results=(written,) if written else (),
        summary=_summary(evaluation, result, teacher),
    )


def _teacher_score(evaluation: "Evaluation", result: Mapping[str, Any]) -> float | None:
    """Return the teacher's score on the same split; None where it was not evaluated there."""
    from biosqueeze.reporting.report_data import teacher_evaluations

    metric, own = evaluation.metric, measured_on(result)
    comparable = [
        of_teacher.metrics[metric]
        for of_teacher in teacher_evaluations(evaluation.checkpoint)
        if of_teacher.measured_on == own and metric in of_teacher.metrics
    ]
    return max(comparable, default=None)  # of several backends the one without loss


def _beside_teacher(score: float | None, teacher: float | None) -> dict[str, float]:
    """Return what --json has of the teacher. The file in the checkpoint lacks it: the teacher may be scored again."""
    share = share_of(score, teacher)
    return {} if teacher is None or share is None else {"teacher_score": teacher, "of_teacher": round(share, 6)}


def _summary(evaluation: "Evaluation", result: Mapping[str, Any], teacher: float | None) -> Summary:
    """Return the score beside that of the teacher, size, and what comes next."""
    from biosqueeze.backends import available_specs, files_of

    checkpoint, metric = evaluation.checkpoint, evaluation.metric
    score = result["metrics"].get(metric)
    size = megabytes(files_of(checkpoint, result["backend"]))
    is_next_quantized = result["backend"].startswith("torch") and "onnxruntime:int8" not in available_specs(checkpoint)
    following: tuple[str, ...] = ("quantize" if is_next_quantized else "bench", str(checkpoint.path))
    if checkpoint.custom_head not in (None, *BESIDE_ENCODER):  # which neither of the two supports
        following = ("predict", str(checkpoint.path), "RECORDS.jsonl")
    return Summary(
        result=scored(metric, score, teacher) if teacher and score is not None else "",
        machine=f"{result['backend']} on {evaluation.inference.device}",
        size=f"{size:.1f} MB",
        next_words=following,
    )


def _show(result: Mapping[str, Any]) -> None:
    if not draws_tables():
        return
    note(f"{result['task']} on {data_shown(result)} ({result['split']}) with {result['backend']}:")
    rows = [
        (name, f"{value:,}" if isinstance(value, int) else f"{value:.4f}") for name, value in result["metrics"].items()
    ]
    table("", ("metric", "value"), rows)


def _rows(name: str, result: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Return a row for each score, with what it was measured on: the tables of several evaluations can be joined."""
    measured = {"checkpoint": name, **{key: result[key] for key in ("task", "data", "split", "backend")}}
    return tuple({**measured, "metric": metric, "value": value} for metric, value in result["metrics"].items())
