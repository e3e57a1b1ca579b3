"""What a student is taught from: labelled examples, and text or records whose truth only the teacher knows."""

import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from biosqueeze import processes
from biosqueeze.data.collate import Features
from biosqueeze.data.corpus import corpus_files, find_corpus, read_lines
from biosqueeze.data.incoming import open_input
from biosqueeze.data.output_types import OutputType
from biosqueeze.data.prepared import prepare_corpus
from biosqueeze.data.sampling import hold_out
from biosqueeze.distillation.augmentation import Augmentation
from biosqueeze.distillation.cross_vocabulary import CrossVocabularyTeachers
from biosqueeze.distillation.models import DistillationModels
from biosqueeze.distillation.options import DistillationOptions
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.finetuning.dev_evaluation import DevSet
from biosqueeze.progress import note, track
from biosqueeze.tasks import Dataset, Task
from biosqueeze.training.batches import ItemSource
from biosqueeze.training.sources import Blocks, Ids, MaskedBlocks, Mixture

# Kinds that read one text and nothing else: any text will do. The others are posed from JSON records.
_PLAIN = ("ner", "pico", "classification")
_RECORDS_AT_ONCE = 1024

Judge = Callable[[PreTrainedModel], dict[str, float]]


@dataclass(frozen=True)
class UnlabelledBlocks:
    """Unlabelled blocks in the form of labelled examples, the truth left open."""

    blocks: Blocks
    output_type: OutputType
    classes: int
    token_types: bool

    def __len__(self) -> int:
        """How many there are."""
        return len(self.blocks)

    def lengths_of(self, items: Ids) -> Ids:
        """Their lengths in tokens, (items,)."""
        return self.blocks.lengths_of(items)

    def features(self, item: int) -> Features:
        """What the block has, and the truth of nobody knows what."""
        block = self.blocks.features(item)
        types = {"token_type_ids": np.zeros_like(block["input_ids"])} if self.token_types else {}
        return {**block, **types, **self.output_type.unlabelled(len(block["input_ids"]), self.classes)}


@dataclass(frozen=True)
class Posed:
    """Unlabelled examples that were made from records."""

    items: Sequence[Features]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.items)

    def lengths_of(self, items: Ids) -> Ids:
        """Their lengths in tokens, (items,)."""
        return np.array([len(self.items[item]["input_ids"]) for item in items], dtype=np.int64)

    def features(self, item: int) -> Features:
        """One of them."""
        return self.items[item]


@dataclass(frozen=True)
class TrainingData:
    """What is trained on, and by what the best checkpoint is chosen."""

    source: ItemSource
    dev: DevSet | None = None

    @property
    def labelled(self) -> Mixture | None:
        """The labelled data alone, where there are any."""
        if not isinstance(self.source, Mixture) or not self.source.labelled:
            return None
        return replace(self.source, unlabelled=None, ratio=0.0)

    @property
    def content(self) -> Any:
        """What is read, whatever is masked of it."""
        return self.source.blocks if isinstance(self.source, MaskedBlocks) else self.source

    def judge(self, precision: str) -> Judge | None:
        """A function that scores a model on dev, where there are labelled data."""
        return self.dev.evaluator(precision) if self.dev else None


@dataclass(frozen=True)
class DataSources:
    """Where the lessons come from."""

    corpus: Sequence[str] = ()  # unlabelled text
    field: str = "text"  # of a JSONL corpus
    data: str | None = None  # labelled data of the task
    augment: Augmentation | None = None  # makes more examples of these
    foreigners: CrossVocabularyTeachers | None = (
        None  # teachers that read other tokens, asked about everything before the training
    )


def load_training_data(
    options: DistillationOptions, pairing: DistillationModels, material: DataSources
) -> TrainingData:
    """Read all that is trained on.

    Raises:
        SqueezeError: something cannot be read, or does not fit the task.
    """
    if pairing.task is None:
        if pairing.tokenizer.mask_token_id is None:
            raise SqueezeError("the tokenizer has no mask token, so no text can be masked; take a teacher that has one")
        blocks = prepare_corpus(material.corpus, material.field, pairing.tokenizer, pairing.length, pack=pairing.packs)
        return TrainingData(MaskedBlocks.of(blocks, pairing.tokenizer, options.mask_rate))
    if material.field != DataSources.field and pairing.task_name not in _PLAIN:
        raise UsageError(f"--field: records of the task {pairing.task_name} have fields of their own; leave it out")
    if options.column and not material.data and pairing.task_name in _PLAIN:
        raise UsageError("--column is about labelled examples; give --data with them, or --field for a JSONL --corpus")
    labelled, dev = _labelled(options, pairing, material.data, material) if material.data else ([], None)
    unlabelled: Blocks | None = None
    if material.corpus and material.foreigners:
        sample = _sample(options, pairing, material, len(labelled))
        unlabelled = _answered_by(material.foreigners, pairing, sample)
    elif material.corpus:
        unlabelled = _unlabelled(pairing, material, labelled)
    return TrainingData(Mixture(labelled, unlabelled, options.unlabelled, int(pairing.tokenizer.pad_token_id)), dev)


def _labelled(
    options: DistillationOptions, pairing: DistillationModels, data: str, material: DataSources
) -> tuple[list[Features], DevSet]:
    task, share = _task(pairing), options.dev_share
    read = task.read(data, ("train",) if share else ("train", "dev"))
    _check_labels(pairing, read, data)
    train = read.splits["train"]
    train, dev = hold_out(train, share, options.seed) if share else (train, read.splits["dev"])
    more = material.augment(train) if material.augment else ()
    examples = [*train, *more]
    windows, judged = (
        task.encode(split, pairing.labels, pairing.tokenizer, pairing.length) for split in (examples, dev)
    )
    features = (
        material.foreigners.answered(examples, windows, "the labelled examples")
        if material.foreigners
        else [window.features for window in windows]
    )
    return features, DevSet(task, dev, judged, pairing.labels, int(pairing.tokenizer.pad_token_id))


def _check_labels(pairing: DistillationModels, data: Dataset, source: str) -> None:
    strange = [label for label in data.labels if pairing.labels and label not in pairing.labels]
    if strange:
        raise SqueezeError(
            f"{source} has the labels {', '.join(strange)}, but the teacher knows only {', '.join(pairing.labels)}; "
            "distil on the data that it was fine-tuned on"
        )


def _task(pairing: DistillationModels) -> Task:
    if pairing.task is None:
        raise ValueError("there is no task without a teacher that has one")
    return pairing.task


def _unlabelled(pairing: DistillationModels, material: DataSources, labelled: Sequence[Features]) -> Blocks:
    """Text for kinds that read one, records for the others."""
    if pairing.task_name in _PLAIN:
        blocks = prepare_corpus(material.corpus, material.field, pairing.tokenizer, pairing.length, pack=False)
        types = bool(labelled) and "token_type_ids" in labelled[0]
        return UnlabelledBlocks(blocks, pairing.output_type, len(pairing.labels), types)
    return Posed(_posed_features(pairing, material.corpus))


def _sample(
    options: DistillationOptions, pairing: DistillationModels, material: DataSources, labelled: int
) -> list[Any]:
    """As many unlabelled examples as the training will see, drawn with the seed; all where the corpus has no more."""
    task, rng = _task(pairing), random.Random(options.seed)
    wanted, kept = _needed(options, labelled), list[Any]()
    with track("read the unlabelled text") as progress:
        for number, example in enumerate(_examples(pairing, task, material)):
            if number < wanted:
                kept.append(example)
            elif (place := rng.randrange(number + 1)) < wanted:  # each of those so far is kept with the same chance
                kept[place] = example
            progress.advance()
    note(f"unlabelled: {len(kept):,} examples of {', '.join(material.corpus)}")
    return kept


def _examples(pairing: DistillationModels, task: Task, material: DataSources) -> Iterator[Any]:
    for source in material.corpus:
        if pairing.task_name in _PLAIN:
            plain = _without_columns(task)
            yield from (plain.pose({"text": line}) for line in read_lines(source, material.field))
        else:
            yield from _records(source, task)


def _needed(options: DistillationOptions, labelled: int) -> int:
    """Unlabelled examples that come in the whole training of all processes."""
    if options.steps is None:
        return math.ceil(options.epochs * labelled * options.unlabelled) if labelled else sys.maxsize
    seen = options.steps * options.batch_size * options.accumulate * processes.count()
    return math.ceil(seen * options.unlabelled / (1 + options.unlabelled)) if labelled else seen


def _answered_by(
    foreigners: CrossVocabularyTeachers, pairing: DistillationModels, examples: Sequence[Any]
) -> Blocks | None:
    if not examples:
        return None
    windows = _task(pairing).encode(examples, pairing.labels, pairing.tokenizer, pairing.length)
    answered = foreigners.answered(examples, windows, "the unlabelled text")
    classes = len(pairing.labels)
    return Posed([{**f, **pairing.output_type.unlabelled(len(f["input_ids"]), classes)} for f in answered])


def _posed_features(pairing: DistillationModels, corpus: Sequence[str]) -> list[Features]:
    task, features = _task(pairing), list[Features]()
    with track("read the unlabelled records") as progress:
        for source in corpus:
            for records in _batches(_records(source, task)):
                for window in task.encode(records, pairing.labels, pairing.tokenizer, pairing.length):
                    given = window.features
                    truth = pairing.output_type.unlabelled(len(given["input_ids"]), len(pairing.labels))
                    features.append({**given, **truth})
                progress.advance(len(records))
    note(f"unlabelled: {len(features):,} sequences of {', '.join(corpus)}")
    return features


def _records(source: str, task: Task) -> Iterator[Any]:
    if find_corpus(source) is None:
        raise SqueezeError(
            f"{source} is plain text, but this task reads more than one text; give JSON lines with its fields as "
            "--corpus"
        )
    plain = _without_columns(task)
    for path in corpus_files(source):
        opened = open_input(str(path))
        if opened.format != "jsonl":
            raise SqueezeError(
                f"{path} is plain text, but this task reads more than one text; give JSON lines with its fields, as "
                "biosqueeze predict reads them"
            )
        for incoming in opened.records:
            if incoming.error:
                raise SqueezeError(incoming.error)
            try:
                yield task.pose(incoming.values)
            except SqueezeError:  # it may have the usual names
                yield plain.pose(incoming.values)


def _without_columns(task: Task) -> Task:
    """The task that reads fields by their usual names: the columns that are said are those of the labelled data."""
    return replace(task, form=replace(task.form, column=()))  # type: ignore[type-var] # every Kind is a dataclass


def _batches(examples: Iterator[Any]) -> Iterator[list[Any]]:
    while batch := list(islice(examples, _RECORDS_AT_ONCE)):
        yield batch
