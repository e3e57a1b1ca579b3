"""Unlabelled training data of a task: text or JSON records, encoded like labelled examples with unknown labels."""

import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from biosqueeze.data.collate import Features
from biosqueeze.data.feature_keys import INPUT_IDS
from biosqueeze.data.output_types import OutputType
from biosqueeze.data.records.hub import is_hub
from biosqueeze.data.records.incoming import open_input
from biosqueeze.data.text.corpus import corpus_files, find_corpus, is_stream, read_lines
from biosqueeze.data.text.hub_corpus import HubCorpus
from biosqueeze.data.text.prepared import DocumentText, prepare_corpus
from biosqueeze.data.text.prepared_documents import Documents
from biosqueeze.distillation.models import DistillationModels
from biosqueeze.distillation.request import DataSettings
from biosqueeze.distillation.teachers.cross_vocabulary import CrossVocabularyTeachers
from biosqueeze.errors import SqueezeError
from biosqueeze.progress import note, quietly, track
from biosqueeze.system import processes
from biosqueeze.tasks import Task, with_columns
from biosqueeze.tasks.encoding.entities import Passage
from biosqueeze.tasks.encoding.sequences import side_by_side
from biosqueeze.training.options import TrainingOptions
from biosqueeze.training.sources import Blocks, Ids

_RECORD = "the record"  # how the errors of the tasks name a record
_RECORDS_AT_ONCE = 1024
_MEASURED = 1_000  # lines of each source whose lengths are looked at


@dataclass(frozen=True)
class UnlabelledBlocks:
    """Blocks of plain text with the features of labelled examples, the labels unknown."""

    blocks: Blocks
    output_type: OutputType
    classes: int
    token_types: bool

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self.blocks)

    def lengths_of(self, items: Ids) -> Ids:
        """Return their lengths in tokens, (items,)."""
        return self.blocks.lengths_of(items)

    def features(self, item: int) -> Features:
        """Return the features of a block, with unknown labels."""
        block = self.blocks.features(item)
        types = {"token_type_ids": np.zeros_like(block["input_ids"])} if self.token_types else {}
        return {**block, **types, **self.output_type.unlabelled(len(block["input_ids"]), self.classes)}


@dataclass(frozen=True)
class UnlabelledPairs:
    """Pairs of consecutive sentences, each encoded separately, the score unknown.

    Neighbours in a document are related, and the last sentence of one and the first of the next are not.
    """

    documents: Documents
    length: int  # tokens of a sentence at most, special tokens included
    output_type: OutputType

    def __len__(self) -> int:
        """Return the number of pairs."""
        return self.documents.sentences // 2

    @property
    def room(self) -> int:
        """Tokens of a sentence at most, without the special tokens."""
        return self.length - len(self.documents.corpus.frame)

    @property
    def cut(self) -> int:
        """The number of sentences that lose their end."""
        return int((np.diff(self.documents.edges) > self.room).sum())

    def lengths_of(self, items: Ids) -> Ids:
        """Return the lengths of both sentences together in tokens, (items,)."""
        edges, frame = self.documents.edges, len(self.documents.corpus.frame)
        firsts = np.stack([2 * items, 2 * items + 1])  # (2, items)
        lengths: Ids = (np.minimum(edges[firsts + 1] - edges[firsts], self.room) + frame).sum(axis=0)
        return lengths

    def features(self, item: int) -> Features:
        """Return the features of a pair."""
        pair = side_by_side(*(self._sentence(number) for number in (2 * item, 2 * item + 1)))
        return {**pair, **self.output_type.unlabelled(len(pair[INPUT_IDS]), 1)}

    def _sentence(self, number: int) -> Features:
        ids = self.documents.tokens(number, number + 1)[: self.room]
        return {INPUT_IDS: self.documents.corpus.frame.around(ids)}


@dataclass(frozen=True)
class UnlabelledExamples:
    """Encoded examples without labels."""

    items: Sequence[Features]

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.items)

    def lengths_of(self, items: Ids) -> Ids:
        """Return their lengths in tokens, (items,)."""
        return np.array([len(self.items[item]["input_ids"]) for item in items], dtype=np.int64)

    def features(self, item: int) -> Features:
        """Return the features of an example."""
        return self.items[item]


def read_unlabelled(settings: DataSettings, models: DistillationModels, labelled: Sequence[Features]) -> Blocks:
    """Encode the corpus: plain text where any text will do, JSON records for the other kinds.

    Lines that are much shorter than the labelled texts are joined, up to the length of a sequence: whole abstracts
    where the labelled texts are abstracts.

    Raises:
        SqueezeError: the corpus cannot be read, is plain text where records are needed, or has no pair where pairs are.
    """
    if models.reads_pairs:
        return _pairs_of_sentences(settings, models)
    if models.reads_plain_text:
        blocks = _plain_text(settings, models, labelled)
        types = bool(labelled) and "token_type_ids" in labelled[0]
        return UnlabelledBlocks(blocks, models.output_type, len(models.labels), types)
    features = _encoded_records(models, settings.corpus)
    if not features:
        raise _no_pair(settings, models)
    return UnlabelledExamples(features)


def check_corpus(settings: DataSettings, task: Task | None = None) -> None:
    """Read the first text of each corpus on disk: no pipe, which can be read only once, and nothing of the Hub.

    Args:
        settings: name the corpora, and the field of their records.
        task: what the examples are built for where they are JSON records; None for plain text.

    Raises:
        SqueezeError: it cannot be read, or is plain text where records are needed.
    """
    for source in settings.corpus:
        if not (is_hub(source) or is_stream(source)):
            with quietly():  # files that are skipped were named when the corpus was found
                next(_records(source, task) if task else read_lines(source, settings.field), None)


def _pairs_of_sentences(settings: DataSettings, models: DistillationModels) -> UnlabelledPairs:
    sources = tuple((source, corpus_files(source)) for source in settings.corpus)
    documents = DocumentText(sources, settings.field).whole(models.tokenizer)
    pairs = UnlabelledPairs(documents, models.length, models.output_type)
    if not len(pairs):
        raise _no_pair(settings, models)
    if pairs.cut:
        note(f"{pairs.cut:,} of {documents.sentences:,} sentences are cut to {models.length} tokens (--max-length)")
    return pairs


def _no_pair(settings: DataSettings, models: DistillationModels) -> SqueezeError:
    """Return the error for a text of a single sentence, where two are needed, or for records without a pair."""
    names = ", ".join(settings.corpus)
    if not models.reads_pairs:
        related = getattr(models.known_task, "pairs", ())  # of a relation teacher alone
        kinds = ", ".join(sorted({f"{kind.head} and {kind.tail}" for kind in related}))
        wanted = f" with two entities in a sentence of the kinds that this teacher relates ({kinds})" if kinds else ""
        return SqueezeError(f"{names} has no record{wanted}; give others with --corpus")
    return SqueezeError(
        f"{names} holds a single sentence, and unlabelled examples of this teacher are pairs of consecutive ones; give "
        "more text with --corpus"
    )


def _plain_text(settings: DataSettings, models: DistillationModels, labelled: Sequence[Features]) -> Blocks:
    """Tokenise the lines of the corpus, or its documents where the labelled texts are far longer than its lines."""
    if not labelled or _median_of_lines(settings, models) * 2 >= np.median([len(each[INPUT_IDS]) for each in labelled]):
        return prepare_corpus(settings.corpus, settings.field, models.tokenizer, models.length, pack=False)
    note("the lines of the text are far shorter than the labelled texts: those of a document are joined")
    sources = tuple((source, corpus_files(source)) for source in settings.corpus)
    return DocumentText(sources, settings.field).joined(models.tokenizer, models.length, pack=False)


def _median_of_lines(settings: DataSettings, models: DistillationModels) -> float:
    """Return the median length of the first lines of each source, in tokens; infinite without any, as of a pipe."""
    sources = (source for source in settings.corpus if not is_stream(source))  # a pipe can be read only once
    beginnings = (islice(read_lines(source, settings.field), _MEASURED) for source in sources)
    lines = [line for beginning in beginnings for line in beginning]
    encoded = models.tokenizer(lines, truncation=True, max_length=models.length)[INPUT_IDS] if lines else []
    return float(np.median([len(ids) for ids in encoded])) if encoded else math.inf


def read_with_teacher_outputs(
    teachers: CrossVocabularyTeachers,
    settings: DataSettings,
    models: DistillationModels,
    training: TrainingOptions,
    labelled: int,
) -> Blocks | None:
    """Sample as many unlabelled examples as the training uses, and compute the teachers' outputs on them.

    Args:
        teachers: with another vocabulary than the student.
        settings: where the examples come from; the sample is drawn with their seed.
        models: the student's tokenizer and the task.
        training: how many examples are used.
        labelled: number of labelled examples.

    Returns:
        the encoded examples with the teachers' outputs; None where the training uses none.

    Raises:
        SqueezeError: the corpus cannot be read, or has no pair where pairs are needed.
    """
    size = used_examples(training, settings.unlabelled, labelled)
    examples = _sample(settings, models, size)
    if size and not examples:
        raise _no_pair(settings, models)
    if not examples:
        return None
    windows = models.known_task.encode(examples, models.labels, models.tokenizer, models.length)
    features = teachers.add_outputs(examples, windows, "the unlabelled text")
    return UnlabelledExamples([_without_labels(window, models) for window in features])


def used_examples(training: TrainingOptions, ratio: float, labelled: int) -> int:
    """Return how many unlabelled examples the whole training of all processes uses at most.

    Args:
        training: its length.
        ratio: unlabelled examples for each labelled one.
        labelled: number of labelled examples.
    """
    steps = sys.maxsize if training.ends_by_time else training.most_steps
    if steps is None:
        return math.ceil(training.epochs * labelled * ratio) if labelled else sys.maxsize
    total = steps * training.batch_size * training.accumulate * processes.count()
    return math.ceil(total * ratio / (1 + ratio)) if labelled else total


def _sample(settings: DataSettings, models: DistillationModels, size: int) -> list[Any]:
    """Draw examples of the corpus with the seed, by reservoir sampling; all of a smaller corpus."""
    rng, sample = random.Random(settings.seed), list[Any]()
    with track("read the unlabelled text") as progress:
        for number, example in enumerate(_examples(settings, models)):
            if number < size:
                sample.append(example)
            elif (place := rng.randrange(number + 1)) < size:  # each example so far is kept with equal probability
                sample[place] = example
            progress.advance()
    note(f"unlabelled: {len(sample):,} examples of {', '.join(settings.corpus)}")
    return sample


def _examples(settings: DataSettings, models: DistillationModels) -> Iterator[Any]:
    task = models.known_task
    plain = with_columns(task, ())  # --column names those of the labelled data alone
    for source in settings.corpus:
        lines = read_lines(source, settings.field) if models.reads_plain_text else iter(())
        if models.reads_pairs:
            pairs = zip(lines, lines, strict=False)  # of consecutive lines
            yield from (plain.example_from_record({"sentence1": a, "sentence2": b}) for a, b in pairs)
        elif models.reads_plain_text:
            yield from (plain.example_from_record({"text": line}) for line in lines)
        else:  # the outputs are those of an example, so each pair of a text is one
            for example in _records(source, task):
                yield from example.pairs if isinstance(example, Passage) else (example,)


def _encoded_records(models: DistillationModels, corpus: Sequence[str]) -> list[Features]:
    task, features = models.known_task, list[Features]()
    with track("read the unlabelled records") as progress:
        for source in corpus:
            for records in _batches(_records(source, task)):
                windows = task.encode(records, models.labels, models.tokenizer, models.length)
                features += [_without_labels(window.features, models) for window in windows]
                progress.advance(len(records))
    note(f"unlabelled: {len(features):,} sequences of {', '.join(corpus)}")
    return features


def _without_labels(features: Features, models: DistillationModels) -> Features:
    return {**features, **models.output_type.unlabelled(len(features["input_ids"]), len(models.labels))}


def _records(source: str, task: Task) -> Iterator[Any]:
    """Build examples from the JSON records of a corpus, with the columns of the task or with the usual names."""
    plain = with_columns(task, ())
    for where, values in _values(source):
        try:
            yield task.example_from_record(values)
        except SqueezeError:  # the fields may have the usual names
            yield _usual_example(plain, where, values)


def _usual_example(plain: Task, where: str, values: Mapping[str, Any]) -> Any:
    """Build an example from a record whose fields have the usual names.

    Raises:
        SqueezeError: it is bad; the message names its place.
    """
    try:
        return plain.example_from_record(values)
    except SqueezeError as error:
        raise SqueezeError(f"{where}: {str(error).removeprefix(_RECORD).lstrip(': ')}") from error


def _values(source: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the JSON records of a corpus, or those of the Hub, each with its place."""
    if is_hub(source):
        yield from ((source, record) for record in HubCorpus.parse(source).records())
        return
    if find_corpus(source) is None:
        raise SqueezeError(
            f"{source} is plain text, but this task reads more than one text; give JSON lines with its fields as "
            "--corpus"
        )
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
            yield incoming.where, incoming.values


def _batches(examples: Iterator[Any]) -> Iterator[list[Any]]:
    while batch := list(islice(examples, _RECORDS_AT_ONCE)):
        yield batch
