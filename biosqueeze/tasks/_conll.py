"""Read column files: one word and its tag per line, sentences parted by blank lines."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from biosqueeze.data.demo import demo_ner
from biosqueeze.data.lines import numbered_lines
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.progress import note
from biosqueeze.registry import closest
from biosqueeze.tasks import Dataset

DEMO = "demo:ner"
_FILE_STEMS = {
    "train": ("train",),
    "dev": ("dev", "devel", "valid", "validation"),
    "test": ("test",),
}
_SUFFIXES = (".tsv", ".txt", ".conll", ".iob")
_DOCUMENT = "-DOCSTART-"
OUTSIDE = "O"


@dataclass(frozen=True)
class Sentence:
    """Words and the tag of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]

    @property
    def gold(self) -> tuple[str, ...]:
        """The true tags."""
        return self.tags


@dataclass(frozen=True)
class _Row:
    """One word as it stands in a file."""

    number: int
    word: str
    tag: str


def read(source: str, splits: Sequence[str]) -> Dataset:
    """Read splits of a data set from a directory of column files, or the generated one, `demo:ner`.

    Args:
        source: a directory with train, dev (or devel, valid, validation) and test, as .tsv, .txt, .conll or
            .iob. The word stands in the first column and its tag in the last, parted by tabs, or by white
            space in a file without tabs.
        splits: of train, dev and test. The labels are train's if it is among them, else those of all.

    Raises:
        SqueezeError: a file is missing, empty, not UTF-8 or malformed, or has a label that train lacks.
    """
    for split in splits:
        if split not in _FILE_STEMS:
            raise UsageError(
                f"there is no split {split!r}.{closest(split, _FILE_STEMS)} Known: {', '.join(_FILE_STEMS)}"
            )
    if source.startswith("demo:"):
        return _demo(source, splits)
    directory = Path(source).expanduser()
    if not directory.is_dir():
        raise SqueezeError(f"there is no directory {source}; give one with train.tsv, dev.tsv and test.tsv, or {DEMO}")
    files = {split: _file_of(directory, split) for split in splits}
    rows = {split: _sentences_of(path) for split, path in files.items()}
    labels = _labels(rows, files, directory)
    if "train" in splits and "test" not in splits:
        _check_test(directory, rows, files)
    dataset = Dataset(
        {split: tuple(map(_sentence, sentences)) for split, sentences in rows.items()},
        labels,
        _scheme(labels),
    )
    _say(source, dataset)
    return dataset


def _check_test(directory: Path, rows: Mapping[str, list[list[_Row]]], files: Mapping[str, Path]) -> None:
    """Look at the test split before anything is trained, so that what is wrong with it costs nothing."""
    names = [directory / (stem + suffix) for stem in _FILE_STEMS["test"] for suffix in _SUFFIXES]
    path = next((name for name in names if name.is_file()), None)
    if path is not None:
        _labels({**rows, "test": _sentences_of(path)}, {**files, "test": path}, directory)


def _demo(source: str, splits: Sequence[str]) -> Dataset:
    if source != DEMO:
        raise UsageError(f"there is no data set called {source}; the built-in one is {DEMO}")
    made = {split: tuple(Sentence(words, tags) for words, tags in demo_ner(split)) for split in splits}
    tags = {tag for words, sentence in demo_ner("train") for tag in sentence}
    dataset = Dataset(made, _ordered(tags), "BIO")
    _say(source, dataset)
    return dataset


def _file_of(directory: Path, split: str) -> Path:
    names = [stem + suffix for stem in _FILE_STEMS[split] for suffix in _SUFFIXES]
    found = [directory / name for name in names if (directory / name).is_file()]
    if not found:
        raise SqueezeError(
            f"{directory} has no {split} split: looked for {', '.join(_FILE_STEMS[split])} "
            f"with {', '.join(_SUFFIXES)}; rename the file, or name another directory"
        )
    return found[0]


def _sentences_of(path: Path) -> list[list[_Row]]:
    sentences: list[list[_Row]] = [[]]
    for row in _rows(path):
        if row is None:
            sentences.append([])
        else:
            sentences[-1].append(row)
    sentences = [rows for rows in sentences if rows]
    if not sentences:
        raise SqueezeError(f"{path} is empty: it holds no word with a tag; check that it was written in full")
    return sentences


def _rows(path: Path) -> Iterator[_Row | None]:
    """The words of a file; None where a sentence ends."""
    separator: str | None = None
    columns = 0
    for number, line in numbered_lines(path):
        if not line.strip() or line.startswith(_DOCUMENT):
            yield None
            continue
        if not columns:
            separator = "\t" if "\t" in line else None
            columns = max(2, len(line.split(separator)))
        cells = line.split(separator)
        _check_row(cells, columns, f"{path}:{number}")
        yield _Row(number, cells[0], cells[-1].strip())


def _check_row(cells: list[str], columns: int, where: str) -> None:
    if len(cells) != columns:
        lacks = "no tag beside" if len(cells) == 1 else f"{len(cells)} columns at"
        raise SqueezeError(
            f"{where}: {lacks} {cells[0]!r}, where {columns} columns were expected (word first, tag last); "
            "mend this row"
        )
    if not cells[0].strip():
        raise SqueezeError(
            f"{where}: no word before the tag {cells[-1]!r}; mend this row, or blank it to end a sentence"
        )
    tag = cells[-1].strip()
    prefix, dash, kind = tag.partition("-")
    if tag != OUTSIDE and (prefix not in ("B", "I") or (dash and not kind)):
        raise SqueezeError(f"{where}: the tag {tag!r} is none of O, B-TYPE and I-TYPE; convert the file to BIO")


def _ordered(tags: set[str]) -> tuple[str, ...]:
    return (OUTSIDE, *sorted(tags - {OUTSIDE}))


def _labels(rows: dict[str, list[list[_Row]]], files: dict[str, Path], directory: Path) -> tuple[str, ...]:
    """The labels of train, or of all that was read where train is not; checks every row against them."""
    tags = {split: {row.tag for sentence in sentences for row in sentence} for split, sentences in rows.items()}
    labels = _ordered(tags.get("train") or set().union(*tags.values()))
    if labels == (OUTSIDE,):
        raise SqueezeError(
            f"{directory} has no tag but O, so there is nothing to learn or to score; check the last column"
        )
    for split, sentences in rows.items():
        _check_tags(sentences, labels, files[split])
    return labels


def _check_tags(sentences: list[list[_Row]], labels: tuple[str, ...], path: Path) -> None:
    scheme = _scheme(labels)
    for sentence in sentences:
        before = OUTSIDE
        for row in sentence:
            if row.tag not in labels:
                raise SqueezeError(
                    f"{path}:{row.number}: the label {row.tag!r} is none of train's ({', '.join(labels)}); "
                    "correct it, or add examples of it to train"
                )
            if scheme == "BIO" and row.tag[0] == "I" and _begins(before, row.tag):
                raise SqueezeError(
                    f"{path}:{row.number}: {row.tag!r} at {row.word!r} follows {before!r}, "
                    f"but an entity begins with B in this data; write B{row.tag[1:]} here"
                )
            before = row.tag


def _scheme(labels: Sequence[str]) -> str:
    return "BIO" if any(label[0] == "B" for label in labels) else "IO"


def _sentence(rows: list[_Row]) -> Sentence:
    return Sentence(tuple(row.word for row in rows), tuple(row.tag for row in rows))


def count_entities(tags: Sequence[str]) -> int:
    """How many entities begin in a sentence."""
    return sum(_begins(before, tag) for before, tag in zip([OUTSIDE, *tags], tags, strict=False))


def _begins(before: str, tag: str) -> bool:
    """Whether an entity begins at this tag: a B, or an I that continues nothing."""
    return tag[0] == "B" or (tag[0] == "I" and (before == OUTSIDE or before[1:] != tag[1:]))


def _say(source: str, dataset: Dataset) -> None:
    counts = (
        f"{split} {len(sentences):,} sentences, {sum(len(s.words) for s in sentences):,} words, "
        f"{sum(count_entities(s.tags) for s in sentences):,} entities"
        for split, sentences in dataset.splits.items()
    )
    note(f"{source} ({dataset.scheme}): {'; '.join(counts)}")
