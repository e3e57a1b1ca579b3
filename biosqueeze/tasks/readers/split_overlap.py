"""Check that splits are disjoint: a score on text that was used for training or selection is meaningless."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from biosqueeze.errors import SqueezeError
from biosqueeze.progress import note

MOST_SHARED = 0.9
FEWEST_WORDS = 4  # shorter texts, such as headings, recur in unrelated documents
_USES = {"dev": "selection", "train": "training"}
_WAY_OUT = "put other texts in {split}, or remove the test file to go without one"


def check_disjoint(
    split: str, texts: Sequence[str | Sequence[str]], test: Sequence[str | Sequence[str]], source: str
) -> None:
    """Refuse a split that repeats the test split, and log the overlap if it is smaller.

    Args:
        split: train or dev.
        texts: its texts, as strings or as words: what distinguishes examples of the task kind.
        test: those of the test split.
        source: the data source as the user named it.

    Raises:
        SqueezeError: more than 90% of the texts of four words or more are in the test split literally.
    """
    known = set(map(_words, test))
    long = [words for words in map(_words, texts) if len(words) >= FEWEST_WORDS]
    shared = sum(words in known for words in long)
    if shared > MOST_SHARED * len(long):
        raise SqueezeError(
            f"{source}: a test split used for {_USES[split]}: {shared:,} of {len(long):,} {split} texts are literally "
            f"in test; {_WAY_OUT.format(split=split)}"
        )
    if shared:
        note(f"{source}: {shared:,} of {len(long):,} {split} texts of {FEWEST_WORDS} words or more are in test too")


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


def _words(text: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(text.split() if isinstance(text, str) else text)
