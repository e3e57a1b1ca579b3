"""Rows sentences, wherever they were read from: checked row by row, and made a data set."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.progress import note
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
    """Words and the tag of each: BIO, or IO where the data are written so."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    text: str = ""  # what the words were taken from, if it is known
    offsets: Offsets = ()  # where each word starts and ends in the text
    starts: tuple[int, ...] = ()  # words at which another sentence begins: a model sees each on its own

    @property
    def gold(self) -> tuple[str, ...]:
        """The true tags."""
        return self.tags


@dataclass(frozen=True)
class SourceSentence:
    """A sentence as it stands in a source, with the places of its words."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    file: str  # train.tsv, or train.jsonl:12 where a whole sentence has one place
    lines: tuple[int, ...] = ()  # line of each word in the file
    text: str = ""
    offsets: Offsets = ()

    def where(self, word: int) -> str:
        """The place of a word, for messages."""
        return f"{self.file}:{self.lines[word]}" if self.lines else self.file

    def sentence(self, tags: Sequence[str]) -> Sentence:
        """The sentence with these tags."""
        return Sentence(self.words, tuple(tags), self.text, self.offsets)


Splits = Mapping[str, Sequence[SourceSentence]]


@dataclass(frozen=True)
class _Labelling:
    """In which scheme the data are written and in which they are trained, and what is made of their types."""

    scheme: str  # of the data: BIO, IO, BIOUL or IOB1
    target: str  # BIO, IO or BIOUL
    labels: tuple[str, ...]
    types: tuple[str, ...]  # those that are kept, () for all

    def trained(self, tags: Sequence[str]) -> Sequence[str]:
        """Tags as labels."""
        tags = keep_types(tags, self.types)
        return tags if self.target == self.scheme != "BIOUL" else convert(tags, self.target)  # BIOES becomes BIOUL

    def gold(self, tags: Sequence[str]) -> Sequence[str]:
        """Tags as they are scored: as they stand in BIO or IO, and in BIO what the data write in another scheme."""
        tags = keep_types(tags, self.types)
        return tags if self.scheme in ("BIO", "IO") else convert(tags, "BIO")


def build(source: str, read: Splits, splits: Sequence[str], form: Formulation) -> Dataset:
    """Check what was read and make it a data set.

    Args:
        source: what the user gave.
        read: the splits that were asked for, and perhaps train for its labels and test for a look at it.
        splits: those that were asked for.
        form: which types are kept, and in which scheme they are trained.

    Raises:
        SqueezeError: a tag is none or stands where its scheme allows none, train lacks a label, there is nothing
            but O, or the test split is used for training or selection.
        UsageError: a type that is to be kept does not occur.
    """
    for tagged in _every(read):
        _check_tags(tagged)
    labelling = _labelling(source, read, form)
    _check_letters(read)
    _check_order(read, labelling.scheme)
    for rows in read.values():
        _check_labels(rows, labelling)
    for split in ("train", "dev"):
        if split in splits and "test" in read:
            check_disjoint(split, _texts(read[split]), _texts(read["test"]), source)
    made = {split: tuple(tagged.sentence(labelling.gold(tagged.tags)) for tagged in read[split]) for split in splits}
    dataset = Dataset(made, labelling.labels, labelling.target)
    _say(source, dataset, labelling, read)
    return dataset


def count_entities(tags: Sequence[str]) -> int:
    """How many entities a sentence has."""
    return len(spans_of(tags))


def _every(read: Splits) -> Iterator[SourceSentence]:
    return (tagged for split in read.values() for tagged in split)


def _check_tags(tagged: SourceSentence) -> None:
    for word, tag in enumerate(tagged.tags):
        if not is_tag(tag):
            raise SqueezeError(
                f"{tagged.where(word)}: the tag {tag!r} is none of O, B-TYPE and I-TYPE (nor L-, U-, E- or S-TYPE); "
                "correct it, or name the tags' column with --column tag=NUMBER"
            )


def _labelling(source: str, read: Splits, form: Formulation) -> _Labelling:
    """The labels are those of train, or of all that was read where train is not.

    Data that are trained in their own scheme have the labels that occur; a scheme that they are converted to is
    taken whole, for a word of train need not have been in every place of an entity. So is their own where another split
    has a longer entity of a type than train.
    """
    scheme = detect_scheme(tagged.tags for tagged in _every(read))
    own = "BIO" if scheme == "IOB1" else scheme
    draft = _Labelling(scheme, form.scheme or own, (), _types(read, form.types))
    known = read["train"] if "train" in read else [*_every(read)]
    tags = set().union(*(draft.trained(tagged.tags) for tagged in known))
    labels = (OUTSIDE, *sorted(tags - {OUTSIDE}))
    if labels == (OUTSIDE,):
        raise SqueezeError(
            f"{source} has no tag but O, so there is nothing to learn or to score; check the tags' column"
        )
    lacking = set().union(*(draft.trained(tagged.tags) for tagged in _every(read))) - set(labels)
    longer = any(split_tag(tag)[1] in types_of(labels) for tag in lacking)
    if "train" in read and (longer or form.label_all_pieces or draft.target != scheme or scheme == "BIOUL"):
        labels = labels_of(types_of(labels), draft.target)
    return replace(draft, labels=labels)


def _types(read: Splits, asked: Sequence[str]) -> tuple[str, ...]:
    """The types to keep, which must all be in train; in a test split alone one of them may be missing."""
    if not asked:
        return ()
    known = read["train"] if "train" in read else [*_every(read)]
    there = types_of(tag for tagged in known for tag in set(tagged.tags))
    strange = [name for name in asked if name not in there]
    if strange and ("train" in read or len(strange) == len(asked)):
        names = ", ".join(filter(None, there)) or "none: their tags have no types"
        raise UsageError(
            f"--types: the data have no entity of the type {strange[0]!r}.{closest(strange[0], there)} "
            f"There are: {names}"
        )
    return tuple(asked)


def _texts(rows: Sequence[SourceSentence]) -> list[tuple[str, ...]]:
    return [tagged.words for tagged in rows]


def _check_letters(read: Splits) -> None:
    """The last word of an entity is called L or E, one of a single word U or S: not both ways in the same data."""
    first, second = _first(read, "LU"), _first(read, "ES")
    if first and second:
        raise SqueezeError(f"{second}, but {first}: these are BIOES and BIOUL; write the data in one of the two")


def _first(read: Splits, letters: str) -> str:
    """The first tag with one of these letters, and where it stands."""
    found = (
        f"{tagged.where(word)}: the tag is {tag!r}"
        for tagged in _every(read)
        for word, tag in enumerate(tagged.tags)
        if tag[0] in letters
    )
    return next(found, "")


def _check_order(read: Splits, scheme: str) -> None:
    """Every tag must be where the scheme allows it."""
    if scheme not in ("BIO", "BIOUL"):
        return
    for tagged in _every(read):
        before = OUTSIDE
        for word, tag in enumerate((*tagged.tags, OUTSIDE)):
            wrong = order_error(scheme, before, tag)
            if wrong:
                raise SqueezeError(_out_of_place(tagged, word) if wrong == "begin" else _unended(tagged, word, read))
            before = tag


def _out_of_place(tagged: SourceSentence, word: int) -> str:
    before, tag = tagged.tags[word - 1] if word else OUTSIDE, tagged.tags[word]
    return (
        f"{tagged.where(word)}: {tag!r} at {tagged.words[word]!r} follows {before!r}, "
        f"but an entity begins with B in this data; write {join_tag('B', split_tag(tag)[1])} here"
    )


def _unended(tagged: SourceSentence, word: int, read: Splits) -> str:
    """The word before this one is in an entity that does not end."""
    tag = tagged.tags[word - 1]
    after = repr(tagged.tags[word]) if word < len(tagged.tags) else "the end of the sentence"
    bioes = _first(read, "ES")
    last, unit = ("E", "S") if bioes else ("L", "U")
    return (
        f"{tagged.where(word - 1)}: {tag!r} at {tagged.words[word - 1]!r} is followed by {after}, but where entities "
        f"have ends ({bioes or _first(read, 'LU')}) this one lacks its own; "
        f"write {join_tag(unit if tag[0] == 'B' else last, split_tag(tag)[1])} here"
    )


def _check_labels(rows: Sequence[SourceSentence], labelling: _Labelling) -> None:
    labels = set(labelling.labels)
    for tagged in rows:
        if labels.issuperset(tagged.tags) and not labelling.types and labelling.target == labelling.scheme:
            continue
        for word, tag in enumerate(labelling.trained(tagged.tags)):
            if tag not in labels:
                raise SqueezeError(
                    f"{tagged.where(word)}: the label {tag!r} is none of train's ({', '.join(labelling.labels)}); "
                    "correct it, or add examples of it to train"
                )


def _say(source: str, dataset: Dataset, labelling: _Labelling, read: Splits) -> None:
    counts = (
        f"{split} {len(sentences):,} sentences, {sum(len(s.words) for s in sentences):,} words, "
        f"{sum(count_entities(s.tags) for s in sentences):,} entities"
        for split, sentences in dataset.splits.items()
    )
    scheme = labelling.scheme if labelling.scheme == dataset.scheme else f"{labelling.scheme}, as {dataset.scheme}"
    note(f"{source} ({scheme}): {'; '.join(counts)}; labels {', '.join(dataset.labels)}")
    if labelling.types:
        _say_dropped(source, dataset, labelling, read)


def _say_dropped(source: str, dataset: Dataset, labelling: _Labelling, read: Splits) -> None:
    spans = (span.type for split in dataset.splits for tagged in read[split] for span in spans_of(tagged.tags))
    dropped = Counter(kind for kind in spans if kind not in labelling.types)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(dropped.items())) or "no other type is there"
    note(f"{source}: of the entities only {', '.join(labelling.types)}; counted as O: {counts}")
