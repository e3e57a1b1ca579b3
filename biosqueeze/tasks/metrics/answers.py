"""Answers to questions, and their scores: SQuAD's exact match and F1, BioASQ's accuracies and reciprocal rank."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(a|an|the)\b")
RANKS = 5  # BioASQ's lenient accuracy and reciprocal rank look at this many answers
NULL_THRESHOLD = 0.0


@dataclass(frozen=True)
class Answers:
    """What answers a question: as gold every text that will do (none: it has no answer), as prediction ranked."""

    texts: tuple[str, ...]
    scores: tuple[float, ...] = ()  # of a prediction: start logit + end logit of each text, highest first
    null: float = 0.0  # of a prediction: the score of there being no answer, on the same scale

    @property
    def best(self) -> str:
        """The first text, or "" without any."""
        return self.texts[0] if self.texts else ""

    @property
    def odds(self) -> float:
        """By how much no answer scores over the best one; 0 where nothing was scored."""
        return self.null - self.scores[0] if self.scores else 0.0


def normalise(text: str) -> str:
    """Lower case, without ASCII punctuation, English articles and repeated white space.

    Source: Rajpurkar et al. 2016, section 6.1, as the official script does it.
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def score(gold: Sequence[Answers], predicted: Sequence[Answers]) -> dict[str, float]:
    """Every score of span answers, each in 0..1.

    Where some question has no answer, SQuAD 2.0's definition holds, else 1.1's.

    Args:
        gold: for each question what will do.
        predicted: for each question what was found.

    Returns:
        exact and f1 of the first answer, support (questions); strict_accuracy, lenient_accuracy and mrr; and where
        some question has no answer also f1-HasAns, f1-NoAns and the like, and best_exact and best_f1: what the best
        threshold on the odds of no answer would give, with that threshold (best_f1_thresh).
    """
    open_world = any(not truth.texts for truth in gold)
    said = [_said(guess) if open_world else guess.best for guess in predicted]
    marks = [_marks(truth, text, open_world) for truth, text in zip(gold, said, strict=True)]
    scores: dict[str, float] = {**_means(marks, ""), **_bioasq(gold, predicted)}
    if open_world:
        for name, wanted in (("HasAns", True), ("NoAns", False)):
            kept = [mark for mark, truth in zip(marks, gold, strict=True) if bool(truth.texts) is wanted]
            scores |= _means(kept, f"-{name}")
        scores |= _best(gold, predicted)
    return scores


def _said(guess: Answers) -> str:
    return "" if guess.odds > NULL_THRESHOLD else guess.best


def _marks(truth: Answers, text: str, open_world: bool) -> tuple[float, float]:
    """Exact match and F1 against the gold text that fits best."""
    right = [normalise(one) for one in truth.texts]
    if open_world:
        right = [one for one in right if one] or [""]
    answer = normalise(text)
    return float(answer in right), max(_f1(one, answer, open_world) for one in right)


def _f1(right: str, answer: str, open_world: bool) -> float:
    """F1 over the bags of words; two empty ones are equal in SQuAD 2.0 and have nothing in common in 1.1."""
    truth, guess = right.split(), answer.split()
    if not truth and not guess:
        return float(open_world)
    shared = (Counter(truth) & Counter(guess)).total()
    return 2 * shared / (len(truth) + len(guess))


def _means(marks: Sequence[tuple[float, float]], suffix: str) -> dict[str, float]:
    count = max(1, len(marks))
    return {
        f"exact{suffix}": sum(exact for exact, _ in marks) / count,
        f"f1{suffix}": sum(f1 for _, f1 in marks) / count,
        f"support{suffix}": len(marks),
    }


def _bioasq(gold: Sequence[Answers], predicted: Sequence[Answers]) -> dict[str, float]:
    """BioASQ's measures of factoid questions, over those that have an answer: equal but for capitals is right."""
    pairs = [(truth, guess) for truth, guess in zip(gold, predicted, strict=True) if truth.texts]
    ranks = [_rank(truth, guess) for truth, guess in pairs]
    count = max(1, len(ranks))
    return {
        "strict_accuracy": sum(rank == 1 for rank in ranks) / count,
        "lenient_accuracy": sum(rank > 0 for rank in ranks) / count,
        "mrr": sum(1 / rank for rank in ranks if rank) / count,
    }


def _rank(truth: Answers, guess: Answers) -> int:
    """The place, from 1, of the first right text among the first different ones; 0 if it is not among them."""
    right = {text.lower() for text in truth.texts}
    different = list(dict.fromkeys(text.lower() for text in guess.texts))[:RANKS]
    return next((place for place, text in enumerate(different, start=1) if text in right), 0)


def _best(gold: Sequence[Answers], predicted: Sequence[Answers]) -> dict[str, float]:
    """The best scores that a threshold on the odds of no answer could reach.

    As the official script of SQuAD 2.0 computes them: the questions are answered one after the other, those first
    that are the least likely to have none (of equal ones the first in the data), and the best moment is kept.
    """
    marks = [_marks(truth, guess.best, True) for truth, guess in zip(gold, predicted, strict=True)]
    order = sorted(range(len(gold)), key=lambda index: predicted[index].odds)
    best: dict[str, float] = {}
    for place, name in enumerate(("exact", "f1")):
        reached = now = float(sum(not truth.texts for truth in gold))
        threshold = 0.0
        for index in order:
            now += marks[index][place] if gold[index].texts else -float(bool(predicted[index].best))
            if now > reached:
                reached, threshold = now, predicted[index].odds
        best |= {f"best_{name}": reached / max(1, len(gold)), f"best_{name}_thresh": threshold}
    return best
