"""Open the checkpoints of teachers and student before anything heavy is loaded. Torch-free."""

from collections.abc import Sequence
from dataclasses import dataclass

from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.errors import UsageError
from biosqueeze.model_facts import head_of
from biosqueeze.models.custom_heads.files import check_custom_head, has_cosine

TASK_HEADS = ("token-classification", "sequence-classification", "question-answering")


@dataclass(frozen=True)
class DistillationInputs:
    """The checkpoints of a distillation, and its kind."""

    teachers: tuple[Checkpoint, ...]
    student: Checkpoint | None  # None: built from the first teacher by a preset
    kind: str  # "mlm" for plain encoders, "task" for fine-tuned teachers

    @property
    def teacher(self) -> Checkpoint:
        """The first teacher: a student is built from it, and its task is the student's."""
        return self.teachers[0]

    @property
    def has_task(self) -> bool:
        """Whether the teachers are fine-tuned on a task."""
        return self.kind == "task"

    @property
    def parent(self) -> Checkpoint:
        """The checkpoint that the output is made from: the student, or the teacher that it is built from."""
        return self.student or self.teacher


def open_inputs(teachers: Sequence[str], student: str | None, *, weights: bool) -> DistillationInputs:
    """Open the checkpoints.

    Args:
        teachers: directories or Hub ids.
        student: directory or Hub id; None for a preset.
        weights: False fetches only the small files from the Hub.

    Raises:
        UsageError: fine-tuned teachers are mixed with plain encoders, or with those of another representation.
        SqueezeError: a checkpoint does not exist, is damaged, or has a custom head that is not supported.
    """
    opened = tuple(open_checkpoint(name, weights=weights) for name in teachers)
    student_checkpoint = open_checkpoint(student, weights=weights) if student else None
    for checkpoint in (*opened, *([student_checkpoint] if student_checkpoint else [])):
        # The logits of a CRF head are not its predictions.
        check_custom_head(checkpoint, "distill", allowed=("cosine",))
    return DistillationInputs(opened, student_checkpoint, _kind(opened))


def _kind(teachers: tuple[Checkpoint, ...]) -> str:
    tuned = [teacher for teacher in teachers if has_cosine(teacher) or head_of(teacher.config) in TASK_HEADS]
    if tuned and len(tuned) < len(teachers):
        plain = next(teacher for teacher in teachers if teacher not in tuned)
        raise UsageError(f"{tuned[0].name} is fine-tuned on a task and {plain.name} is not; give teachers of one kind")
    compared = [teacher for teacher in tuned if has_cosine(teacher)]
    if compared and len(compared) < len(tuned):
        other = next(teacher for teacher in tuned if teacher not in compared)
        raise UsageError(
            f"{compared[0].name} encodes two texts separately (--representation cosine) and {other.name} encodes them "
            "together; give teachers of one representation"
        )
    return "task" if tuned else "mlm"
