"""What a fine-tuned checkpoint must bring along before it is scored or asked."""

from biosqueeze.benchmarks.suite import resolve
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.output_types import MULTI, SINGLE
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.model_facts import head_of
from biosqueeze.models.custom_heads import task_head_in
from biosqueeze.tasks import Task, open_task
from biosqueeze.tasks.formulation import Formulation, ReadingOptions

USUAL_LENGTH = 256
_KINDS = {"token-classification": "ner", "question-answering": "qa"}


def sequence_length(checkpoint: Checkpoint, asked: int | None, positions: int) -> int:
    """Tokens in a sequence: as asked for, else as in the fine-tuning, else 256; never more than the model takes."""
    return min(asked or recorded_length(checkpoint) or USUAL_LENGTH, positions)


def recorded_length(checkpoint: Checkpoint) -> int | None:
    """Tokens in a sequence in the fine-tuning, where the checkpoint says it."""
    return checkpoint.task.max_length if checkpoint.task else None


def task_of(
    checkpoint: Checkpoint, asked: str | None, purpose: str, reading: ReadingOptions | None = None
) -> tuple[str, Task]:
    """The kind that a checkpoint was fine-tuned for, and the task as it was posed.

    Args:
        checkpoint: fine-tuned; one that is not from biosqueeze says its kind by its head, or not at all.
        asked: name of a kind or of a named benchmark; None for the checkpoint's own.
        purpose: what cannot be done without a task ("to predict with").
        reading: how the data are read, where that is not as in the fine-tuning.

    Raises:
        SqueezeError: it has no head of a task.
        UsageError: its head fits several kinds and none is named, or the kind is not read so.
    """
    name = _kind(checkpoint, asked, purpose)
    recorded = checkpoint.task if checkpoint.task and checkpoint.task.name == name else None
    several = checkpoint.config.get("problem_type") == MULTI.problem_type
    unrecorded = (MULTI if several else SINGLE).name if name == "classification" else ""
    scheme = recorded.scheme or "" if recorded else unrecorded
    form = Formulation.noted(recorded.formulation if recorded else {})
    return name, open_task(name, form.with_reading(reading) if reading else form, scheme)


def _kind(checkpoint: Checkpoint, asked: str | None, purpose: str) -> str:
    head = head_of(checkpoint.config)
    name = asked or (checkpoint.task.name if checkpoint.task else _KINDS.get(head))
    if name is not None:
        return resolve(name)[0]
    if head == "sequence-classification":
        raise UsageError(
            f"{checkpoint.name} does not say which task it was fine-tuned on; "
            "give --task classification, relation, nli or similarity"
        )
    raise missing_head_error(checkpoint, "task", "ner", purpose)


def missing_head_error(checkpoint: Checkpoint, head: str, task: str, purpose: str) -> SqueezeError:
    """The error for a checkpoint without a head: `purpose` is what cannot be done ("to score")."""
    return SqueezeError(
        f"{checkpoint.name} has no trained {head} head, so there is nothing {purpose}; "
        f"first: biosqueeze finetune {checkpoint.name} --task {task} --data DIRECTORY"
    )


def check_head(checkpoint: Checkpoint, head: str, task: str, purpose: str) -> None:
    """The weights, and not only config.json, must hold a head of the task's kind, with names for its labels.

    Raises:
        SqueezeError: they do not.
    """
    if task_head_in(checkpoint) != head:
        raise missing_head_error(checkpoint, head, task, purpose)
    if head != "question-answering" and not checkpoint.labels:
        raise SqueezeError(
            f"{checkpoint.name} does not name its labels (id2label in config.json is missing or says LABEL_0, ...); "
            "add the names there, in the order of the training"
        )
