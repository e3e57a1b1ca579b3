"""Splits must not share what they hold: a score on text that was trained on, or selected by, says nothing."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from biosqueeze.errors import SqueezeError
from biosqueeze.progress import note

MOST_SHARED = 0.9
FEWEST_WORDS = 4  # headings and other stubs recur from text to text, and prove nothing


def check_disjoint(
    split: str, chosen: Sequence[str | Sequence[str]], test: Sequence[str | Sequence[str]], source: str
) -> None:
    """Refuse a split that is the test split over again, and say how much of it stands there too if it is less.

    Args:
        split: train or dev.
        chosen: its texts, as strings or as words; what a kind tells examples apart by.
        test: those of the test split.
        source: what the user gave as data.

    Raises:
        SqueezeError: more than 90% of the texts of four words or more are in the test split literally.
    """
    known = set(map(_words, test))
    texts = [words for words in map(_words, chosen) if len(words) >= FEWEST_WORDS]
    shared = sum(words in known for words in texts)
    if shared > MOST_SHARED * len(texts):
        use = "selection" if split == "dev" else "training"
        raise SqueezeError(
            f"{source}: a test split used for {use}: {shared:,} of {len(texts):,} {split} texts are literally in test; "
            f"put other texts in {split}, or take the test file away to go without one"
        )
    if shared:
        note(f"{source}: {shared:,} of {len(texts):,} {split} texts of {FEWEST_WORDS} words or more are in test too")


def check_files(files: Mapping[str, Path]) -> None:
    """Refuse one file, or links to it, as two splits, however short its texts are.

    Raises:
        SqueezeError: train or dev is the file of test.
    """
    for split, use in (("dev", "selection"), ("train", "training")):
        if split in files and "test" in files and files[split].samefile(files["test"]):
            raise SqueezeError(
                f"{files[split]} is the same file as {files['test'].name}: a test split used for {use}; "
                f"put other texts in {split}, or take the test file away to go without one"
            )


def _words(text: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(text.split() if isinstance(text, str) else text)
