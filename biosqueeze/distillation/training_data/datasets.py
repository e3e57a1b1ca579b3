"""Training data of a distillation: masked text, or labelled examples of a task mixed with unlabelled ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from biosqueeze.data.collate import Features
from biosqueeze.data.sampling import hold_out
from biosqueeze.data.text.corpus import DEMO, corpus_files
from biosqueeze.data.text.prepared import DocumentText, prepare_corpus
from biosqueeze.distillation.models import DistillationModels
from biosqueeze.distillation.request import DataSettings
from biosqueeze.distillation.teachers.cross_vocabulary import CrossVocabularyTeachers
from biosqueeze.distillation.training_data.augmentation import Augmentation
from biosqueeze.distillation.training_data.text_strata import LabelPredictor, text_strata
from biosqueeze.distillation.training_data.unlabelled import read_unlabelled, read_with_teacher_outputs
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.finetuning.dev_evaluation import DevSet
from biosqueeze.finetuning.finetuned_checkpoint import unknown_labels
from biosqueeze.finetuning.label_names import NAMELESS
from biosqueeze.models.int8_products import with_int8_products
from biosqueeze.progress import note, warn
from biosqueeze.system import processes
from biosqueeze.tasks import Dataset
from biosqueeze.training.batches import ItemSource
from biosqueeze.training.options import TrainingOptions
from biosqueeze.training.precision import precision_of, teacher_precision_of
from biosqueeze.training.sources import Blocks, MaskedBlocks, Mixture, Stratum


@dataclass(frozen=True)
class TrainingData:
    """The data that are trained on, and the dev split that the best checkpoint is chosen by."""

    source: ItemSource
    dev: DevSet | None = None

    @property
    def labelled(self) -> Mixture | None:
        """The labelled data alone, if there are any."""
        if not isinstance(self.source, Mixture) or not self.source.labelled:
            return None
        return replace(self.source, unlabelled=None, ratio=0.0)

    @property
    def content(self) -> Any:
        """The data before masking, which identify a training to resume."""
        return self.source.blocks if isinstance(self.source, MaskedBlocks) else self.source


@dataclass(frozen=True)
class TaskDataBuilder:
    """Reads and encodes the training data of a task."""

    settings: DataSettings
    models: DistillationModels
    training: TrainingOptions
    augment: Augmentation | None = None
    cross_vocabulary: CrossVocabularyTeachers | None = None  # run on all data in advance

    def build(self) -> TrainingData:
        """Read labelled and unlabelled data.

        Raises:
            SqueezeError: a source cannot be read, or does not fit the task.
            UsageError: an option has no effect on this task.
        """
        settings, models = self.settings, self.models
        check_data_options(settings, str(models.task_name), reads_plain_text=models.reads_plain_text)
        labelled, dev = self._labelled(settings.data) if settings.data else ([], None)
        unlabelled: Blocks | None = None
        if settings.corpus and self.cross_vocabulary:
            unlabelled = read_with_teacher_outputs(
                self.cross_vocabulary, settings, models, self.training, len(labelled)
            )
        elif settings.corpus:
            unlabelled = read_unlabelled(settings, models, labelled)
        padding = int(models.tokenizer.pad_token_id)
        mixture = Mixture(labelled, unlabelled, settings.unlabelled, padding)
        return TrainingData(replace(mixture, strata=self._strata(mixture)), dev)

    def _strata(self, mixture: Mixture) -> tuple[Stratum, ...] | None:
        """Divide the unlabelled text by what the first teacher predicts, where there are classes to compare."""
        models, text = self.models, mixture.unlabelled
        wanted = round(mixture.ratio * len(mixture.labelled))
        if not (wanted and text and models.output_type.has_classes) or self.cross_vocabulary:
            return None
        if processes.count() > 1:  # a prediction that differs in its last bit would give them different batches
            note("unlabelled text: several processes draw it uniformly")
            return None
        in_int8 = teacher_precision_of(self.training) == "int8"
        teacher = LabelPredictor(
            with_int8_products(models.teachers[0]) if in_int8 else models.teachers[0],
            models.output_type,
            mixture.pad_token_id,
            models.tokenizer.all_special_ids,
            precision_of(self.training),
        )
        return text_strata(teacher, mixture.labelled, text, wanted, self.settings.seed)

    def _labelled(self, data: str) -> tuple[list[Features], DevSet]:
        """Encode the labelled data with their augmented variants, and the dev split."""
        models, share = self.models, self.settings.dev_share
        task, padding = models.known_task, int(models.tokenizer.pad_token_id)
        dataset = task.read(data, ("train",) if share else ("train", "dev"))
        check_data_labels(models.labels, dataset, data)
        train = dataset.splits["train"]
        train, dev = hold_out(train, share, self.settings.seed) if share else (train, dataset.splits["dev"])
        if share:
            note(f"{len(dev):,} examples of train are held out as dev, {len(train):,} are left")
        examples = [*train, *(self.augment(train) if self.augment else ())]
        windows, dev_windows = (
            task.encode(split, models.labels, models.tokenizer, models.length) for split in (examples, dev)
        )
        features = (
            self.cross_vocabulary.add_outputs(examples, windows, "the labelled examples")
            if self.cross_vocabulary
            else [window.features for window in windows]
        )
        return features, DevSet(task, dev, dev_windows, models.labels, padding)


def check_data_options(settings: DataSettings, kind: str, *, reads_plain_text: bool) -> None:
    """Check that --field and --column have an effect.

    Args:
        settings: where the training data come from.
        kind: of the task.
        reads_plain_text: whether any text will do as unlabelled data.

    Raises:
        UsageError: one has none.
    """
    if settings.field != DataSettings.field and not reads_plain_text:
        raise UsageError(f"--field: records of the task {kind} have their own fields; leave it out")
    if settings.has_columns and not settings.data and reads_plain_text:
        raise UsageError("--column is about labelled examples; give --data with them, or --field for a JSONL --corpus")


def load_masked_text(settings: DataSettings, models: DistillationModels) -> TrainingData:
    """Read and tokenize the corpus for masked language modelling; a generated sample without --corpus.

    Raises:
        SqueezeError: the corpus cannot be read, or the tokenizer has no mask token.
    """
    if models.tokenizer.mask_token_id is None:
        raise SqueezeError("the tokenizer has no mask token, so no text can be masked; take a teacher that has one")
    sources, tokenizer, length = _corpus_or_sample(settings.corpus), models.tokenizer, models.length
    if settings.documents:
        text = DocumentText(tuple((source, corpus_files(source)) for source in sources), settings.field)
        blocks = text.joined(tokenizer, length, pack=models.packs)
    else:
        blocks = prepare_corpus(sources, settings.field, tokenizer, length, pack=models.packs)
    return TrainingData(MaskedBlocks.of(blocks, models.tokenizer, settings.mask_rate, settings.mask_unit))


def _corpus_or_sample(corpus: Sequence[str]) -> Sequence[str]:
    if corpus:
        return corpus
    warn(
        "no --corpus was given: training on a small sample that biosqueeze generates, which tests that everything runs "
        "and gives no useful student. Make a corpus, as in `biosqueeze corpus pubmed26n0001.xml.gz --out pubmed` "
        "(files: https://ftp.ncbi.nlm.nih.gov/pubmed/baseline), and give --corpus pubmed"
    )
    return (DEMO,)


def check_data_labels(labels: Sequence[str], data: Dataset, source: str) -> None:
    """Check that the teacher has every label of the data.

    Raises:
        SqueezeError: it lacks one, or the names of all.
    """
    if data.labels and not labels:
        raise SqueezeError(f"the teacher {NAMELESS}")
    unknown = unknown_labels(data.labels, labels)
    if unknown:
        raise SqueezeError(
            f"{source} has the labels {', '.join(unknown)}, but the teacher has only {', '.join(labels)}; "
            "distil on the data that it was fine-tuned on"
        )
