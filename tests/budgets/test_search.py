"""Shapes of a budget: counts are exact, importance grows with every size, and the best shape that fits is chosen."""

import functools
import itertools

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from biosqueeze.budgets.budget import Budget, budgets_of
from biosqueeze.budgets.choice import Candidate, best, largest, pareto_front, thinned
from biosqueeze.budgets.counts import Counts, ShapeCounter
from biosqueeze.budgets.kept import KeptImportance, most_important
from biosqueeze.budgets.options import BudgetOptions
from biosqueeze.budgets.shapes import Shape, own_shape, shapes_of
from biosqueeze.models.cuts.unit_scores import UnitScores
from biosqueeze.models.cuts.width import Widths, narrow
from biosqueeze.models.families import family_of
from tests import pico

OWN = Shape(3, 4, 8)


@functools.cache
def config_of(family):
    return pico.config_of(family, 50)


@pytest.mark.parametrize("family", [family for family, row in pico.ROWS.items() if not row.same_code_as])
def test_counts_are_those_of_the_models(family):
    config = config_of(family)
    narrows = family_of(config).supports_narrowing
    counter = ShapeCounter(config, pico.class_of(family, "token-classification"), 16)
    shapes = shapes_of(config, narrows=narrows)
    assert own_shape(config) == max(shapes)
    for shape in (shapes[0], shapes[len(shapes) * 2 // 3], shapes[-1]):
        assert counter.count(shape) == counter.of(shape)


def test_neurons_are_rounded_and_impossible_heads_left_out():
    shapes = shapes_of(config_of("electra"), narrows=True)
    assert {shape.heads for shape in shapes} == {1, 3, 4}  # two heads have the hidden size of the embeddings
    assert {shape.ffn for shape in shapes} >= {4, 32, 64}
    assert {shape.heads for shape in shapes_of(config_of("eurobert"), narrows=True)} == {2, 4}
    assert shapes_of(config_of("albert"), narrows=False) == tuple(Shape(n, 4, 64) for n in (1, 2, 3, 4))


def naive_share(scores, shape, own):
    """The formula of `kept`, summed unit by unit."""
    total = sum(scores["layers"])
    kept = 0.0
    for layer in sorted(range(own.layers), key=lambda i: -scores["layers"][i])[: shape.layers]:
        parts = []
        for kind, count in (("heads", shape.heads), ("neurons", shape.ffn)):
            values = sorted(scores[kind][layer], reverse=True)
            parts.append(sum(values[:count]) / sum(values))
        kept += scores["layers"][layer] / total * (parts[0] * parts[1]) ** 0.5
    hidden = sorted(scores["hidden"], reverse=True)
    return kept * sum(hidden[: len(hidden) * shape.heads // own.heads]) / sum(hidden)


def drawn(seed):
    generator = torch.Generator().manual_seed(seed)
    sizes = {"heads": (3, 4), "neurons": (3, 8), "hidden": (12,), "layers": (3,)}
    return {kind: torch.rand(size, generator=generator, dtype=torch.float64) + 0.01 for kind, size in sizes.items()}


shapes = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 8)).map(lambda sizes: Shape(*sizes))


@given(st.integers(0, 10_000), shapes)
def test_kept_share_is_the_formula(seed, shape):
    scores = drawn(seed)
    kept = KeptImportance(UnitScores(**scores), OWN, most_important)
    naive = naive_share({kind: value.tolist() for kind, value in scores.items()}, shape, OWN)
    assert kept.of(shape) == pytest.approx(naive, abs=1e-12)
    assert kept.of(OWN) == pytest.approx(1)
    assert kept.of(shape) <= kept.of(shape._replace(layers=3)) + 1e-12


def test_share_of_heads_is_that_of_the_cut():
    """All layers of an MPNet keep the same heads."""
    heads = torch.tensor([[4.0, 3, 2, 1], [1, 2, 3, 5], [4, 3, 2, 1], [1, 2, 3, 5]])
    cut = narrow(pico.model_of("mpnet", 50), Widths(heads=2), UnitScores(heads=heads))
    shares = [float(each[kept].sum() / each.sum()) for each, kept in zip(heads, cut.kept.heads, strict=True)]
    kept = KeptImportance(UnitScores(heads=heads), Shape(4, 4, 64), most_important, same_heads=True)
    # Half of the hidden dimensions, which have no scores.
    assert kept.of(Shape(4, 2, 64)) == pytest.approx(0.5 * sum(share**0.5 for share in shares) / 4)


def test_units_without_scores_count_alike():
    kept = KeptImportance(UnitScores(layers=torch.tensor([-1.0, 3, 1])), OWN, most_important)
    assert kept.of(Shape(1, 4, 8)) == pytest.approx(0.75)
    assert kept.of(Shape(2, 2, 4)) == pytest.approx(1 * 0.5 * 0.5)
    assert KeptImportance(UnitScores(), OWN, most_important).of(Shape(1, 4, 8)) == pytest.approx(1 / 3)


@given(st.integers(0, 10_000), st.integers(0, 400))
def test_no_shape_that_fits_keeps_more(seed, limit):
    grid = [Shape(*sizes) for sizes in torch.cartesian_prod(*(torch.arange(1, size + 1) for size in OWN)).tolist()]
    candidates = [Candidate(shape, 0, Counts(shape.layers * shape.heads * (shape.ffn + 4), 0)) for shape in grid]
    kept = KeptImportance(UnitScores(**drawn(seed)), OWN, most_important).of
    fitting = [each for each in candidates if each.counts.parameters <= limit]
    front = pareto_front(candidates, "parameters", kept)
    assert [each.counts.parameters for each in front] == sorted(each.counts.parameters for each in front)
    for each in candidates:
        assert any(f.counts.parameters <= each.counts.parameters and kept(f.shape) >= kept(each.shape) for f in front)
    if fitting:
        chosen = best(fitting, "parameters", kept)
        assert chosen in fitting and chosen in front
        assert kept(chosen.shape) == max(kept(each.shape) for each in fitting)
        assert any(kept(each.shape) >= kept(chosen.shape) - 1e-12 for each in largest(fitting))
        assert chosen in thinned(front, (chosen,), 3) and len(thinned(front, (chosen,), 3)) <= 4


@given(st.integers(2, 60), st.integers(2, 20))
def test_rows_that_are_shown_are_spread_evenly(count, most):
    front = [Candidate(Shape(1, 1, size), 0, Counts(size, 0)) for size in range(count)]
    shown = thinned(front, (), most)
    places = [front.index(each) for each in shown]
    gaps = [after - before for before, after in itertools.pairwise(places)]
    assert len(shown) == min(count, most) and (places[0], places[-1]) == (0, count - 1)
    assert max(gaps) - min(gaps) <= 1


def test_members_of_a_family_have_names_of_their_own():
    budgets = budgets_of(BudgetOptions(family="4,2,2.0000001"))
    assert [(each.name, each.flag, each.value) for each in budgets] == [
        ("2x", "--family 2", 2),
        ("4x", "--family 4", 4),
    ]


@pytest.mark.parametrize("quantity", ["parameters", "operations", "milliseconds"])
@given(cost=st.integers(1, 1_000_000), times=st.floats(1.05, 90))
@example(cost=1000, times=14.29)
@example(cost=130853, times=1.05)
def test_the_budget_that_a_message_names_is_within_reach(quantity, cost, times):
    words = Budget(quantity, 1.0, "--speedup 100").nearest(cost, cost * times).split()
    assert Budget(quantity, float(words[1]), "").limit(cost * times) >= cost
