"""Answers to questions, and their scores: SQuAD's exact match and F1, BioASQ's accuracies and reciprocal rank."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(a|an|the)\b")
RANKS = 5  # how many answers count for BioASQ's lenient accuracy and reciprocal rank
NULL_THRESHOLD = 0.0


@dataclass(frozen=True)
class Answers:
    """The answers to a question: as gold all accepted texts (none if there is no answer), as prediction ranked ones."""

    texts: tuple[str, ...]
    scores: tuple[float, ...] = ()  # of a prediction: start logit + end logit of each text, highest first
    null: float = 0.0  # of a prediction: the score of no answer, on the same scale

    @property
    def best(self) -> str:
        """The first text, or "" if there is none."""
        return self.texts[0] if self.texts else ""

    @property
    def null_margin(self) -> float:
        """The score of no answer minus that of the best answer; 0 without scores."""
        return self.null - self.scores[0] if self.scores else 0.0


def normalise(text: str) -> str:
    """Return the text in lower case, without ASCII punctuation, English articles and repeated white space.

    Source: Rajpurkar et al. 2016, section 6.1, as implemented in the official script.
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def score_answers(gold: Sequence[Answers], predicted: Sequence[Answers]) -> dict[str, float]:
    """Compute all scores of span answers, each in 0..1.

    The definitions are those of SQuAD 2.0 if some question has no answer, and else those of 1.1.

    Args:
        gold: for each question the accepted answers.
        predicted: for each question the predicted answers.

    Returns:
        exact and f1 of the first answer, support (questions); strict_accuracy, lenient_accuracy and mrr; and if
        some question has no answer also f1-HasAns, f1-NoAns and the like, and best_exact and best_f1: the scores at the
        best threshold on `null_margin`, with that threshold (best_f1_thresh).
    """
    unanswerable = any(not answers.texts for answers in gold)
    texts = [_text_or_none(answers) if unanswerable else answers.best for answers in predicted]
    marks = [_marks(answers, text, unanswerable) for answers, text in zip(gold, texts, strict=True)]
    scores: dict[str, float] = {**_means(marks, ""), **_bioasq(gold, predicted)}
    if unanswerable:
        for name, wanted in (("HasAns", True), ("NoAns", False)):
            subset = [mark for mark, answers in zip(marks, gold, strict=True) if bool(answers.texts) is wanted]
            scores |= _means(subset, f"-{name}")
        scores |= _best_thresholds(gold, predicted)
    return scores


def _text_or_none(predicted: Answers) -> str:
    """Return the best text, or "" if no answer scores higher."""
    return "" if predicted.null_margin > NULL_THRESHOLD else predicted.best


def _marks(gold: Answers, text: str, unanswerable: bool) -> tuple[float, float]:
    """Return exact match and F1 against the best fitting gold text."""
    accepted = [normalise(gold_text) for gold_text in gold.texts]
    if unanswerable:
        accepted = [gold_text for gold_text in accepted if gold_text] or [""]
    answer = normalise(text)
    return float(answer in accepted), max(_f1(gold_text, answer, unanswerable) for gold_text in accepted)


def _f1(gold: str, predicted: str, unanswerable: bool) -> float:
    """Return F1 over the bags of words; of two empty ones it is 1 in SQuAD 2.0 and 0 in 1.1."""
    gold_words, predicted_words = gold.split(), predicted.split()
    if not gold_words and not predicted_words:
        return float(unanswerable)
    shared = (Counter(gold_words) & Counter(predicted_words)).total()
    return 2 * shared / (len(gold_words) + len(predicted_words))


def _means(marks: Sequence[tuple[float, float]], suffix: str) -> dict[str, float]:
    count = max(1, len(marks))
    return {
        f"exact{suffix}": sum(exact for exact, _ in marks) / count,
        f"f1{suffix}": sum(f1 for _, f1 in marks) / count,
        f"support{suffix}": len(marks),
    }


def _bioasq(gold: Sequence[Answers], predicted: Sequence[Answers]) -> dict[str, float]:
    """Return BioASQ's scores of factoid questions, over those with an answer; texts are compared without case."""
    pairs = zip(gold, predicted, strict=True)
    ranks = [_rank(answers, ranked) for answers, ranked in pairs if answers.texts]
    count = max(1, len(ranks))
    return {
        "strict_accuracy": sum(rank == 1 for rank in ranks) / count,
        "lenient_accuracy": sum(rank > 0 for rank in ranks) / count,
        "mrr": sum(1 / rank for rank in ranks if rank) / count,
    }


def _rank(gold: Answers, predicted: Answers) -> int:
    """Return the rank, from 1, of the first accepted text among the first RANKS different ones; 0 without any."""
    accepted = {text.lower() for text in gold.texts}
    different = list(dict.fromkeys(text.lower() for text in predicted.texts))[:RANKS]
    return next((rank for rank, text in enumerate(different, start=1) if text in accepted), 0)


def _best_thresholds(gold: Sequence[Answers], predicted: Sequence[Answers]) -> dict[str, float]:
    """Return the best scores that a threshold on `null_margin` could reach, and those thresholds.

    Computed as in the official script of SQuAD 2.0: starting without any answers, the predictions are added by rising
    margin (equal ones in the order of the data), and the maximum is kept.
    """
    marks = [_marks(answers, ranked.best, True) for answers, ranked in zip(gold, predicted, strict=True)]
    order = sorted(range(len(gold)), key=lambda index: predicted[index].null_margin)
    best: dict[str, float] = {}
    for column, name in enumerate(("exact", "f1")):
        highest = total = float(sum(not answers.texts for answers in gold))
        threshold = 0.0
        for index in order:
            total += marks[index][column] if gold[index].texts else -float(bool(predicted[index].best))
            if total > highest:
                highest, threshold = total, predicted[index].null_margin
        best |= {f"best_{name}": highest / max(1, len(gold)), f"best_{name}_thresh": threshold}
    return best
