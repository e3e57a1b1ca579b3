"""Few-shot draws: size, order, seed and class proportions."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biosqueeze.data.sampling import apportion, describe_draw, draw_examples, hold_out
from biosqueeze.errors import UsageError


@dataclass(frozen=True)
class Item:
    number: int
    gold: Any
    document: str = ""


def items(golds: list[Any]) -> list[Item]:
    return [Item(number, gold) for number, gold in enumerate(golds)]


golds = st.lists(st.sampled_from(["no", "yes", "maybe"]), min_size=1, max_size=60)


@given(golds, st.integers(0, 3), st.data())
@settings(max_examples=100, deadline=None)
def test_a_draw_keeps_order_and_class_proportions(golds: list[str], seed: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, len(golds)))
    drawn = draw_examples(items(golds), size, seed)
    numbers = [item.number for item in drawn]
    assert numbers == sorted(set(numbers))
    assert len(drawn) == size
    assert drawn == draw_examples(items(golds), size, seed)
    found, counts = Counter(item.gold for item in drawn), Counter(golds)
    for kind, count in counts.items():
        assert abs(found[kind] - size * count / len(golds)) <= len(counts), "not in proportion"
        assert found[kind] >= 1 or size < len(counts)


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 50), min_size=1), st.data())
@settings(max_examples=80, deadline=None)
def test_shares_are_whole_and_near_exact(counts: dict[str, int], data: st.DataObject) -> None:
    total = sum(counts.values())
    size = data.draw(st.integers(1, total))
    shares = apportion(counts, size)
    assert sum(shares.values()) == size
    assert all(0 <= shares[kind] <= counts[kind] for kind in counts)
    if all(size * count / total >= 1 for count in counts.values()):
        assert all(abs(shares[kind] - size * counts[kind] / total) < 1 + 1e-9 for kind in counts)


def test_an_exact_proportion_is_kept_exactly() -> None:
    drawn = draw_examples(items(["no"] * 90 + ["yes"] * 10), 20, seed=1)
    assert Counter(item.gold for item in drawn) == {"no": 18, "yes": 2}
    assert describe_draw(drawn, 1000) == "20 of 1,000 training examples (no 18, yes 2)"


def test_seeds_differ_and_a_full_draw_is_everything() -> None:
    many = items([("O", "B")] * 40)
    assert draw_examples(many, 10, 0) != draw_examples(many, 10, 1)
    assert draw_examples(many, 40, 0) == tuple(many)


@pytest.mark.parametrize("gold", [("O", "B-Disease"), frozenset({"a"}), 0.5])
def test_examples_without_classes_are_drawn_freely(gold: Any) -> None:
    drawn = draw_examples(items([gold] * 30), 7, seed=0)
    assert len(drawn) == 7
    assert describe_draw(drawn, 30) == "7 of 30 training examples"


def test_more_than_there_are_is_refused() -> None:
    with pytest.raises(UsageError, match="--train-size 4 is more than the 3 training examples"):
        draw_examples(items(["a", "b", "c"]), 4, seed=0)


def test_the_only_example_of_a_class_is_not_held_out() -> None:
    examples = items([*["common"] * 20, "rare"])
    for seed in range(9):
        rest, held = hold_out(examples, 0.2, seed)
        assert (len(held), examples[-1] in rest, examples[-1] in held) == (4, True, False)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=30), st.floats(0.05, 0.6), st.integers(0, 3), st.booleans())
@settings(max_examples=150, deadline=None)
def test_no_document_is_divided(lengths: list[int], share: float, seed: int, has_classes: bool) -> None:
    examples = [
        Item(0, "ab"[n % 2] if has_classes else ("O",), f"text {number}")
        for number, n in enumerate(lengths)
        for _ in range(n)
    ]
    rest, held = hold_out(examples, share, seed)
    assert rest
    assert held
    assert sorted(map(id, rest + held)) == sorted(map(id, examples))
    if max(lengths) > 1:
        assert {item.document for item in rest}.isdisjoint(item.document for item in held)
    assert (rest, held) == hold_out(examples, share, seed)


def test_about_the_share_of_whole_documents_is_held_out() -> None:
    examples = [Item(n, ("O",), f"text {n // 8}") for n in range(800)]
    for seed in range(5):
        held = hold_out(examples, 0.1, seed)[1]
        assert len(held) == 80
        assert list(held) == sorted(held, key=lambda item: item.number)
    assert hold_out(examples, 0.1, 0) != hold_out(examples, 0.1, 1)


def test_a_class_of_one_document_is_not_held_out() -> None:
    examples = [Item(n, "rare" if n < 2 else "common", f"text {n // 2}") for n in range(20)]
    for seed in range(9):
        rest, held = hold_out(examples, 0.2, seed)
        assert (len(held), examples[0] in rest) == (4, True)


def test_the_only_document_is_divided() -> None:
    rest, held = hold_out([Item(n, ("O",), "text") for n in range(10)], 0.2, 0)
    assert (len(rest), len(held)) == (8, 2)


@pytest.mark.parametrize("document", ["", "text {0}"])
def test_examples_without_shared_documents_are_drawn_as_before(document: str) -> None:
    examples = [Item(n, "ab"[n % 2], document.format(n)) for n in range(20)]
    assert [item.number for item in hold_out(examples, 0.2, 0)[1]] == [5, 8, 12, 19]
