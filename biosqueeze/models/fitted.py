"""What a fine-tuned checkpoint must bring along before it is scored or asked."""

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.models.custom import task_head_in

USUAL_LENGTH = 256


def length_for(checkpoint: Checkpoint, asked: int | None, positions: int) -> int:
    """Tokens in a sequence: as asked for, else as in the fine-tuning, else 256; never more than the model takes."""
    noted = ((checkpoint.manifest or {}).get("task") or {}).get("max_length")
    return min(asked or int(noted or USUAL_LENGTH), positions)


def no_head(checkpoint: Checkpoint, head: str, task: str, purpose: str) -> SqueezeError:
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
        raise no_head(checkpoint, head, task, purpose)
    if head != "question-answering" and not checkpoint.labels:
        raise SqueezeError(
            f"{checkpoint.name} does not name its labels (id2label in config.json is missing or says LABEL_0, ...); "
            "add the names there, in the order of the training"
        )
