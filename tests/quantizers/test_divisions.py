"""The predicted error is that of rounded products, and the division that is chosen makes it smaller."""

import numpy as np
import pytest

from biosqueeze.quantizers.divisions import ByChannel, ByToken, best_division, count_divisions, output_error
from biosqueeze.quantizers.input_statistics import InputStatistics

TOKENS, CHANNELS, OUTPUTS = 256, 48, 32


def statistics_of(batches):
    return InputStatistics(
        np.stack([rows.max(0) for rows in batches]),
        np.stack([rows.min(0) for rows in batches]),
        np.mean([np.square(rows).mean(0) for rows in batches], axis=0),
        [rows.max(1) for rows in batches],
        [rows.min(1) for rows in batches],
    )


def rounded_error(batches, matrix, division):
    """Round inputs to 256 steps for each batch and weights to int8 for each output, and compare in float64."""
    errors = []
    for rows in batches:
        inputs, weights, sizes = rows.astype(np.float64), matrix.astype(np.float64), 1.0
        if isinstance(division, ByChannel):
            inputs, weights = inputs / division.factors, weights * division.factors[:, None]
        if isinstance(division, ByToken):
            sizes = np.maximum(inputs.max(1, keepdims=True), division.least)
            inputs = inputs / sizes
        low = min(inputs.min(), 0)
        step = (max(inputs.max(), 0) - low) / 255
        inputs = (np.rint((inputs - low) / step) * step + low) * sizes
        scales = np.abs(weights).max(0) / 127
        products = inputs @ (np.rint(weights / scales) * scales)
        errors.append(np.square(products - rows.astype(np.float64) @ matrix).mean(0).sum())
    return np.mean(errors)


def normal_batches(random):
    return [random.standard_normal((TOKENS, CHANNELS)).astype(np.float32) for _ in range(6)]


def with_outlier_channel(random):
    batches = normal_batches(random)
    for rows in batches:
        rows[:, 7] *= 20
    return batches


def with_outlier_token(random):
    """Return inputs that are mostly positive, like those behind a GELU, of which one token is large in one channel."""
    batches = [np.abs(rows) - 0.1 for rows in normal_batches(random)]
    for rows in batches:
        rows[0, 7] = 60
    return batches


CASES = [(normal_batches, None), (with_outlier_channel, ByChannel), (with_outlier_token, ByToken)]


@pytest.fixture
def random():
    return np.random.default_rng(0)


@pytest.fixture
def matrix(random):
    return random.standard_normal((CHANNELS, OUTPUTS)).astype(np.float32)


@pytest.mark.parametrize("make", [make for make, _ in CASES])
@pytest.mark.parametrize("kind", [None, ByChannel, ByToken])
def test_the_predicted_error_is_that_of_rounding(make, kind, random, matrix) -> None:
    batches = make(random)
    division = None
    if kind is ByChannel:
        division = ByChannel(random.uniform(1, 8, CHANNELS).astype(np.float32))
    elif kind is ByToken:
        division = ByToken(0.5)
    predicted = output_error(statistics_of(batches), matrix, division)
    assert predicted == pytest.approx(rounded_error(batches, matrix, division), rel=0.15)


def test_matrices_side_by_side_add_up(random, matrix) -> None:
    statistics = statistics_of(normal_batches(random))
    alone = [output_error(statistics, part, None) for part in (matrix, 2 * matrix)]
    assert output_error(statistics, np.concatenate([matrix, 2 * matrix], axis=1), None) == pytest.approx(sum(alone))


@pytest.mark.parametrize(("make", "kind"), CASES)
def test_the_outliers_decide_which_division_is_best(make, kind, random, matrix) -> None:
    batches = make(random)
    division = best_division(statistics_of(batches), matrix, fixed=False)
    if kind is None:
        assert division is None
        return
    assert isinstance(division, kind)
    assert rounded_error(batches, matrix, division) < 0.3 * rounded_error(batches, matrix, None)


@pytest.mark.parametrize(("make", "kind"), CASES)
def test_fixed_ranges_are_divided_in_few_channels(make, kind, random, matrix) -> None:
    batches = make(random)
    division = best_division(statistics_of(batches), matrix, fixed=True)
    assert isinstance(division, ByChannel) == (kind is not None)
    if division is not None:
        assert (division.factors == 1).mean() >= 0.89
        assert rounded_error(batches, matrix, division) < 0.45 * rounded_error(batches, matrix, None)


def test_inputs_without_values_are_not_divided(matrix) -> None:
    zeros = [np.zeros((TOKENS, CHANNELS), dtype=np.float32)]
    assert best_division(statistics_of(zeros), matrix, fixed=False) is None


def test_positive_inputs_have_a_least_size(random, matrix) -> None:
    """A token of zeros behind a ReLU must not be divided by zero."""
    batches = [rows.clip(0) for rows in with_outlier_token(random)]
    batches[0][5] = 0
    division = best_division(statistics_of(batches), matrix, fixed=False)
    assert isinstance(division, ByToken)
    assert division.least > 0


def test_counts_of_the_manifest() -> None:
    factors = np.ones(4, dtype=np.float32)
    divisions = [ByChannel(factors), ByToken(0.2), ByChannel(factors)]
    assert count_divisions(divisions) == {"inputs_divided_by_channel": 2, "inputs_divided_by_token": 1}
