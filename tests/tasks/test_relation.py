"""The kind `relation`: its windows, its scores against scikit-learn's, and its answers for people."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from biosqueeze.data.collate import pad
from biosqueeze.data.output_types import SINGLE, output_type_of_scheme
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.tasks import Formulation, open_task
from biosqueeze.tasks.encoding.entities import Mention, Relation
from tests import pico

TOKENIZERS = {family: pico.tokenizer_of(family) for family in ("bert", "roberta", "distilbert", "albert")}
LABELS = ("false", "A", "B")
POSITIVES = ["A", "B", "C"]
PAIRS = st.lists(st.tuples(*[st.sampled_from(["false", *POSITIVES])] * 2), min_size=1, max_size=40)
TEXT = "Gene carci blocks protein cino."
EXAMPLE = Relation(TEXT, (Mention(0, 4, "GENE"), Mention(18, 25, "PROTEIN")), "A", where="train.tsv:7")
COMBINATIONS = [
    ("dummy", "cls"),
    ("dummy", "mentions"),
    ("original", "cls"),
    ("original", "mentions"),
    ("markers", "cls"),
    ("markers", "mentions"),
    ("markers", "entity-starts"),
]


def kind(**form):
    return open_task("relation", Formulation(**form))


def spelled(window, tokenizer, bit):
    return tokenizer.decode(window.features["input_ids"][window.features["entities"] & bit != 0])


@given(PAIRS)
@settings(deadline=None)
def test_scores_equal_scikit_learn(pairs):
    gold, predicted = map(list, zip(*pairs, strict=True))
    scores = kind().score(gold, predicted)
    there = sorted({*gold, *predicted} - {"false"})
    assert scores["accuracy"] == pytest.approx(metrics.accuracy_score(gold, predicted))
    if not there:
        assert scores["f1"] == scores["macro_f1"] == 0
        return
    for name, average in (("f1", "micro"), ("macro_f1", "macro")):
        expected = metrics.f1_score(gold, predicted, labels=there, average=average, zero_division=0)
        assert scores[name] == pytest.approx(expected, abs=1e-12)
    for name, function in (("precision", metrics.precision_score), ("recall", metrics.recall_score)):
        expected = function(gold, predicted, labels=there, average="micro", zero_division=0)
        assert scores[name] == pytest.approx(expected, abs=1e-12)
    each = metrics.f1_score(gold, predicted, labels=there, average=None, zero_division=0)
    assert [scores[f"f1-{label}"] for label in there] == pytest.approx(list(each))
    assert [scores[f"support-{label}"] for label in there] == [gold.count(label) for label in there]
    assert "f1-false" not in scores


@given(st.lists(st.tuples(*[st.sampled_from(["0", "1"])] * 2), min_size=1, max_size=40))
@settings(deadline=None)
def test_with_one_positive_label_f1_is_the_binary_one(pairs):
    gold, predicted = map(list, zip(*pairs, strict=True))
    scores = kind().score(gold, predicted)
    for name, function in (
        ("f1", metrics.f1_score),
        ("precision", metrics.precision_score),
        ("recall", metrics.recall_score),
    ):
        truths = [[label == "1" for label in side] for side in (gold, predicted)]
        assert scores[name] == pytest.approx(function(*truths, zero_division=0))


@given(st.lists(st.tuples(*[st.sampled_from(POSITIVES)] * 2), min_size=1, max_size=40))
def test_without_a_negative_label_micro_f1_is_the_accuracy(pairs):
    gold, predicted = map(list, zip(*pairs, strict=True))
    scores = kind().score(gold, predicted)
    assert scores["f1"] == pytest.approx(scores["accuracy"])


def test_the_negative_label_may_be_named():
    assert kind(negative="A").score(["A", "B"], ["A", "A"])["f1"] == 0
    assert kind().score(["A", "B"], ["A", "A"])["f1"] == 0.5


@pytest.mark.parametrize(("entities", "representation"), COMBINATIONS)
@pytest.mark.parametrize("family", sorted(TOKENIZERS))
def test_every_combination_of_table_12_is_encoded(family, entities, representation):
    tokenizer = TOKENIZERS[family]
    task = kind(entities=entities, representation=representation)
    (window,) = task.encode([EXAMPLE], LABELS, tokenizer, 100)
    expected = {
        "dummy": "@GENE$ carci blocks @PROTEIN$ cino.",
        "original": TEXT,
        "markers": "@ Gene @ carci blocks # protein # cino.",
    }[entities]
    assert window.features["input_ids"].tolist() == tokenizer(expected)["input_ids"]
    assert window.features["labels"].shape == ()
    assert window.features["labels"] == 1
    if representation == "cls":
        assert set(window.features) == {"input_ids", "labels"}
        return
    assert window.features["entities"].shape == window.features["input_ids"].shape
    assert window.features["entities"].dtype == np.int64
    names = {"dummy": ("@GENE$", "@PROTEIN$"), "original": ("Gene", "protein"), "markers": ("Gene", "protein")}
    marked = ("@", "#") if representation == "entity-starts" else names[entities]
    for bit, name in zip((1, 2), marked, strict=True):
        assert spelled(window, tokenizer, bit).replace(" ", "") == name


def test_windows_are_padded_with_no_entity():
    task = kind(representation="mentions")
    short = Relation("gene protein", (Mention(0, 4), Mention(5, 12)), "B")
    windows = task.encode([EXAMPLE, short], LABELS, TOKENIZERS["bert"], 100)
    batch = pad([window.features for window in windows], 0)
    assert batch["entities"].shape == batch["input_ids"].shape
    assert not batch["entities"][batch["attention_mask"] == 0].any()
    assert batch["labels"].tolist() == [1, 2]
    assert [window.example for window in windows] == [0, 1]


def test_long_sentences_keep_their_entities(capsys):
    far = "gene " + "cells " * 50 + "protein"
    near = "cells " * 40 + "gene and protein" + " cells" * 40
    examples = [
        EXAMPLE,
        Relation(far, (Mention(0, 4), Mention(len(far) - 7, len(far))), "A"),
        Relation(near, (Mention(240, 244), Mention(249, 256)), "B"),
    ]
    tokenizer = TOKENIZERS["bert"]
    windows = kind(entities="markers", representation="mentions").encode(examples, LABELS, tokenizer, 24)
    assert [len(window.features["input_ids"]) for window in windows[1:]] == [24, 24]
    for window in windows[1:]:
        assert spelled(window, tokenizer, 1) == "gene"
        assert spelled(window, tokenizer, 2) == "protein"
        assert tokenizer.decode(window.features["input_ids"]).startswith("[CLS]")
    said = " ".join(capsys.readouterr().err.split())
    assert "2 of 3 sentences are longer than 24 tokens" in said
    assert "1 to a window around their two entities, 1 between their entities, which are too far apart" in said


def test_no_warning_without_truncation(capsys):
    kind().encode([EXAMPLE], LABELS, TOKENIZERS["bert"], 100)
    assert capsys.readouterr().err == ""


def test_dummies_missing_in_the_vocabulary_are_warned_of(capsys):
    odd = Relation(TEXT, (Mention(0, 4, "☂"), Mention(18, 25, "GENE")), "A")
    kind().encode([odd], LABELS, TOKENIZERS["bert"], 100)
    assert "vocabulary lacks @☂$, which marks the entities" in " ".join(capsys.readouterr().err.split())


def test_entity_without_token_is_refused():
    gone = Relation("gene \x01 protein", (Mention(5, 6), Mention(7, 14)), "A", where="dev.tsv:3")
    with pytest.raises(SqueezeError, match=r"dev.tsv:3: the tokenizer returns no token for the entity '\\x01'"):
        kind(entities="original", representation="mentions").encode([gone], LABELS, TOKENIZERS["bert"], 50)
    kind().encode([gone], LABELS, TOKENIZERS["bert"], 50)


def test_unknown_label_is_refused():
    with pytest.raises(SqueezeError, match=r"train.tsv:7: the label 'A' is not a label of the model"):
        kind().encode([EXAMPLE], ("x", "y"), TOKENIZERS["bert"], 50)


def test_decoding_follows_the_examples():
    task = kind()
    examples = [EXAMPLE, EXAMPLE]
    windows = task.encode(examples, LABELS, TOKENIZERS["bert"], 50)
    logits = [np.array(row, np.float32) for row in ([0, 2, 1], [3, 2, 1])]
    assert task.decode(windows[::-1], logits, examples, LABELS) == ["false", "A"]
    assert task.decode([], [], [], LABELS) == []
    assert task.describe([], [], [], LABELS) == []


def test_prediction_for_a_record_has_its_entities():
    task = kind()
    posed = task.example_from_record({"text": "In mice << carci >> cuts [[ cino ]].", "label": "ignored"})
    assert posed.gold is None
    (window,) = task.encode([posed], LABELS, TOKENIZERS["bert"], 50)
    assert set(window.features) == {"input_ids"}
    (answer,) = task.describe([window], [np.array([0, np.log(2), 0], np.float32)], [posed], LABELS)
    assert answer["label"] == "A"
    assert answer["score"] == pytest.approx(0.5)
    assert answer["scores"] == pytest.approx({"false": 0.25, "A": 0.5, "B": 0.25})
    assert answer["text"] == "In mice carci cuts cino."
    assert answer["head"] == {"start": 8, "end": 13, "text": "carci", "type": ""}
    assert answer["text"][answer["tail"]["start"] : answer["tail"]["end"]] == "cino"


def test_record_with_offsets():
    record = {"text": TEXT, "head": {"start": 0, "end": 4}, "tail": {"start": 18, "end": 25, "type": "X"}}
    assert kind(entities="markers").example_from_record(record).mentions == (Mention(0, 4), Mention(18, 25, "X"))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"text": "no marks"}, "the record: the two entities of the relation are not marked"),
        ({"label": "x"}, "--column text=NAME"),
        ({"text": 3}, "3 in text, but a sentence was expected"),
        ({"text": TEXT, "head": {"start": 0, "end": 4}}, "there is only a head"),
    ],
)
def test_bad_records_are_refused(record, message):
    with pytest.raises(SqueezeError, match=message):
        kind().example_from_record(record)


def test_record_without_the_label_column():
    task = kind(column=("label=rel", "text=body"))
    assert task.example_from_record({"body": "In mice << carci >> cuts [[ cino ]]."}).gold is None
    with pytest.raises(SqueezeError, match="no column 'body'"):
        task.example_from_record({"text": "In mice << carci >> cuts [[ cino ]]."})


def test_original_text_needs_no_marks():
    posed = kind(entities="original").example_from_record({"text": "no marks"})
    assert kind(entities="original").describe([], [], [], LABELS) == []
    assert posed.mentions is None


def test_head_metric_and_unused_option():
    task = kind()
    assert (task.HEAD, task.METRIC) == ("sequence-classification", "f1")
    assert output_type_of_scheme("single") is SINGLE
    assert task.with_scheme("single") is task
    with pytest.raises(SqueezeError, match="--stride is not used"):
        kind(stride=4)


def test_cosine_representation_is_refused() -> None:
    with pytest.raises(UsageError, match="cosine compares two texts"):
        open_task("relation", Formulation(representation="cosine"))
