"""Times of all shapes from those of a few: exact where the time is what the fit assumes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.budgets.latency import LatencyTable, measured_shapes
from biosqueeze.budgets.shapes import Shape

GRID = [Shape(k, h, f) for k in range(1, 7) for h in range(1, 13) for f in range(96, 1537, 96)]


def time_of(shape, base=0.5, constant=0.0, linear=0.0, square=0.02, neuron=0.001):
    layer = constant + linear * shape.heads + square * shape.heads**2 + neuron * shape.heads * shape.ffn / 12
    return base * (1 + shape.heads) + shape.layers * layer


def table_of(shapes, **times):
    return LatencyTable({shape: time_of(shape, **times) for shape in measured_shapes(shapes)})


def test_few_shapes_are_measured():
    assert measured_shapes(GRID) == (
        *(Shape(4, heads, 1536) for heads in (12, 6, 3, 1)),
        *(Shape(1, 12, 1536), Shape(4, 12, 384), Shape(1, 1, 1536), Shape(4, 1, 384)),
    )
    assert measured_shapes([Shape(1, 4, 64)]) == (Shape(1, 4, 64),)
    assert measured_shapes([Shape(k, 4, 64) for k in (1, 2, 3)]) == (Shape(3, 4, 64), Shape(1, 4, 64))


@given(st.sampled_from(GRID))
def test_squares_of_the_width_are_exact(shape):
    table = table_of(GRID, neuron=0)
    assert table.predict(shape) == pytest.approx(time_of(shape, neuron=0))


def test_a_model_of_one_layer():
    shapes = [shape for shape in GRID if shape.layers == 1]
    table = LatencyTable({shape: shape.heads * (100.0 + shape.ffn) for shape in measured_shapes(shapes)})
    assert table.predict(Shape(1, 12, 960)) == pytest.approx(12 * 1060)
    assert table.predict(Shape(1, 6, 960)) == pytest.approx(6 * 1060, rel=0.05)


@given(st.sampled_from(GRID), st.floats(0.01, 0.1), st.floats(0.01, 0.1))
def test_other_times_are_close(shape, constant, linear):
    table = table_of(GRID, constant=constant, linear=linear, square=0.01)
    assert table.predict(shape) == pytest.approx(time_of(shape, constant=constant, linear=linear, square=0.01), rel=0.1)


def test_measured_shapes_are_exact_and_noise_stays_positive():
    table = table_of(GRID, linear=0.3)
    for shape in measured_shapes(GRID):
        assert table.predict(shape) == pytest.approx(time_of(shape, linear=0.3))
    noisy = LatencyTable({shape: 1.0 + 0.1 * (shape.layers == 1) for shape in measured_shapes(GRID)})
    assert all(noisy.predict(shape) > 0 for shape in GRID)


def test_the_original_vocabulary_is_slower():
    shapes = [Shape(k, 4, 64) for k in (1, 2)]
    table = LatencyTable({shape: 3.0 * shape.layers for shape in shapes}, 5.0)
    assert table.predict(Shape(2, 4, 64)) == pytest.approx(6) and table.original(Shape(2, 4, 64)) == pytest.approx(8)


def test_parts_that_cost_more_than_the_whole_are_contradictions():
    shapes = measured_shapes(GRID)
    quiet = dict(zip(shapes, (4.62, 2.43, 1.52, 0.93, 1.21, 3.08, 0.29, 0.54), strict=True))
    assert LatencyTable(quiet).contradiction() is None
    disturbed = dict(zip(shapes, (11.03, 4.03, 2.43, 1.41, 2.04, 5.0, 0.38, 0.57), strict=True))
    assert LatencyTable(disturbed).contradiction() == "a layer of 6 heads takes 1 ms, and its neurons alone 1.07 ms"
    without_layers = dict(zip(shapes, (1.0, 0.9, 0.85, 0.8, 1.0, 0.95, 0.8, 0.75), strict=True))
    assert "takes 0 ms" in LatencyTable(without_layers).contradiction()
