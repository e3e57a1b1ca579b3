"""The schedule of measurements, and the percentiles of the table."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.measuring.session import schedule
from biosqueeze.measuring.table import percentile


@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 5))
def test_each_round_has_every_model_at_every_shape(rounds, shapes, models) -> None:
    sizes = [(size, 128) for size in range(1, shapes + 1)]
    turns = list(schedule(rounds, sizes, models))
    per_round = shapes * models
    for start in range(0, len(turns), per_round):
        assert Counter(turns[start : start + per_round]) == {
            (size, model): 1 for size in sizes for model in range(models)
        }
    for start in range(0, len(turns), models):
        # All models are measured at a shape before the next shape, so that they are compared under like conditions.
        assert len({shape for shape, _ in turns[start : start + models]}) == 1
    assert [turns[i * per_round][1] for i in range(rounds)] == [i % models for i in range(rounds)]


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=50), st.sampled_from([0.5, 0.95]))
def test_percentile_is_nearest_rank(values, share) -> None:
    assert percentile(values, share) == np.percentile(values, 100 * share, method="inverted_cdf")
