"""Check that splits are disjoint: a score on text that was used for training or selection is meaningless."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from pathlib import Path

from biosqueeze.data.records.tables import splits_of
from biosqueeze.errors import SqueezeError
from biosqueeze.progress import note

MOST_SHARED = 0.9
FEWEST_WORDS = 4  # shorter texts, such as headings, recur in unrelated documents
FEWEST_TEXTS = 3  # long ones; fewer among many short ones may be equal by chance
_LONG_WORD = 20  # characters
_USES = {"dev": "selection", "train": "training"}
_WAY_OUT = "put other texts in {split}, or remove the test file to go without one"


def with_test(splits: Sequence[str], available: Iterable[str]) -> tuple[str, ...]:
    """Return the splits to read: with train also an available test split, to check that the two are disjoint.

    So errors in it are found before training.
    """
    if "train" in splits and "test" not in splits and "test" in available:
        return (*splits, "test")
    return tuple(splits)


def with_test_of(source: str, splits: Sequence[str]) -> tuple[str, ...]:
    """Return the splits to read of a data set of records; see `with_test`."""
    return with_test(splits, splits_of(source) if "train" in splits else ())


def check_disjoint(
    split: str, texts: Sequence[str | Sequence[str]], test: Sequence[str | Sequence[str]], source: str
) -> None:
    """Refuse a split that repeats the test split or holds it, and log the overlap if it is smaller.

    Args:
        split: train or dev.
        texts: its texts, as strings or as words: what distinguishes examples of the task kind.
        test: those of the test split.
        source: the data source as the user named it.

    Raises:
        SqueezeError: more than 90% of the long texts of one of the two are in the other literally.
    """
    for (name, ours), (other, theirs) in permutations([(split, texts), ("test", test)]):
        known = set(map(_words, theirs))
        long = [words for words in map(_words, ours) if _is_long(words)]
        shared = sum(words in known for words in long)
        are_typical = len(long) >= FEWEST_TEXTS or 2 * len(long) >= len(ours)
        if are_typical and shared > MOST_SHARED * len(long):
            raise SqueezeError(
                f"{source}: a test split used for {_USES[split]}: {shared:,} of {len(long):,} {name} texts are "
                f"literally in {other}; {_WAY_OUT.format(split=split)}"
            )
        if shared and name == split:
            note(f"{source}: {shared:,} of {len(long):,} {name} texts of {FEWEST_WORDS} words or more are in test too")


def check_files(files: Mapping[str, Path]) -> None:
    """Refuse one file, or links to it, as two splits, also if its texts are too short for `check_disjoint`.

    Raises:
        SqueezeError: train or dev is the file of test.
    """
    for split, use in _USES.items():
        if split in files and "test" in files and files[split].samefile(files["test"]):
            raise SqueezeError(
                f"{files[split]} is the same file as {files['test'].name}: a test split used for {use}; "
                f"{_WAY_OUT.format(split=split)}"
            )


def _is_long(words: Sequence[str]) -> bool:
    """Return whether a text is no heading; Chinese and Japanese have no spaces."""
    return len(words) >= FEWEST_WORDS or any(len(word) >= _LONG_WORD for word in words)


def _words(text: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(text.split() if isinstance(text, str) else text)
