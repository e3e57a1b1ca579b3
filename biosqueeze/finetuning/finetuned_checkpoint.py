"""Task, head and sequence length of a fine-tuned checkpoint, for inference."""

from collections.abc import Sequence

from biosqueeze.benchmarks.suite import resolve_task
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.lengths import fitting_length
from biosqueeze.data.output_types import MULTI, SINGLE
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.finetuning.label_names import NAMELESS, check_tags
from biosqueeze.manifest import TaskRecord
from biosqueeze.models.custom_heads.files import task_head_in
from biosqueeze.progress import note_once
from biosqueeze.tasks import Task, open_task, with_pairs
from biosqueeze.tasks.encoding.entities import PairKind
from biosqueeze.tasks.encoding.tag_schemes import canonical_labels, scheme_of
from biosqueeze.tasks.formulation import Formulation, ReadingOptions

DEFAULT_LENGTH = 256
TAGGING = ("ner", "pico")
_KINDS = {"token-classification": "ner", "question-answering": "qa"}


def sequence_length(checkpoint: Checkpoint, max_length: int | None, positions: int) -> int:
    """Return the tokens in a sequence: --max-length, else that of the fine-tuning, else 256; at most `positions`."""
    if max_length:
        return fitting_length(max_length, positions)
    return min(recorded_length(checkpoint) or DEFAULT_LENGTH, positions)


def recorded_length(checkpoint: Checkpoint) -> int | None:
    """Return the sequence length of the fine-tuning, where the manifest has it."""
    return checkpoint.task.max_length if checkpoint.task else None


def task_of(
    checkpoint: Checkpoint, task: str | None, purpose: str, reading: ReadingOptions | None = None
) -> tuple[str, Task]:
    """Return the kind of task that a checkpoint was fine-tuned for, and the task with the same formulation.

    Args:
        checkpoint: fine-tuned; where it has no manifest, the kind of task follows from its head, if at all.
        task: name of a kind or of a named benchmark; None for the checkpoint's own.
        purpose: what cannot be done without a task ("to predict with").
        reading: options of reading that differ from the fine-tuning.

    Raises:
        SqueezeError: it has no task head.
        UsageError: its head fits several kinds and none is named, or the kind cannot be read with these options.
    """
    name = _kind(checkpoint, task, purpose)
    recorded = record_of(checkpoint, name)
    default_scheme = _labels_of_a_text(checkpoint) if name == "classification" else ""
    if name in TAGGING and checkpoint.labels:
        default_scheme = scheme_of(checkpoint.labels)
    scheme = (recorded and recorded.scheme) or default_scheme
    formulation = Formulation.from_manifest(recorded.formulation if recorded else {})
    opened = open_task(name, formulation.with_reading_options(reading) if reading else formulation, scheme)
    return name, with_pairs(opened, tuple(PairKind(*pair) for pair in recorded.pairs) if recorded else ())


def _labels_of_a_text(checkpoint: Checkpoint) -> str:
    """Return the output type of a classifier by its config.json; say what is assumed where that does not tell."""
    problem_type = checkpoint.config.get("problem_type")
    if problem_type is None and checkpoint.task is None:
        note_once(
            checkpoint.path,
            f"{checkpoint.name}: config.json has no problem_type, so a text has one label; if it has any number: "
            f"biosqueeze relabel {checkpoint.quoted_name} --multi-label",
        )
    return (MULTI if problem_type == MULTI.problem_type else SINGLE).name


def trained_on_dev(checkpoint: Checkpoint) -> bool:
    """Return whether a fine-tuning of the checkpoint, or of an ancestor, trained on a dev split (--with-dev).

    Its score on dev, before any further training, is then no estimate that later ones can be compared with.
    """
    entries = checkpoint.manifest.history if checkpoint.manifest else ()
    return any(entry.stage == "finetune" and entry.options.get("with_dev") for entry in entries)


def record_of(checkpoint: Checkpoint, name: str) -> TaskRecord | None:
    """Return what the manifest says of the fine-tuning, where that was on this kind of task."""
    return checkpoint.task if checkpoint.task and checkpoint.task.name == name else None


def unknown_labels(labels: Sequence[str], model_labels: Sequence[str]) -> list[str]:
    """Return the labels of data that a model does not have; tags may be spelled in either way, see `split_tag`."""
    known = canonical_labels(model_labels)
    return [label for label in labels if label not in known]


def _kind(checkpoint: Checkpoint, task: str | None, purpose: str) -> str:
    recorded = task or (checkpoint.task and checkpoint.task.name)
    if recorded:
        return resolve_task(recorded)[0]
    head = task_head_in(checkpoint)
    if head in _KINDS:
        return _KINDS[head]
    if head == "sequence-classification":
        raise UsageError(
            f"{checkpoint.name} has no record of the task that it was fine-tuned on; "
            "give --task classification, relation, nli or similarity"
        )
    raise missing_head_error(checkpoint, "task", "ner", purpose)


def missing_head_error(checkpoint: Checkpoint, head: str, task: str, purpose: str) -> SqueezeError:
    """Return the error for a checkpoint without a head: `purpose` is what cannot be done ("to score")."""
    return SqueezeError(
        f"{checkpoint.name} has no trained {head} head, so there is nothing {purpose}; "
        f"first: biosqueeze finetune {checkpoint.quoted_name} --task {task} --data DIRECTORY"
    )


def check_head(checkpoint: Checkpoint, head: str, task: str, purpose: str) -> None:
    """Check that the weights, and not only config.json, have a head for the task, and that its labels have names.

    Raises:
        SqueezeError: the head or the names are missing.
    """
    if task_head_in(checkpoint) != head:
        raise missing_head_error(checkpoint, head, task, purpose)
    if head != "question-answering" and not checkpoint.labels:
        raise SqueezeError(f"{checkpoint.name} {NAMELESS}")
    if head == "token-classification":
        check_tags(checkpoint)
