"""Settings of a distillation, grouped by the step that reads them; see the package's docstring. Torch-free."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.text.mask_rate import MaskUnit
from biosqueeze.distillation.losses.presets import Projection
from biosqueeze.distillation.options import DistillationOptions
from biosqueeze.tasks.formulation import ReadingOptions
from biosqueeze.training.options import TrainingOptions

# Options that may differ on --resume: their content is compared instead, or does not matter.
UNCOMPARED_ON_RESUME = ("checkpoint", "teacher", "data", "corpus", "cache_teacher")


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Which models are loaded; the first teacher's tokenizer and labels are the student's."""

    kind: str  # "mlm" or "task"
    teachers: Sequence[Checkpoint]
    student: Checkpoint | str  # a checkpoint, or the name of a preset that is built from the first teacher
    task: str | None = None  # kind of task, where the teacher does not record it
    reading: ReadingOptions = field(default_factory=ReadingOptions)  # how labelled data are read
    max_length: int = 128
    seed: int = 0

    @property
    def student_name(self) -> str:
        """The name of the student's checkpoint or preset."""
        return self.student if isinstance(self.student, str) else self.student.name

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """All input checkpoints: the teachers, and the student if it is one."""
        return (*self.teachers, *([] if isinstance(self.student, str) else [self.student]))


@dataclass(frozen=True, kw_only=True)
class LossSettings:
    """--loss and the options that go with it."""

    loss: tuple[str, ...] = ()  # NAME or NAME=WEIGHT; the default if empty
    default: str | None = None  # loss preset of the student's paper; None: the default of the kind
    left_out: tuple[str, ...] = ()  # default losses that cannot be computed
    temperature: float | None = None
    layer_map: str | None = None
    layer_weights: str | None = None
    projection: Projection | None = None
    relation_heads: int | None = None
    dropout: float | None = None

    @classmethod
    def of(cls, options: DistillationOptions, default: str | None = None) -> Self:
        """Select the options of the losses."""
        return cls(
            loss=options.loss,
            default=default,
            temperature=options.temperature,
            layer_map=options.layer_map,
            layer_weights=options.layer_weights,
            projection=options.projection,
            relation_heads=options.relation_heads,
            dropout=options.dropout,
        )


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Where the training data come from, and how they are sampled."""

    corpus: tuple[str, ...] = ()  # unlabelled text
    field: str = "text"  # of a JSONL corpus
    documents: bool = False  # whether lines of a document are joined
    data: str | None = None  # labelled data of the task
    dev_share: float | None = None
    unlabelled: float = 1.0  # unlabelled sequences for each labelled one
    mask_rate: float = 0.15
    mask_unit: MaskUnit = "piece"
    has_columns: bool = False  # whether --column names the columns of labelled data
    seed: int = 0


@dataclass(frozen=True)
class AugmentationSettings:
    """--augment: variants of labelled examples."""

    copies: int
    checkpoint: str | None = None  # the masked language model; what the teacher was fine-tuned from if None
    seed: int = 0

    @classmethod
    def of(cls, options: DistillationOptions) -> Self | None:
        """Select the options of augmentation; None without --augment."""
        return cls(options.augment, options.augment_with, options.seed) if options.augment else None


@dataclass(frozen=True)
class CacheSettings:
    """--cache-teacher: where teacher outputs are stored, and how much of them."""

    directory: str
    top: int | None = None  # most probable tokens of each masked position
    mask_rate: float = 0.15

    @classmethod
    def of(cls, options: DistillationOptions) -> Self | None:
        """Select the options of the cache; None without --cache-teacher."""
        return cls(options.cache_teacher, options.cache_top, options.mask_rate) if options.cache_teacher else None


@dataclass(frozen=True, kw_only=True)
class DistillationRequest:
    """The settings of all steps, for `pipeline.distill`."""

    models: ModelSettings
    teacher_weights: Sequence[float]
    losses: LossSettings
    data: DataSettings
    training: TrainingOptions
    maskings: int | None = None  # number of maskings of a text that repeat; None is a new one in each epoch
    augmentation: AugmentationSettings | None = None
    cache: CacheSettings | None = None
    head_steps: int | None = None  # --fit-head
    warm_epochs: float | None = None  # of --warm-start finetune
