"""The measure of sameness must see what it is there to see, and nothing in the padding."""

import numpy as np
import pytest

from biosqueeze.backends.parity import compare, random_batches
from biosqueeze.data.output_types import MULTI, SCORE, SINGLE, SPAN


class Table:
    """Logits by token id, (vocabulary, labels); garbage of its own on padding."""

    def __init__(self, logits, garbage=0.0) -> None:
        self.logits, self.garbage = np.asarray(logits, dtype=np.float32), garbage

    def predict(self, batch):
        output = self.logits[batch["input_ids"]]
        output[batch["attention_mask"] == 0] = self.garbage
        return output


def logits(seed=0, vocabulary=50, labels=3):
    return np.random.default_rng(seed).normal(size=(vocabulary, labels))


BATCHES = random_batches(50, 128, padding=0)


def test_batches_are_ragged_and_of_different_shapes() -> None:
    assert [batch["input_ids"].shape for batch in BATCHES] == [(4, 24), (2, 128), (1, 7)]
    for batch in BATCHES:
        real = batch["attention_mask"] == 1
        assert (batch["input_ids"][real] != 0).all()
        assert (batch["input_ids"][~real] == 0).all()
    assert all((batch["attention_mask"] == 0).any() for batch in BATCHES[:2])
    assert max(batch["input_ids"].shape[1] for batch in random_batches(50, 16, 0)) == 16


def test_padding_does_not_count() -> None:
    parity = compare(Table(logits()), Table(logits(), garbage=99.0), BATCHES)
    assert (parity.max_difference, parity.mean_difference, parity.agreement) == (0, 0, 1)
    assert parity.cosine == pytest.approx(1)
    assert parity.tokens == sum(batch["attention_mask"].sum() for batch in BATCHES)


def test_largest_difference_of_all_batches() -> None:
    changed = logits()
    changed[BATCHES[2]["input_ids"][0, -1]] += [0, 0.25, 0]
    parity = compare(Table(logits()), Table(changed), BATCHES)
    assert parity.max_difference == pytest.approx(0.25, abs=1e-6)
    assert 0 < parity.mean_difference < 0.25


def test_mean_counts_tokens_and_not_batches() -> None:
    used = np.concatenate([batch["input_ids"][batch["attention_mask"] == 1] for batch in BATCHES])
    changed = logits() + (np.arange(50) % 2)[:, None]
    parity = compare(Table(logits()), Table(changed), BATCHES)
    assert parity.mean_difference == pytest.approx((used % 2).mean(), abs=1e-5)


def test_collapse_to_the_commonest_class_agrees_by_half() -> None:
    mostly_first = np.tile([3.0, 0.0, 0.0], (50, 1))
    mostly_first[:10] = [0.0, 3.0, 0.0]
    collapsed = np.tile([3.0, 0.0, 0.0], (50, 1))
    parity = compare(Table(mostly_first), Table(collapsed), BATCHES)
    assert parity.agreement == 0.5


def test_few_changed_predictions_are_no_collapse() -> None:
    right = np.array([1, 1, *[0] * 98])
    assert SINGLE.agreement(right, 0 * right) == 0.98


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_never_agree(value) -> None:
    broken = logits()
    broken[7] = value
    for pair in ((Table(logits()), Table(broken)), (Table(broken), Table(broken))):
        parity = compare(*pair, [{"input_ids": np.array([[7]]), "attention_mask": np.array([[1]])}])
        assert parity.max_difference == np.inf
        assert parity.agreement == 0


def test_another_number_of_labels_never_agrees() -> None:
    parity = compare(Table(logits()), Table(logits(labels=4)), BATCHES)
    assert (parity.max_difference, parity.agreement) == (np.inf, 0)


def test_sequence_outputs_are_compared_row_by_row() -> None:
    class First(Table):
        def predict(self, batch):
            return self.logits[batch["input_ids"][:, 0]]

    parity = compare(First(logits()), First(logits()), BATCHES, SINGLE)
    assert (parity.tokens, parity.max_difference) == (7, 0)


@pytest.mark.parametrize("labels", [3, 4])
def test_as_many_labels_as_tokens(labels: int) -> None:
    right = np.eye(2, labels)
    parity = compare(Fixed(right), Fixed(right[::-1]), PAIR, SINGLE)
    assert (parity.tokens, parity.agreement) == (2, 0)


def test_discriminator_outputs_are_compared_by_token() -> None:
    right = np.array([[1.0, -1.0, 2.0, -2.0], [1.0, 3.0, 9.0, 9.0]])  # the nines are padding
    wrong = right.copy()
    wrong[0, 1] = 0.5
    wrong[1, 2] = -9
    parity = compare(Fixed(right), Fixed(wrong), PAIR)
    assert (parity.tokens, parity.max_difference, parity.agreement) == (6, 1.5, pytest.approx(5 / 6))


class Fixed:
    """The same output for every batch."""

    def __init__(self, output) -> None:
        self.output = np.asarray(output, dtype=np.float32)

    def predict(self, batch):
        return self.output


PAIR = [{"input_ids": np.ones((2, 4), dtype=np.int64), "attention_mask": np.array([[1, 1, 1, 1], [1, 1, 0, 0]])}]


def test_spans_agree_on_equal_starts_and_ends() -> None:
    starts = [[0, 5, 1, 0], [0, 3, 9, 9]]  # the nines are padding
    ends = [[0, 1, 5, 0], [3, 0, 9, 9]]
    right = np.stack([starts, ends], axis=-1)
    noisy = right + np.array([0.0, 0.4])  # for most tokens the end is now likelier than the start
    assert compare(Fixed(right), Fixed(noisy), PAIR, SPAN).agreement == 1
    wrong = right.copy()
    wrong[0, 3, 1] = 7
    assert compare(Fixed(right), Fixed(wrong), PAIR, SPAN).agreement == 0.75


def test_agreement_of_scores_is_their_correlation() -> None:
    right = np.array([[0.1], [0.9], [0.4]])
    assert compare(Fixed(right), Fixed(2 * right + 1), PAIR, SCORE).agreement == pytest.approx(1)
    assert compare(Fixed(right), Fixed(-right), PAIR, SCORE).agreement == pytest.approx(-1)
    assert compare(Fixed(right), Fixed(0 * right), PAIR, SCORE).agreement == 0
    assert compare(Fixed(right), Fixed(right * np.nan), PAIR, SCORE).agreement == 0


def test_agreement_counts_each_label_of_several() -> None:
    right = np.array([[2.0, 1.0, -1.0], [-1.0, -2.0, 3.0]])
    wrong = right * np.array([1.0, -1.0, 1.0])  # the likeliest labels are the same
    assert compare(Fixed(right), Fixed(wrong), PAIR, MULTI).agreement == pytest.approx(4 / 6)
