"""Unlabelled text is drawn with the labels of the labelled data, by what the teacher predicts."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.data.output_types import MULTI, SINGLE, TOKENS
from biosqueeze.distillation.training_data import text_strata
from biosqueeze.distillation.training_data.text_strata import LabelPredictor, LabelStrata
from biosqueeze.distillation.training_data.unlabelled import UnlabelledExamples
from biosqueeze.training.sources import Mixture

CLASSES = 4


class _Oracle(LabelPredictor):
    """Takes the ids of a sequence for its classes."""

    def __init__(self, output_type=TOKENS):
        object.__setattr__(self, "output_type", output_type)

    def holds(self, features):
        return np.stack([np.isin(np.arange(CLASSES), each["input_ids"]) for each in features])


def _sequences(counts):
    """Return sequences with these classes, each beside class 0, which is twice in each."""
    ids = [(0, *classes) for classes, count in counts.items() for _ in range(count)]
    return [{"input_ids": np.array(each), "labels": np.array([0, *each])} for each in ids]


def _drawn(counts, text_counts, wanted=200):
    labelled, text = _sequences(counts), UnlabelledExamples(_sequences(text_counts))
    strata = text_strata.text_strata(_Oracle(), labelled, text, wanted, 0)
    if strata is None:
        return None
    source = Mixture(labelled, text, wanted / len(labelled), 0, strata)
    items = source.draw(0, np.random.default_rng(1))[len(labelled) :]
    assert len(set(items.tolist())) == len(items)
    assert len(items) <= source.available <= sum(text_counts.values())
    assert source.unlabelled_among(10 * (len(labelled) + len(items))) == 10 * len(items)
    return Counter(tuple(source.features(int(item), np.random.default_rng())["input_ids"][1:]) for item in items)


def test_labels_are_as_frequent_as_in_the_labelled_data():
    drawn = _drawn({(): 50, (1,): 40, (1, 2): 10}, {(): 5000, (1,): 120, (1, 2): 60})
    assert drawn == {(): 100, (1,): 80, (1, 2): 20}


def test_where_labels_are_rare_less_text_is_drawn(capsys):
    drawn = _drawn({(): 50, (1,): 50}, {(): 5000, (1,): 30})
    assert drawn == {(): 30, (1,): 30}
    assert "predicts a label in 1% of it, and in 50% of the labelled data" in capsys.readouterr().err


def test_text_like_the_labelled_data_is_drawn_uniformly():
    assert _drawn({(): 50, (1,): 50}, {(): 520, (1,): 480}) is None


def test_text_without_any_label_is_not_used(capsys):
    assert _drawn({(): 50, (1,): 50}, {(): 500}) == {}
    assert "it has none of their labels and is not used" in capsys.readouterr().err


def test_text_with_other_labels_alone_is_not_used(capsys):
    assert _drawn({(1,): 50}, {(): 450, (2,): 50}) == {}
    assert "it has none of their labels and is not used" in capsys.readouterr().err


def test_an_epoch_with_hardly_any_text():
    assert sum(_drawn({(): 50, (1,): 50}, {(): 500, (1,): 5}, wanted=2).values()) == 2
    assert _drawn({(): 40, (1,): 30, (2,): 30}, {(): 500, (1,): 5}, wanted=1) is None


def test_all_labelled_sequences_have_a_label():
    assert _drawn({(1,): 50}, {(): 500, (1,): 90}) == {(1,): 90}


def test_text_is_read_until_there_is_enough_of_each_stratum(monkeypatch):
    monkeypatch.setattr(text_strata, "SAMPLE", 50)
    labelled, text = _sequences({(): 25, (1,): 25}), UnlabelledExamples(_sequences({(): 1900, (1,): 100}))
    strata = text_strata.text_strata(_Oracle(), labelled, text, 40, 0)
    read = sum(len(stratum.blocks) for stratum in strata)
    assert {stratum.drawn for stratum in strata} == {20}
    assert 150 <= read < 1500


def test_long_text_is_read_in_part(monkeypatch):
    monkeypatch.setattr(text_strata, "SAMPLE", 50)
    monkeypatch.setattr(text_strata, "MOST_TOKENS", 300)
    labelled, text = _sequences({(): 50, (1,): 50}), UnlabelledExamples(_sequences({(): 1900, (1,): 100}))
    strata = text_strata.text_strata(_Oracle(), labelled, text, 2000, 0)
    read = [item for stratum in strata for item in stratum.blocks]
    assert 250 < sum(text.lengths_of(np.array(read))) <= 300


@given(
    st.lists(st.lists(st.booleans(), min_size=CLASSES, max_size=CLASSES), min_size=1, max_size=30),
    st.none() | st.integers(0, CLASSES - 1),
)
def test_the_stratum_is_that_of_the_rarest_class(rows, background):
    holds = np.array(rows)
    strata = LabelStrata(holds.mean(axis=0), background)
    for row, stratum in zip(holds, strata.of_sequences(holds), strict=True):
        held = [c for c in np.flatnonzero(row) if c != background]
        assert stratum == (min((holds[:, c].mean(), c) for c in held)[1] + 1 if held else 0)


def test_the_background_is_the_commonest_label():
    labelled = _sequences({(1,): 50})
    assert _Oracle(TOKENS).background(labelled, CLASSES) == 0
    assert _Oracle(TOKENS).background(_sequences({(2, 2, 2): 50}), CLASSES) == 2
    assert _Oracle(SINGLE).background(labelled, CLASSES) == 0
    assert _Oracle(MULTI).background(labelled, CLASSES) is None
