"""Which data an importance or a repair is calibrated on, checked before any weights are read. Torch-free."""

from dataclasses import dataclass
from typing import Any

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.output_types import OutputType
from biosqueeze.data.records.sample import take_sample
from biosqueeze.data.text.corpus import corpus_files
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.finetuning.finetuned_checkpoint import task_of
from biosqueeze.finetuning.label_names import NAMELESS
from biosqueeze.importance import Importance
from biosqueeze.models.custom_heads.files import is_fine_tuned, output_type_of, predicts_masked, task_head_in
from biosqueeze.tasks import Formulation, open_task
from biosqueeze.tasks.sniffing import guess, may_be_labelled

_CLASSIFIER = "sequence-classification"
_TAKES = (
    "--calibration takes text (.txt, .jsonl, .gz) or the directory of a task, with files such as train.tsv or "
    "train.jsonl"
)


@dataclass(frozen=True, kw_only=True)
class CalibrationRequest:
    """Where calibration data come from, and how much is read."""

    source: str
    """A task's data set, or a corpus."""
    task: str | None
    """The kind of task, where it is a labelled data set of the checkpoint's own task; None for text."""
    text_of: str | None = None
    """The kind of task of another labelled data set, of which only the text is read; None for a corpus."""
    output_type: OutputType
    """Of the checkpoint's head."""
    field: str
    """Of a JSONL record with the text."""
    tokens: int
    max_length: int
    """Tokens of a line of a corpus; examples of a task have the length of the fine-tuning."""
    seed: int

    @property
    def summary(self) -> str:
        """Say what is read, for the plan."""
        kind = "labelled examples" if self.task else "text of the examples" if self.text_of else "text"
        return f"calibrate on at most {self.tokens:,} tokens of {kind} from {self.source}"


def task_of_data(checkpoint: Checkpoint, source: str) -> str | None:
    """Return the kind of task that a checkpoint was fine-tuned on, if a source is a data set of it.

    Of a classifier without a record of its task, the data tell the kind.
    """
    if not is_fine_tuned(checkpoint):
        return None
    try:
        sample = take_sample(source)
        named = None if checkpoint.task or task_head_in(checkpoint) != _CLASSIFIER else _guessed(checkpoint, source)
        kind, task = task_of(checkpoint, named, "to calibrate")
        return kind if task.sniff(sample) > 0 and "train" in task.splits(source) else None
    except SqueezeError:  # another format: a corpus, or nothing that can be read
        return None


def _guessed(checkpoint: Checkpoint, source: str) -> str | None:
    """Return the kind of task that a source is certainly of, if a classifier has the outputs for it."""
    guessed = guess(source, Formulation(), has_option=False)
    kinds = ("similarity",) if len(checkpoint.labels) == 1 else ("classification", "relation", "nli")
    return guessed.kind if guessed.is_certain and guessed.kind in kinds else None


def check_source(checkpoint: Checkpoint, source: str) -> tuple[str | None, str | None]:
    """Return `task_of_data`, and the kind of task of other labelled data; neither where it is a corpus.

    Raises:
        SqueezeError: there is no such source, or it is none of these.
    """
    if task := task_of_data(checkpoint, source):
        return task, None
    problem = None
    if may_be_labelled(source):
        try:
            return None, _labelled_kind(source)
        except SqueezeError as error:
            problem = error
    try:
        corpus_files(source)
    except SqueezeError as error:
        raise problem or error from error
    return None, None


def _labelled_kind(source: str) -> str:
    """Return the kind of task of labelled data.

    Raises:
        SqueezeError: no kind reads them, or there are none to train on.
    """
    kind = guess(source, Formulation(), has_option=False).kind
    if "train" not in open_task(kind).splits(source):
        raise SqueezeError(f"{source} has no train split, which is what a cut is calibrated on; give other data")
    return kind


def fine_tuning_data(checkpoint: Checkpoint) -> str | None:
    """Return the data that a checkpoint was fine-tuned on, if it names them and they are still there."""
    data = checkpoint.task.data if checkpoint.task else None
    return data if data and task_of_data(checkpoint, data) else None


def open_request(options: Any, checkpoint: Checkpoint, flag: str, max_length: int) -> CalibrationRequest:
    """Return what is read for the options of a cut; by default the data of the checkpoint's fine-tuning.

    Args:
        options: `ImportanceOptions` with `field` and `seed`.
        checkpoint: that is cut.
        flag: the option that needs data.
        max_length: tokens of a line of text.

    Raises:
        UsageError: no data are given, and the checkpoint names none, or they are not here.
        SqueezeError: there are no such data, or the labels of the checkpoint's task have no names.
    """
    source = options.calibration or (checkpoint.task.data if checkpoint.task else None)
    if not source:
        raise UsageError(
            f"{flag} needs data, and {checkpoint.name} does not name those of a fine-tuning; give --calibration, a "
            "text file or the directory of its task"
        )
    try:
        task, text_of = check_source(checkpoint, source)
    except SqueezeError as error:
        if options.calibration:
            raise type(error)(f"{error}; {_TAKES}") from error
        raise UsageError(
            f"{flag} needs data, and the data of its fine-tuning, {source}, are not here; give --calibration, a text "
            "file or the directory of its task"
        ) from error
    if task and not checkpoint.labels and task_head_in(checkpoint) != "question-answering":
        raise SqueezeError(f"{checkpoint.name} {NAMELESS}")
    return CalibrationRequest(
        source=source,
        task=task,
        text_of=text_of,
        output_type=output_type_of(checkpoint),
        field=options.field,
        tokens=options.calibration_tokens,
        max_length=max_length,
        seed=options.seed,
    )


def has_loss(checkpoint: Checkpoint, request: CalibrationRequest) -> bool:
    """Return whether the calibration data give a loss: labels for the head, or masked tokens for one of pretraining."""
    return request.task is not None or predicts_masked(checkpoint)


def check_loss(name: str, importance: Importance, checkpoint: Checkpoint, request: CalibrationRequest) -> None:
    """Check that there is a loss where an importance needs one.

    Raises:
        UsageError: the data have no labels for the checkpoint's head.
    """
    if importance.NEEDS != "loss" or has_loss(checkpoint, request):
        return
    other = "wanda" if "neurons" in importance.SCORES else "block-influence"
    if not is_fine_tuned(checkpoint):
        raise UsageError(
            f"--importance {name} needs a loss, and {checkpoint.name} has no head that is trained on labels or on "
            f"masked tokens; give --importance {other}, which needs only text"
        )
    raise UsageError(
        f"--importance {name} needs the labels of the task, and {request.source} has none for {checkpoint.name}; give "
        f"the folder of its task to --calibration, or --importance {other}, which needs only text"
    )
