"""Similarity: correlations against numpy, the reader, and what is refused. All sentences are made up."""

import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import stats

from biosqueeze.errors import UsageError
from biosqueeze.tasks import Formulation, open_task
from biosqueeze.tasks.metrics.labels import pearson, spearman
from tests import pico
from tests.error_messages import explained

NUMBER = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))
PAIRS = st.lists(st.tuples(NUMBER, NUMBER), min_size=2, max_size=40)
FEW = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=40)
ROWS = {
    "train": [("The drug slowed the heart.", "Pulse fell after the drug.", "3.4"), ("Bones heal.", "Fish swim.", "0")],
    "dev": [("A gene was silenced in yeast.", "Yeast lost the gene product.", "2.2")],
    "test": [("The rash went away soon.", "It cleared within days.", "4"), ("No one fell ill.", "Sugar rose.", "1")],
}


def task(**form):
    return open_task("similarity", Formulation(**form))


def write(directory: Path, header: str = "pair_id\tsent1\tsent2\tscore\n", **changed: str) -> Path:
    for split, rows in ROWS.items():
        lines = "".join(f"{split}{n}\t" + "\t".join(row) + "\n" for n, row in enumerate(rows))
        (directory / f"{split}.tsv").write_text(changed.get(split, header + lines))
    return directory


@given(PAIRS)
@settings(max_examples=60, deadline=None)
def test_pearson_equals_numpy(pairs):
    one, other = zip(*pairs, strict=True)
    assume(len(set(one)) > 1 and len(set(other)) > 1)
    with warnings.catch_warnings():
        # Where the spread is tiny beside the values, scipy calls the result inaccurate.
        warnings.simplefilter("error", stats.NearConstantInputWarning)
        try:
            stats.pearsonr(one, other)
        except stats.NearConstantInputWarning:
            assume(False)
    assert math.isclose(pearson(one, other), np.corrcoef(one, other)[0, 1], rel_tol=1e-7, abs_tol=1e-7)


@given(FEW)
@settings(max_examples=60, deadline=None)
@example([(0, 1), (0, 2), (1, 2)])
def test_spearman_is_pearson_of_mean_ranks(pairs):
    one, other = zip(*pairs, strict=True)
    assume(len(set(one)) > 1 and len(set(other)) > 1)
    ranks = [[sum(y < x for y in values) + sum(y == x for y in values) / 2 for x in values] for values in (one, other)]
    assert math.isclose(spearman(one, other), np.corrcoef(*ranks)[0, 1], abs_tol=1e-12)


@given(st.lists(NUMBER, min_size=1, max_size=9), NUMBER)
@settings(max_examples=60, deadline=None)
def test_correlation_with_a_constant_is_zero_without_a_warning(values, constant):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for measure in (pearson, spearman):
            assert measure(values, [constant] * len(values)) == 0.0
            assert measure([constant] * len(values), values) == 0.0


def test_correlation_of_what_overflowed_is_zero():
    for measure in (pearson, spearman):
        assert measure([1.0, 2.0, 3.0], [math.nan, 0.0, 1.0]) == 0.0
    assert pearson([1.0, 2.0, 3.0], [math.inf, 0.0, 1.0]) == 0.0


def test_perfect_correlation_does_not_depend_on_the_unit():
    gold = [0.0, 1.0, 2.5, 4.0]
    scores = task().score(gold, [10 * value - 3 for value in gold])
    assert scores == {"pearson": pytest.approx(1.0), "spearman": pytest.approx(1.0), "support": 4}
    assert task().score(gold, [-value for value in gold])["pearson"] == pytest.approx(-1.0)


def test_reads_table(tmp_path, capsys):
    data = task().read(str(write(tmp_path)), ("train", "dev"))
    assert (data.labels, data.scheme) == (("score",), "score")
    assert list(data.splits) == ["train", "dev"]
    first = data.splits["train"][0]
    assert (first.texts, first.gold, first.id) == (ROWS["train"][0][:2], 3.4, "train0")
    said = capsys.readouterr().err
    assert "first = sent1, second = sent2, label = score, id = pair_id" in said
    assert "scores from 0 to 4; train 2, dev 1, test 2" in said


def test_headerless_and_renamed_columns(tmp_path):
    bare = task().read(str(write(tmp_path, header="")), ("test",)).splits["test"]
    assert bare[1].gold == 1.0
    write(tmp_path, header="pair_id\tone\ttwo\tscore\n")
    explained(lambda: task().read(str(tmp_path), ("test",)), "no column for 'first'", "--column first=NAME")
    named = task(column=("first=one", "second=two")).read(str(tmp_path), ("test",)).splits["test"]
    assert [(each.texts, each.gold) for each in named] == [(each.texts, each.gold) for each in bare]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("z\tA cell.\tB cell.\thigh\n", ("dev.tsv:2: the score 'high' is not a number",)),
        ("z\tA cell.\tB cell.\tnan\n", ("dev.tsv:2: the score 'nan' is not a number",)),
        ("z\tA cell.\t \t2\n", ("dev.tsv:2: no second", "remove")),
        ("z\tA cell.\tB cell.\t2\nz\tC cell.\tD cell.\t2\n", ("dev.tsv:3: the id 'z' is already used",)),
        ("z\tA cell.\t2\n", ("dev.tsv:2: 3 columns",)),
    ],
)
def test_bad_rows_are_explained(tmp_path, row, words):
    write(tmp_path, dev="pair_id\tsent1\tsent2\tscore\n" + row)
    explained(lambda: task().read(str(tmp_path), ("train", "dev")), *words)


def test_test_split_used_as_dev_is_refused(tmp_path):
    write(tmp_path)
    (tmp_path / "dev.tsv").write_text((tmp_path / "test.tsv").read_text())
    explained(lambda: task().read(str(tmp_path), ("train", "dev")), "a test split used for selection")


def test_windows_hold_the_score_and_predictions_are_in_its_unit(tmp_path):
    kind = task()
    examples = kind.read(str(write(tmp_path)), ("train",)).splits["train"]
    windows = kind.encode(examples, ("score",), pico.tokenizer_of("bert"), 32)
    assert windows[0].features["targets"].dtype == np.float32
    assert [float(window.features["targets"]) for window in windows] == pytest.approx([3.4, 0.0])
    assert set(windows[0].features) == {"input_ids", "token_type_ids", "targets"}
    logits = [np.array([2.5], np.float32), np.array([-0.25], np.float32)]
    assert kind.decode(windows, logits, examples, ("score",)) == [2.5, -0.25]
    assert kind.describe(windows, logits, examples, ("score",)) == [{"similarity": 2.5}, {"similarity": -0.25}]
    explained(lambda: kind.encode(examples, ("no", "yes"), pico.tokenizer_of("bert"), 32), "2 outputs (no, yes)")


def test_record_has_no_score():
    posed = task().example_from_record({"sentence1": "a", "sentence2": "b", "id": 3})
    assert (posed.texts, posed.gold, posed.id) == (("a", "b"), None, "3")
    assert "targets" not in task().encode([posed], ("score",), pico.tokenizer_of("bert"), 32)[0].features
    explained(lambda: task().example_from_record({"sentence1": "a"}), "no column for 'second'")


@pytest.mark.real
def test_real_biosses_has_the_reference_counts(real_data):
    source = str(real_data / "biosses" / "blurb")
    data = task().read(source, ("train", "dev"))
    test = task().read(source, ("test",)).splits["test"]
    assert (len(data.splits["train"]), len(data.splits["dev"]), len(test)) == (64, 16, 20)
    golds = [example.gold for example in (*data.splits["train"], *data.splits["dev"], *test)]
    assert (min(golds), max(golds)) == (0.0, 4.0)


@pytest.mark.parametrize("representation", ["mentions", "entity-starts"])
def test_representations_of_entities_are_refused(representation: str) -> None:
    with pytest.raises(UsageError, match="give cls or cosine"):
        open_task("similarity", Formulation(representation=representation))
