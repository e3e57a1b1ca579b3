"""The splits of a data set: their names, the spellings of these in file names, and the files in a directory."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from biosqueeze.data.lines import data_suffix, is_beside_data
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.progress import warn_once
from biosqueeze.registry import closest

SPLITS = ("train", "dev", "test")
SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "train": ("train", "training"),
    "dev": ("dev", "devel", "valid", "validation", "val", "development"),
    "test": ("test", "testing"),
}
"""The names that the file of a split may have, up to the first dot; the first is the name of the split."""
SUFFIXES = (".tsv", ".csv", ".jsonl", ".json", ".txt")
"""Of records."""
WORD_SUFFIXES = (".conll", ".iob", ".iob2", ".bio")
"""Of columns of words, beside .tsv and .txt."""
STANDOFF_SUFFIXES = (".ann", ".a1")
"""Of brat's annotations, and of the entities of the BioNLP shared tasks; the text is a .txt of the same name."""
DATA_SUFFIXES = (*SUFFIXES, *WORD_SUFFIXES, ".pubtator", ".xml")
# The shortest beginnings of these spellings, which recognise a split in a longer name (BioASQ-train-7b, developset).
_STEMS: Mapping[str, tuple[str, ...]] = {"train": ("train",), "dev": ("dev", "valid"), "test": ("test",)}
_WORD_STARTS = {split: re.compile(rf"(?<![a-z])({'|'.join(stems)})") for split, stems in _STEMS.items()}
_SPLIT_WORD = re.compile(rf"(?<![a-z])({'|'.join(stem for stems in _STEMS.values() for stem in stems)})[a-z]*")
_ABSTRACTS = re.compile(r"abstra(ct|c)s")  # DrugProt's files are called abstracs
_TABLE_DEPTH = 3  # directories that tables of abstracts are looked for in
_NUMBERED = re.compile(rf"{_SPLIT_WORD.pattern}[-_. ]?\d")  # a part of a split, as train_0.tsv


def check_splits(splits: Iterable[str]) -> None:
    """Check the names of splits.

    Raises:
        UsageError: a name is not one of train, dev and test.
    """
    for split in splits:
        if split not in SPLITS:
            raise UsageError(f"there is no split {split!r}.{closest(split, SPLITS)} Known: {', '.join(SPLITS)}")


def has_split_word(name: str, split: str) -> bool:
    """Return whether a word of a file name begins with a split: train-v1.1.json, BioASQ-test-7b, mli_dev_v1.jsonl."""
    return _WORD_STARTS[split].search(name.lower()) is not None


def splits_within(name: str) -> tuple[str, ...]:
    """Return the splits that occur anywhere in a file name, within words too: NCBItrainset_corpus.txt."""
    return tuple(split for split, stems in _STEMS.items() if any(stem in name.lower() for stem in stems))


def splits_named(directory: Path) -> tuple[str, ...]:
    """Return the splits that the names of a directory's files mention, as words or else within words.

    Directories of annotated documents, and those that `split_files` finds a file in, count as files.
    """
    paths = directory.iterdir() if directory.is_dir() else ()
    names = [path.name for path in (*paths, *_abstract_tables(directory)) if path.is_file() or _holds_documents(path)]
    as_words = tuple(split for split in SPLITS if any(has_split_word(name, split) for name in names))
    return as_words or tuple(split for split in SPLITS if any(split in splits_within(name) for name in names))


def _holds_documents(directory: Path) -> bool:
    """Return whether a directory has standoff annotations, or is named for a split and has one file or documents.

    Files of columns of words count as documents.
    """
    if any(directory.name.lower() in names for names in SPELLINGS.values()):
        documents = any(any(directory.rglob(f"*{suffix}")) for suffix in (*STANDOFF_SUFFIXES, ".xml"))
        return documents or bool(word_files(directory)) or len(_files_of_data(directory.iterdir(), DATA_SUFFIXES)) == 1
    return any(any(directory.glob(f"*{suffix}")) for suffix in STANDOFF_SUFFIXES)


def split_folders(directory: Path, split: str) -> list[Path]:
    """Return the folders of a split, such as train/ or Train/."""
    return [path for path in sorted(directory.iterdir()) if path.is_dir() and path.name.lower() in SPELLINGS[split]]


def word_files(folder: Path) -> list[Path]:
    """Return the files in a folder whose suffix is that of columns of words, in sorted order."""
    return _files_of_data(folder.iterdir(), WORD_SUFFIXES)


def abstracts_of(directory: Path, split: str) -> Path | None:
    """Return the table of a split's abstracts in a directory or below it, beside one of their entities.

    Files are named as ChemProt's and DrugProt's are: chemprot_test_abstracts_gs.tsv. Where several are of a split, it
    is the one with relations.

    Raises:
        SqueezeError: that does not settle which.
    """
    tables = [path for path in _abstract_tables(directory) if has_split_word(path.name, split)]
    related = [path for path in tables if table_beside(path, "relations")]
    found = related or tables
    if len(found) > 1:
        names = " and ".join(str(path.relative_to(directory)) for path in found)
        raise SqueezeError(f"{directory}: {names} could both be the {split} split; move one to another directory")
    return found[0] if found else None


def table_beside(abstracts: Path, what: str) -> Path | None:
    """Return the table that belongs to one of abstracts by its name, if there is one.

    Args:
        abstracts: such as training/drugprot_training_abstracs.tsv.
        what: entities or relations.
    """
    path = abstracts.with_name(_ABSTRACTS.sub(what, abstracts.name))
    return path if path != abstracts and path.is_file() else None


def _abstract_tables(directory: Path) -> list[Path]:
    """Return the tables of abstracts in a directory and below it that have one of entities beside them."""
    patterns = ("*/" * depth + "*abstra*s*.tsv" for depth in range(_TABLE_DEPTH))
    return [path for pattern in patterns for path in sorted(directory.glob(pattern)) if table_beside(path, "entities")]


def open_directory(source: str) -> Path:
    """Return the directory of a data set.

    Raises:
        SqueezeError: there is no directory of that name.
    """
    directory = Path(source).expanduser()
    if directory.is_file():
        raise SqueezeError(
            f"{source} is a file, but a directory with train, dev and test was expected; "
            f"name the directory: {directory.parent}"
        )
    if not directory.is_dir():
        raise SqueezeError(f"there is no directory {source}; name one with files called train, dev and test")
    return directory


def files_named_as_splits(directory: Path) -> list[Path]:
    """Return the files of a directory that are named for a split alone, as train.tsv; [] if there is no directory."""
    paths = sorted(directory.iterdir()) if directory.is_dir() else []
    names = {name for spellings in SPELLINGS.values() for name in spellings}
    return [p for p in paths if p.name.split(".")[0] in names and data_suffix(p) in DATA_SUFFIXES and p.is_file()]


def find_split(directory: Path, split: str, suffixes: Sequence[str]) -> Path | None:
    """Return the file of a split, the first of `split_files`, or None; warn if there are several."""
    matches = split_files(directory, split, suffixes)
    if len(matches) > 1:
        others = ", ".join(path.name for path in matches[1:])
        message = f"{matches[0].name} is read as {split}; {others} would match too, and is not read"
        warn_once(directory, f"{directory}: {message}")
    return matches[0] if matches else None


def split_files(directory: Path, split: str, suffixes: Sequence[str]) -> list[Path]:
    """Return the files that may be a split: those of the first of three rules that finds any.

    1. The name is usual, as train.tsv.
    2. The file is the only one in a folder with a usual name, as train/corpus.tsv.
    3. No file or folder has a usual name, and all files that mention a split have the same name but for that word, as
       mtl_train.csv and mtl_test.csv.

    Args:
        directory: where to search.
        split: one of train, dev and test.
        suffixes: such as .tsv, in order of preference; each also matches with .gz appended.
    """
    usual = _usual_files(directory, split, suffixes)
    return usual or _only_files(directory, split, suffixes) or _named_alike(directory, suffixes).get(split, [])


def _usual_files(directory: Path, split: str, suffixes: Sequence[str]) -> list[Path]:
    return [directory / name for name in _file_names(split, suffixes) if (directory / name).is_file()]


def _only_files(directory: Path, split: str, suffixes: Sequence[str]) -> list[Path]:
    """Return the file of each folder of a split that holds no other, and no standoff annotations of it."""
    held = [list(folder.iterdir()) for folder in split_folders(directory, split)]
    files = [_files_of_data(paths, suffixes) for paths in held if not any(p.suffix in STANDOFF_SUFFIXES for p in paths)]
    return [path for paths in files if len(paths) == 1 for path in paths]


def _named_alike(directory: Path, suffixes: Sequence[str]) -> dict[str, list[Path]]:
    """Return the file of each split by the third rule of `split_files`; {} if their names differ in more."""
    if any(split_folders(directory, split) or _usual_files(directory, split, suffixes) for split in SPLITS):
        return {}
    files = _files_of_data(directory.iterdir(), suffixes)
    named = [(split, path) for path in files for split in SPLITS if has_split_word(path.name, split)]
    are_alike = len({_SPLIT_WORD.sub("", path.name.lower()) for _, path in named}) == 1
    are_single = len({split for split, _ in named}) == len({path for _, path in named}) == len(named)
    are_whole = not any(_NUMBERED.search(path.name.lower()) for _, path in named)
    return {split: [path] for split, path in named} if are_alike and are_single and are_whole else {}


def _files_of_data(paths: Iterable[Path], suffixes: Sequence[str]) -> list[Path]:
    known = {suffix.lower() for suffix in suffixes}
    return [p for p in sorted(paths) if data_suffix(p) in known and p.is_file() and not is_beside_data(p)]


def require_split(directory: Path, split: str, suffixes: Sequence[str]) -> Path:
    """Return the file of a split, as `find_split`.

    Raises:
        SqueezeError: the split is missing; the message lists the names that were tried and the files that exist.
    """
    path = find_split(directory, split, suffixes)
    if path is None:
        raise SqueezeError(
            f"{directory} has no {split} split: looked for {', '.join(SPELLINGS[split])} with "
            f"{', '.join(suffixes)} (.gz allowed); {_way_out(directory, split, suffixes)}"
        )
    return path


def folds(directory: Path) -> tuple[Path, ...]:
    """Return the folds of a cross-validated data set in order: sub-directories 1, 2, ... that each hold splits.

    Returns:
        () if there is no such sub-directory.
    """
    if not directory.is_dir():
        return ()
    numbered = [path for path in directory.iterdir() if path.name.isdecimal() and path.is_dir()]
    return tuple(sorted((path for path in numbered if _has_train(path)), key=lambda path: int(path.name)))


def _has_train(directory: Path) -> bool:
    return any(path.name.split(".")[0] in SPELLINGS["train"] for path in directory.iterdir())


def _file_names(split: str, suffixes: Sequence[str]) -> list[str]:
    return [name + suffix + packed for suffix in suffixes for name in SPELLINGS[split] for packed in ("", ".gz")]


def _way_out(directory: Path, split: str, suffixes: Sequence[str]) -> str:
    """Return what to do about a missing split, from the files that exist."""
    numbered = folds(directory)
    if numbered:
        return f"it holds {len(numbered)} folds; name one of them, such as {numbered[0]}"
    similar = sorted(path.name for path in directory.iterdir() if path.name.lower().startswith(SPELLINGS[split]))
    if similar:
        return f"there is {shortened(similar)}, which does not match: rename or convert it, or name another directory"
    below = sorted(_matches_below(directory, split, suffixes))
    if below:
        return f"there is {below[0]}; name its directory: {(directory / below[0]).parent}"
    names = sorted(path.name for path in directory.iterdir())
    option = ""
    if split == "dev" and names:
        option = ", or hold out a part of train where the command has --dev-share"
    elif split == "test" and split_files(directory, "dev", suffixes):
        option = ", or give --split dev where the command has that option"
    return f"it holds {shortened(names) if names else 'nothing'}; rename the file, or name another directory{option}"


def _matches_below(directory: Path, split: str, suffixes: Sequence[str]) -> Iterator[str]:
    names = _file_names(split, suffixes)
    for folder in directory.iterdir():
        if folder.is_dir():
            yield from (f"{folder.name}/{name}" for name in names if (folder / name).is_file())


def shortened(names: Sequence[str], most: int = 5) -> str:
    """Return names for a message, the first ones and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
