"""Statistics of a data set: lengths in words, label counts, and texts that occur in two splits."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from statistics import fmean, median
from typing import Any

from biosqueeze.tasks import Dataset
from biosqueeze.tasks.encoding.tag_schemes import spans_of, split_tag

FIRST_BIN = 8  # words; each further bin is as wide as all previous ones together
FEWEST_WORDS = 4  # shorter texts, such as headings, recur without being copies
NO_TYPE = "entity"


def dataset_statistics(dataset: Dataset, kind: str) -> dict[str, Any]:
    """Compute the statistics of `biosqueeze tasks inspect`, ready for JSON.

    Args:
        dataset: as read by the kind.
        kind: name of the task kind.

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
                "golds": gold_counts(kind, [example.gold for example in examples]),
            }
            for split, examples in dataset.splits.items()
        },
        "overlaps": list(split_overlaps(texts)),
    }


def gold_counts(kind: str, golds: Sequence[Any]) -> dict[str, float]:
    """Count the gold labels; of scores return the lowest, mean and highest.

    For ner entities are counted by type, for pico words by element, for qa questions with an answer and without.
    """
    if golds and all(isinstance(gold, float) for gold in golds):
        return {"lowest": min(golds), "mean": fmean(golds), "highest": max(golds)}
    counts = Counter(label for gold in golds for label in _labels(kind, gold))
    return {label: counts[label] for label in sorted(counts, key=lambda label: (-counts[label], label))}


def _labels(kind: str, gold: Any) -> Iterable[str]:
    if isinstance(gold, str):
        return [gold]
    if isinstance(gold, frozenset | set):
        return sorted(map(str, gold)) or ["(none)"]
    if kind == "pico":
        return [split_tag(tag)[1] or NO_TYPE for tag in gold if tag != "O"]
    if isinstance(gold, tuple | list):
        return [span.type or NO_TYPE for span in spans_of(gold)]
    return ["with an answer" if getattr(gold, "texts", ()) else "without an answer"]


def split_overlaps(texts: Mapping[str, Sequence[tuple[str, ...]]]) -> Iterator[dict[str, Any]]:
    """Count for each two splits the texts of the second that are in the first.

    Texts of fewer than FEWEST_WORDS words are left out; case is ignored.
    """
    for first, second in combinations(texts, 2):
        known = {_plain(words) for words in texts[first]}
        long = [words for words in texts[second] if len(words) >= FEWEST_WORDS]
        shared = sum(_plain(words) in known for words in long)
        yield {"of": second, "in": first, "shared": shared, "texts": len(long)}


def _plain(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(word.casefold() for word in words)


def _words_of(example: Any) -> tuple[str, ...]:
    """Return the words of an example of any kind; for a question, also those of its passages."""
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
    """Return the upper end of the bin of a length: 8, 16, 32, ..."""
    top = FIRST_BIN
    while length > top:
        top *= 2
    return top
