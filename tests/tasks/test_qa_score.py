"""Scores of span answers against naive ones written from the definitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.tasks.metrics.answers import Answers, normalise
from biosqueeze.tasks.qa import Kind

PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
# Words, articles, signs and letters that lower() or \b treat in their own way, glued together in any order.
PARTS = st.sampled_from(
    ["the", "The", "a", "an", "An", "BRCA1", "brca1", "IL-2", "il", "2", " ", "  ", "\t", ".", "-", "'"]
)
TEXT = st.one_of(
    st.lists(PARTS, max_size=8).map("".join), st.lists(PARTS, max_size=8).map(" ".join), st.text(max_size=12)
)
SOLID = TEXT.filter(str.strip)
GOLD = st.lists(SOLID, min_size=1, max_size=3).map(lambda texts: Answers(tuple(texts)))
OPEN_GOLD = st.one_of(st.just(Answers(())), GOLD)
FEW = st.sampled_from(["BRCA1", "brca1", "the IL-2", "IL-2", "il 2", "IL", "x"])  # so few that answers are often right
FEW_GOLD = st.lists(FEW, max_size=3).map(lambda texts: Answers(tuple(texts)))


@st.composite
def guesses(draw, text=SOLID) -> Answers:
    texts = tuple(draw(st.lists(text, max_size=8, unique=True)))
    scores = sorted((draw(st.integers(-9, 9)) / 2 for _ in texts), reverse=True)
    return Answers(texts, tuple(scores), draw(st.integers(-9, 9)) / 2)


def bare(text: str) -> str:
    """Lower case; no ASCII punctuation; a, an and the that touch no letter, digit or underscore are a space."""
    text = "".join(letter for letter in text.lower() if letter not in PUNCTUATION)
    kept, word = "", ""
    for letter in text + " ":
        if letter.isalnum() or letter == "_":
            word += letter
        else:
            kept += (" " if word in ("a", "an", "the") else word) + letter
            word = ""
    return " ".join(kept.split())


def overlap(first: list[str], second: list[str]) -> int:
    left, shared = list(second), 0
    for word in first:
        if word in left:
            left.remove(word)
            shared += 1
    return shared


def one(gold: Answers, text: str, open_world: bool) -> tuple[float, float]:
    """Exact match and F1 of one question, SQuAD 2.0's or 1.1's way."""
    golds = [bare(text) for text in gold.texts]
    if open_world:
        golds = [text for text in golds if text]
        golds = golds or [""]
    best_exact = best_f1 = 0.0
    for right in golds:
        best_exact = max(best_exact, 1.0 if right == bare(text) else 0.0)
        shared = overlap(right.split(), bare(text).split())
        if open_world and not (right and bare(text)):
            f1 = 1.0 if right == bare(text) else 0.0
        elif shared == 0:
            f1 = 0.0
        else:
            precision, recall = shared / len(bare(text).split()), shared / len(right.split())
            f1 = 2 * precision * recall / (precision + recall)
        best_f1 = max(best_f1, f1)
    return best_exact, best_f1


def mean(values) -> float:
    values = list(values)
    return sum(values) / len(values) if values else 0.0


def odds(guess: Answers) -> float:
    return guess.null - guess.scores[0] if guess.scores else 0.0


@given(TEXT)
def test_normalise(text):
    assert normalise(text) == bare(text)


@given(st.lists(st.tuples(GOLD, guesses()), min_size=1, max_size=6))
def test_squad_1_scores_equal_naive_ones(pairs):
    gold, predicted = zip(*pairs, strict=True)
    scores = Kind().score(gold, predicted)
    marks = [one(g, p.texts[0] if p.texts else "", False) for g, p in pairs]
    assert scores["exact"] == pytest.approx(mean(m[0] for m in marks))
    assert scores["f1"] == pytest.approx(mean(m[1] for m in marks))
    assert scores["support"] == len(pairs)
    assert not any("Ans" in name or "best" in name for name in scores)


@given(st.lists(st.tuples(OPEN_GOLD, guesses()), max_size=6))
def test_squad_2_scores_equal_naive_ones(pairs):
    pairs = [*pairs, (Answers(()), Answers(("x",), (1.0,), 0.0))]
    gold, predicted = zip(*pairs, strict=True)
    scores = Kind().score(gold, predicted)
    marks = [one(g, p.texts[0] if p.texts and odds(p) <= 0 else "", True) for g, p in pairs]
    for place, name in enumerate(("exact", "f1")):
        assert scores[name] == pytest.approx(mean(m[place] for m in marks))
        for suffix, has in (("HasAns", True), ("NoAns", False)):
            kept = [m[place] for m, g in zip(marks, gold, strict=True) if bool(g.texts) is has]
            assert scores[f"{name}-{suffix}"] == pytest.approx(mean(kept))
            assert scores[f"support-{suffix}"] == len(kept)


@given(st.lists(st.tuples(OPEN_GOLD, guesses()) | st.tuples(FEW_GOLD, guesses(FEW)), max_size=6))
def test_best_threshold_equals_exhaustive_search(pairs):
    pairs = [*pairs, (Answers(()), Answers(("x",), (1.0,), 0.0))]
    # Without equal odds every number of answered questions is some threshold.
    pairs = [
        (g, Answers(p.texts, p.scores, p.null + index / 100) if p.texts else Answers((), (), 0.0))
        for index, (g, p) in enumerate(pairs)
    ]
    pairs = [(g, p) for g, p in pairs if p.texts]
    gold, predicted = zip(*pairs, strict=True)
    scores = Kind().score(gold, predicted)
    for place, name in enumerate(("exact", "f1")):

        def at(threshold: float, place: int = place) -> float:
            said = [p.texts[0] if odds(p) <= threshold else "" for p in predicted]
            # A question without an answer is right if nothing is said, even where what is said is all punctuation.
            return mean(
                one(g, text, True)[place] if g.texts else float(not text) for g, text in zip(gold, said, strict=True)
            )

        tried = [at(threshold) for threshold in [-1e9, *map(odds, predicted)]]
        # The official way counts a question with an answer as lost while it is not answered.
        if all(bare(text) for g in gold for text in g.texts):
            assert scores[f"best_{name}"] == pytest.approx(max(tried))
            if scores[f"best_{name}"] > at(-1e9):
                assert at(scores[f"best_{name}_thresh"]) == pytest.approx(max(tried))


@given(st.lists(st.tuples(OPEN_GOLD, guesses()) | st.tuples(FEW_GOLD, guesses(FEW)), min_size=1, max_size=6))
def test_bioasq_scores_equal_naive_ones(pairs):
    gold, predicted = zip(*pairs, strict=True)
    scores = Kind().score(gold, predicted)
    ranks = []
    for g, p in pairs:
        if not g.texts:
            continue
        shown = []
        for text in p.texts:
            if text.lower() not in shown and len(shown) < 5:
                shown.append(text.lower())
        right = [place for place, text in enumerate(shown, 1) if any(text == synonym.lower() for synonym in g.texts)]
        ranks.append(right[0] if right else None)
    assert scores["strict_accuracy"] == pytest.approx(mean(rank == 1 for rank in ranks))
    assert scores["lenient_accuracy"] == pytest.approx(mean(rank is not None for rank in ranks))
    assert scores["mrr"] == pytest.approx(mean(1 / rank if rank else 0 for rank in ranks))


def test_only_the_first_five_different_answers_count():
    gold = [Answers(("Dystrophin", "DMD"))]
    late = Answers(("a1", "A1", "b", "c", "d", "dmd"), (6.0, 5.0, 4.0, 3.0, 2.0, 1.0))
    assert Kind().score(gold, [late])["mrr"] == 1 / 5
    later = Answers(("a", "b", "c", "d", "e", "dmd"), (6.0, 5.0, 4.0, 3.0, 2.0, 1.0))
    assert Kind().score(gold, [later])["mrr"] == Kind().score(gold, [later])["lenient_accuracy"] == 0


@given(st.lists(OPEN_GOLD, min_size=1, max_size=5))
def test_gold_against_itself_is_perfect(gold):
    if all(normalise(text) for answers in gold for text in answers.texts):
        scores = Kind().score(gold, gold)
        assert scores["exact"] == scores["f1"] == 1
        answered = float(any(g.texts for g in gold))
        assert scores["strict_accuracy"] == scores["lenient_accuracy"] == scores["mrr"] == answered


def test_the_metric_is_among_the_scores_and_counts_are_ints():
    scores = Kind().score([Answers(()), Answers(("x",))], [Answers(()), Answers(("x",), (1.0,))])
    assert Kind.METRIC in scores
    assert {name for name, value in scores.items() if isinstance(value, int)} == {
        "support", "support-HasAns", "support-NoAns",
    }  # fmt: skip


def test_no_answer_needs_to_score_higher_than_the_best_one():
    gold = [Answers(()), Answers(("lupus",))]
    even = [Answers(("sepsis",), (2.0,), 2.0), Answers(("lupus",), (2.0,), 2.0)]
    scores = Kind().score(gold, even)
    assert (scores["f1-NoAns"], scores["f1-HasAns"]) == (0, 1)
    scores = Kind().score(gold, [Answers(("sepsis",), (2.0,), 2.5), Answers(("lupus",), (2.0,), 2.6)])
    assert (scores["f1-NoAns"], scores["f1-HasAns"]) == (1, 0)
    assert scores["best_f1"] == 0.5
    scores = Kind().score(gold, [Answers(("sepsis",), (2.0,), 2.7), Answers(("lupus",), (2.0,), 2.6)])
    assert scores["best_f1"] == 1
    assert scores["best_f1_thresh"] == pytest.approx(0.6)
