"""Check tagged sentences row by row, whatever their source, and build a data set of them."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.progress import counted, note
from biosqueeze.registry import closest
from biosqueeze.tasks import Dataset, Formulation
from biosqueeze.tasks.encoding.tag_schemes import (
    OUTSIDE,
    convert,
    detect_scheme,
    is_tag,
    join_tag,
    keep_types,
    labels_of,
    order_error,
    spans_of,
    split_tag,
    types_of,
)
from biosqueeze.tasks.readers.split_overlap import check_disjoint

Offsets = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Sentence:
    """Words and the tag of each, in BIO, or in IO if the data are written so."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    text: str = ""  # the text that the words are from, if it is known
    offsets: Offsets = ()  # start and end of each word in the text
    starts: tuple[int, ...] = ()  # indices of words that begin another sentence; each is encoded separately
    document_id: str = field(default="", compare=False)
    """What distinguishes the document that the sentence is from, if it is not the text."""

    @property
    def gold(self) -> tuple[str, ...]:
        """The gold tags."""
        return self.tags

    @property
    def document(self) -> str:
        """What distinguishes the document that the sentence is from; "" if that is unknown."""
        return self.document_id or self.text


@dataclass(frozen=True)
class SourceSentence:
    """A sentence as its source has it, with the places of its words for error messages."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    file: str  # train.tsv, or train.jsonl:12 for a sentence with one place
    lines: tuple[int, ...] = ()  # line of each word in the file
    text: str = ""
    offsets: Offsets = ()
    document_id: str = ""

    def where(self, word: int) -> str:
        """Return the place of a word."""
        return f"{self.file}:{self.lines[word]}" if self.lines else self.file

    def sentence(self, tags: Sequence[str]) -> Sentence:
        """Return the sentence with other tags."""
        return Sentence(self.words, tuple(tags), self.text, self.offsets, document_id=self.document_id)


Splits = Mapping[str, Sequence[SourceSentence]]


@dataclass(frozen=True)
class _Labelling:
    """The tag scheme of the data, the scheme for training, and the entity types that are kept."""

    scheme: str  # of the data: BIO, IO, BIOUL or IOB1
    target: str  # for training: BIO, IO or BIOUL
    labels: tuple[str, ...]
    types: tuple[str, ...]  # () for all

    def trained(self, tags: Sequence[str]) -> Sequence[str]:
        """Return tags as the labels for training."""
        tags = keep_types(tags, self.types)
        return tags if self.target == self.scheme != "BIOUL" else convert(tags, self.target)  # BIOES becomes BIOUL

    def gold(self, tags: Sequence[str]) -> Sequence[str]:
        """Return tags as they are scored: unchanged in BIO and IO, converted to BIO from other schemes."""
        tags = keep_types(tags, self.types)
        return tags if self.scheme in ("BIO", "IO") else convert(tags, "BIO")


def build_dataset(source: str, read: Splits, splits: Sequence[str], formulation: Formulation) -> Dataset:
    """Check the sentences of a source, and build a data set of them.

    Args:
        source: the data source as the user named it.
        read: the requested splits, and possibly train for its labels and test to be checked.
        splits: the requested ones.
        formulation: the types to keep, and the scheme for training.

    Raises:
        SqueezeError: a tag is invalid or misplaced in its scheme, train lacks a label, there is no tag but O, or the
            test split is used for training or selection.
        UsageError: a requested type does not occur.
    """
    for sentence in _every(read):
        _check_tags(sentence)
    if formulation.merge_types:
        read, formulation = _with_merged_types(source, read, formulation)
    labelling = _labelling(source, read, formulation)
    _check_letters(read)
    _check_order(read, labelling.scheme)
    for sentences in read.values():
        _check_labels(sentences, labelling)
    for split in ("train", "dev"):
        if split in splits and "test" in read:
            check_disjoint(split, _texts(read[split]), _texts(read["test"]), source)
    examples = {split: tuple(each.sentence(labelling.gold(each.tags)) for each in read[split]) for split in splits}
    dataset = Dataset(examples, labelling.labels, labelling.target)
    _log(source, dataset, labelling, read)
    return dataset


def count_entities(tags: Sequence[str]) -> int:
    """Return the number of entities in a sentence."""
    return len(spans_of(tags))


def _with_merged_types(source: str, read: Splits, formulation: Formulation) -> tuple[Splits, Formulation]:
    """Return the splits without the names of the types that are kept, and the formulation without these types.

    Tags in a scheme that does not always show where an entity begins become BIO: neighbours of two types stay two.

    Raises:
        UsageError: a requested type does not occur.
    """
    scheme = detect_scheme(sentence.tags for sentence in _every(read))
    types = _types(read, formulation.types)

    def merged(tags: Sequence[str]) -> tuple[str, ...]:
        kept = keep_types(tags, types)
        clear = kept if scheme in ("BIO", "BIOUL") else convert(kept, "BIO")
        return tuple(split_tag(tag)[0] for tag in clear)

    splits = {split: [replace(each, tags=merged(each.tags)) for each in rows] for split, rows in read.items()}
    count = len({kind for each in _every(read) for tag in each.tags if (kind := split_tag(tag)[1])})
    if count > 1:
        note(f"{source}: {count} types of entities count as one")
    return splits, replace(formulation, types=())


def _every(read: Splits) -> Iterator[SourceSentence]:
    return (sentence for split in read.values() for sentence in split)


def _check_tags(sentence: SourceSentence) -> None:
    for word, tag in enumerate(sentence.tags):
        if not is_tag(tag):
            columns = "--column word=NUMBER --column tag=NUMBER"
            raise SqueezeError(
                f"{sentence.where(word)}: the tag {tag!r} is none of O, B-TYPE and I-TYPE (nor L-, U-, E- or S-TYPE); "
                f"correct it, or name the columns with {columns}{_header(sentence, word)}"
            )


def _header(sentence: SourceSentence, word: int) -> str:
    """Return advice on a row that may be a header: the first, above words with tags."""
    if word or len(sentence.tags) < 2 or not all(map(is_tag, sentence.tags[1:])):
        return ""
    return f"; if this row is a header: --column word={sentence.words[0]} --column tag={sentence.tags[0]}"


def _labelling(source: str, read: Splits, formulation: Formulation) -> _Labelling:
    """Return the labels of train, or of all splits that were read if train is not among them.

    Data that are trained in their own scheme have the labels that occur. A scheme that they are converted to is
    complete, because train need not have a word in every position of an entity. So is the data's own scheme if another
    split has a longer entity of a type than train.
    """
    scheme = detect_scheme(sentence.tags for sentence in _every(read))
    own = "BIO" if scheme == "IOB1" else scheme
    draft = _Labelling(scheme, formulation.scheme or own, (), _types(read, formulation.types))
    labelled = read["train"] if "train" in read else [*_every(read)]
    tags = set().union(*(draft.trained(sentence.tags) for sentence in labelled))
    labels = (OUTSIDE, *sorted(tags - {OUTSIDE}))
    if labels == (OUTSIDE,):
        raise SqueezeError(
            f"{source} has no tag but O, so there is nothing to train or to score; check the column of the tags"
        )
    missing = set().union(*(draft.trained(sentence.tags) for sentence in _every(read))) - set(labels)
    longer = any(split_tag(tag)[1] in types_of(labels) for tag in missing)
    if "train" in read and (longer or formulation.label_all_pieces or draft.target != scheme or scheme == "BIOUL"):
        labels = labels_of(types_of(labels), draft.target)
    return replace(draft, labels=labels)


def _types(read: Splits, requested: Sequence[str]) -> tuple[str, ...]:
    """Return the types to keep. All must be in train; without train only one has to occur."""
    if not requested:
        return ()
    labelled = read["train"] if "train" in read else [*_every(read)]
    types = types_of(tag for sentence in labelled for tag in set(sentence.tags))
    unknown = [name for name in requested if name not in types]
    if unknown and ("train" in read or len(unknown) == len(requested)):
        names = ", ".join(filter(None, types)) or "none: their tags have no types"
        raise UsageError(
            f"--types: the data have no entity of the type {unknown[0]!r}.{closest(unknown[0], types)} "
            f"There are: {names}"
        )
    return tuple(requested)


def _texts(sentences: Sequence[SourceSentence]) -> list[tuple[str, ...]]:
    return [sentence.words for sentence in sentences]


def _check_letters(read: Splits) -> None:
    """Check that data use one spelling: L and U for the last and the only word of an entity, or E and S."""
    bioul, bioes = _first(read, "LU"), _first(read, "ES")
    if bioul and bioes:
        raise SqueezeError(f"{bioes}, but {bioul}: these are BIOES and BIOUL; write the data in one of the two")


def _first(read: Splits, letters: str) -> str:
    """Return the place and content of the first tag with one of these letters; "" if there is none."""
    matches = (
        f"{sentence.where(word)}: the tag is {tag!r}"
        for sentence in _every(read)
        for word, tag in enumerate(sentence.tags)
        if tag[0] in letters
    )
    return next(matches, "")


def _check_order(read: Splits, scheme: str) -> None:
    """Check that the scheme allows every tag after the one before it."""
    if scheme not in ("BIO", "BIOUL"):
        return
    for sentence in _every(read):
        before = OUTSIDE
        for word, tag in enumerate((*sentence.tags, OUTSIDE)):
            problem = order_error(scheme, before, tag)
            if problem:
                message = _without_begin(sentence, word) if problem == "begin" else _without_end(sentence, word, read)
                raise SqueezeError(message)
            before = tag


def _without_begin(sentence: SourceSentence, word: int) -> str:
    before, tag = sentence.tags[word - 1] if word else OUTSIDE, sentence.tags[word]
    return (
        f"{sentence.where(word)}: {tag!r} at {sentence.words[word]!r} follows {before!r}, "
        f"but an entity begins with B in this data; write {join_tag('B', split_tag(tag)[1])} here"
    )


def _without_end(sentence: SourceSentence, word: int, read: Splits) -> str:
    """Return the message for an entity that has no end before a word."""
    tag = sentence.tags[word - 1]
    after = repr(sentence.tags[word]) if word < len(sentence.tags) else "the end of the sentence"
    bioes = _first(read, "ES")
    last, unit = ("E", "S") if bioes else ("L", "U")
    return (
        f"{sentence.where(word - 1)}: {tag!r} at {sentence.words[word - 1]!r} is followed by {after}, but this data "
        f"marks the ends of entities ({bioes or _first(read, 'LU')}), and this one has no end; "
        f"write {join_tag(unit if tag[0] == 'B' else last, split_tag(tag)[1])} here"
    )


def _check_labels(sentences: Sequence[SourceSentence], labelling: _Labelling) -> None:
    labels = set(labelling.labels)
    for sentence in sentences:
        if labels.issuperset(sentence.tags) and not labelling.types and labelling.target == labelling.scheme:
            continue
        for word, tag in enumerate(labelling.trained(sentence.tags)):
            if tag not in labels:
                others = " ".join(f"--types {shlex.quote(name)}" for name in types_of(labelling.labels) if name)
                raise SqueezeError(
                    f"{sentence.where(word)}: the label {tag!r} is none of train's ({', '.join(labelling.labels)}); "
                    "correct it, or add examples of it to train"
                    + (f", or give the types of train, to read others as O: {others}" if others else "")
                )


def _log(source: str, dataset: Dataset, labelling: _Labelling, read: Splits) -> None:
    counts = (
        f"{split} {counted(len(sentences), 'sentence')}, {counted(sum(len(s.words) for s in sentences), 'word')}, "
        f"{sum(count_entities(s.tags) for s in sentences):,} entities"
        for split, sentences in dataset.splits.items()
    )
    scheme = labelling.scheme if labelling.scheme == dataset.scheme else f"{labelling.scheme}, as {dataset.scheme}"
    note(f"{source} ({scheme}): {'; '.join(counts)}; labels {', '.join(dataset.labels)}")
    if labelling.types:
        _log_dropped(source, dataset, labelling, read)


def _log_dropped(source: str, dataset: Dataset, labelling: _Labelling, read: Splits) -> None:
    types = (span.type for split in dataset.splits for sentence in read[split] for span in spans_of(sentence.tags))
    dropped = Counter(name for name in types if name not in labelling.types)
    counts = ", ".join(f"{count:,} {name}" for name, count in sorted(dropped.items())) or "none, there is no other type"
    note(f"{source}: types kept: only {', '.join(labelling.types)}; counted as O: {counts}")
