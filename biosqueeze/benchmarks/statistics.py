"""What a data set looks like, without a model: lengths in words, labels with counts, texts that splits share."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from statistics import fmean, median
from typing import Any

from biosqueeze.tasks import Dataset
from biosqueeze.tasks.encoding.tag_schemes import spans_of, split_tag

FIRST_BIN = 8  # words; each bin after it is as wide as all before it together
FEWEST_WORDS = 4  # headings and other stubs recur from text to text, and prove nothing
NO_TYPE = "entity"


def survey(dataset: Dataset, kind: str) -> dict[str, Any]:
    """What `biosqueeze tasks inspect` shows, ready for JSON.

    Args:
        dataset: as the kind read it.
        kind: of task.

    Returns:
        scheme and labels; for each split examples, lengths in words (longest, median, mean, and the histogram by upper
        end of each bin) and label counts; and the overlaps, each with the two splits and how many texts they share.
    """
    texts = {split: [_words_of(example) for example in examples] for split, examples in dataset.splits.items()}
    return {
        "scheme": dataset.scheme,
        "labels": list(dataset.labels),
        "splits": {
            split: {
                "examples": len(examples),
                "words": _lengths([len(words) for words in texts[split]]),
                "golds": golds(kind, [example.gold for example in examples]),
            }
            for split, examples in dataset.splits.items()
        },
        "overlaps": list(overlaps(texts)),
    }


def golds(kind: str, answers: Sequence[Any]) -> dict[str, float]:
    """How often each label holds; of scores the lowest, mean and highest.

    For ner these are entities by type, for pico words by element, for qa questions with an answer and without.
    """
    if answers and all(isinstance(answer, float) for answer in answers):
        return {"lowest": min(answers), "mean": fmean(answers), "highest": max(answers)}
    counts = Counter(label for answer in answers for label in _labels(kind, answer))
    return {label: counts[label] for label in sorted(counts, key=lambda label: (-counts[label], label))}


def _labels(kind: str, answer: Any) -> Iterable[str]:
    if isinstance(answer, str):
        return [answer]
    if isinstance(answer, frozenset | set):
        return sorted(map(str, answer)) or ["(none)"]
    if kind == "pico":
        return [split_tag(tag)[1] or NO_TYPE for tag in answer if tag != "O"]
    if isinstance(answer, tuple | list):
        return [span.type or NO_TYPE for span in spans_of(answer)]
    return ["with an answer" if getattr(answer, "texts", ()) else "without an answer"]


def overlaps(texts: Mapping[str, Sequence[tuple[str, ...]]]) -> Iterator[dict[str, Any]]:
    """For each two splits, how many texts of the second (of four words or more, but for capitals) are in the first."""
    for first, second in combinations(texts, 2):
        known = {_plain(words) for words in texts[first]}
        long = [words for words in texts[second] if len(words) >= FEWEST_WORDS]
        shared = sum(_plain(words) in known for words in long)
        yield {"of": second, "in": first, "shared": shared, "texts": len(long)}


def _plain(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(word.casefold() for word in words)


def _words_of(example: Any) -> tuple[str, ...]:
    """The words of an example of any kind; of a question, those of its passages too."""
    if hasattr(example, "words"):
        return tuple(example.words)
    if hasattr(example, "texts"):
        return tuple(" ".join(example.texts).split())
    passages = [passage.text for passage in getattr(example, "passages", ())]
    return tuple(" ".join([example.text, *passages]).split())


def _lengths(lengths: Sequence[int]) -> dict[str, Any]:
    histogram = Counter(map(_bin, lengths))
    return {
        "longest": max(lengths, default=0),
        "median": median(lengths) if lengths else 0,
        "mean": round(fmean(lengths), 1) if lengths else 0.0,
        "histogram": {str(top): histogram[top] for top in sorted(histogram)},
    }


def _bin(length: int) -> int:
    """The upper end of the bin that a length falls into: 8, 16, 32, ..."""
    top = FIRST_BIN
    while length > top:
        top *= 2
    return top
