"""Classification: metrics against scikit-learn, every way to write labels, and what is refused. All texts are ours."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score
from sklearn.preprocessing import MultiLabelBinarizer

from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.tasks import Formulation, open_task
from biosqueeze.tasks.classification import Kind
from biosqueeze.tasks.metrics.labels import score_classes, score_label_sets
from biosqueeze.tasks.readers.hoc import HALLMARKS
from biosqueeze.tasks.sniffing import guess
from tests import pico

ALL = ("train", "dev", "test")
NAMES = ("a", "b", "c", "d")
CLASSES = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), min_size=1, max_size=30)
LABEL_SET = st.frozensets(st.sampled_from(NAMES))
LABEL_SETS = st.lists(st.tuples(LABEL_SET, LABEL_SET), min_size=1, max_size=30)
TEXTS = {
    "train": ["The receptor binds a small peptide.", "Tumours of the liver grow slowly.", "No drug was given at all."],
    "dev": ["Cells of the marrow were stained."],
    "test": ["A kinase was found in plasma.", "Mice were kept in the dark."],
}


def read(source, splits=ALL, scheme="", **form):
    return open_task("classification", Formulation(**form), scheme).read(str(source), splits)


def write(directory: Path, suffix: str, **files: str) -> Path:
    directory.mkdir(exist_ok=True)
    for name, text in files.items():
        (directory / f"{name}.{suffix}").write_text(text, encoding="utf-8")
    return directory


def table(labels: dict[str, list[str]], separator: str = "\t", header: str = "text\tlabel\n") -> dict[str, str]:
    """The texts with these labels, as one file for each split."""
    rows = {split: zip(TEXTS[split], labels[split], strict=True) for split in ALL}
    return {split: header + "".join(separator.join(row) + "\n" for row in items) for split, items in rows.items()}


def explained(act, *words):
    with pytest.raises(SqueezeError) as caught:
        act()
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value), str(caught.value)


@given(CLASSES)
@settings(max_examples=60, deadline=None)
def test_scores_of_one_label_equal_scikit_learn(pairs):
    gold, predicted = map(list, zip(*pairs, strict=True))
    scores = score_classes(gold, predicted)
    assert math.isclose(scores["accuracy"], accuracy_score(gold, predicted))
    for average in ("micro", "macro"):
        assert math.isclose(scores[f"{average}_f1"], f1_score(gold, predicted, average=average, zero_division=0))
    names = sorted({*gold, *predicted})
    by_label = f1_score(gold, predicted, labels=names, average=None, zero_division=0)
    assert [scores[f"f1-{name}"] for name in names] == pytest.approx(by_label)
    assert [scores[f"support-{name}"] for name in names] == [gold.count(name) for name in names]


@given(LABEL_SETS)
@settings(max_examples=60, deadline=None)
def test_scores_of_label_sets_equal_scikit_learn(pairs):
    gold, predicted = map(list, zip(*pairs, strict=True))
    scores = score_label_sets(gold, predicted)
    names = sorted(set().union(*gold, *predicted))
    if not names:
        assert (scores["f1"], scores["macro_f1"], scores["example_f1"], scores["accuracy"]) == (0.0, 0.0, 1.0, 1.0)
        return
    binary = MultiLabelBinarizer(classes=NAMES)  # scikit-learn reads a single column as no multi-label data
    present = [NAMES.index(name) for name in names]
    true, guessed = binary.fit_transform(gold), binary.transform(predicted)
    assert math.isclose(scores["precision"], precision_score(true, guessed, average="micro", zero_division=0))
    assert math.isclose(scores["recall"], recall_score(true, guessed, average="micro", zero_division=0))
    assert math.isclose(scores["f1"], f1_score(true, guessed, average="micro", zero_division=0))
    macro = f1_score(true, guessed, labels=present, average="macro", zero_division=0)
    assert math.isclose(scores["macro_f1"], macro)
    assert math.isclose(scores["example_f1"], f1_score(true, guessed, average="samples", zero_division=1))
    assert math.isclose(scores["accuracy"], accuracy_score(true, guessed))
    by_label = f1_score(true, guessed, labels=present, average=None, zero_division=0)
    assert [scores[f"f1-{name}"] for name in names] == pytest.approx(by_label)


@given(LABEL_SETS)
@settings(max_examples=60, deadline=None)
def test_blue_f1_of_labelled_examples(pairs):
    precisions, recalls = [], []
    for gold, predicted in pairs:
        if gold:
            precisions.append(len(gold & predicted) / len(predicted) if predicted else 0.0)
            recalls.append(len(gold & predicted) / len(gold))
    precision, recall = (sum(values) / len(values) if values else 0.0 for values in (precisions, recalls))
    expected = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    assert score_label_sets(*zip(*pairs, strict=True))["blue_f1"] == pytest.approx(expected)


def test_micro_f1_of_an_example_by_hand():
    # 2 of 3 said are right, 2 of 4 that hold are found: P 2/3, R 1/2, F1 4/7.
    scores = score_label_sets([{"a", "b"}, {"c"}, {"a"}, set()], [{"a"}, {"c", "b"}, set(), set()])
    assert (scores["precision"], scores["recall"], scores["f1"]) == pytest.approx((2 / 3, 1 / 2, 4 / 7))
    assert scores["accuracy"] == 0.25


def test_reads_single_label_table(tmp_path, capsys):
    data = read(write(tmp_path, "tsv", **table({"train": ["yes", "no", "no"], "dev": ["no"], "test": ["yes", "no"]})))
    assert data.labels == ("no", "yes")
    assert data.scheme == "single"
    assert [len(data.splits[split]) for split in ALL] == [3, 1, 2]
    assert data.splits["train"][1].texts == (TEXTS["train"][1],)
    assert data.splits["train"][1].where.endswith("train.tsv:3")
    said = capsys.readouterr().err
    assert "text = text, label = label" in said
    assert "one label each; 2 labels (no, yes); train 3, dev 1, test 2" in said


def test_headerless_table_uses_column_order(tmp_path):
    data = read(write(tmp_path, "tsv", **table({"train": list("010"), "dev": ["1"], "test": list("01")}, header="")))
    assert [example.gold for example in data.splits["train"]] == ["0", "1", "0"]
    write(tmp_path, "tsv", dev="\t".join("abcde") + "\n")
    explained(lambda: read(tmp_path), "dev.tsv:1: 5 columns without a header", "--column ROLE=NUMBER")


def test_numbers_are_ordered_by_value(tmp_path):
    labels = {"train": ["10", "9", "2"], "dev": ["9"], "test": ["2", "10"]}
    assert read(write(tmp_path, "tsv", **table(labels))).labels == ("2", "9", "10")


@pytest.mark.parametrize("sign", [";", "|"])
def test_separated_labels_are_multi(tmp_path, capsys, sign):
    labels = {
        "train": [f"Treatment{sign}Mechanism", "", "Prevention"],
        "dev": ["Prevention"],
        "test": ["", "Mechanism"],
    }
    data = read(write(tmp_path, "tsv", **table(labels)))
    assert data.scheme == "multi"
    assert data.labels == ("Mechanism", "Prevention", "Treatment")
    golds = [example.gold for example in data.splits["train"]]
    assert golds == [{"Mechanism", "Treatment"}, set(), {"Prevention"}]
    assert f"multi-label, separated by {sign!r}; 3 labels" in capsys.readouterr().err


def test_labels_in_lists_are_multi(tmp_path, capsys):
    records = {
        split: [{"text": text, "labels": ["x", "y"][: n % 3]} for n, text in enumerate(TEXTS[split])] for split in ALL
    }
    lines = {split: "".join(json.dumps(record) + "\n" for record in items) for split, items in records.items()}
    data = read(write(tmp_path / "lines", "jsonl", **lines))
    assert [example.gold for example in data.splits["train"]] == [set(), {"x"}, {"x", "y"}]
    assert "multi-label, as lists" in capsys.readouterr().err
    labels = {"train": ['["x"]', "[]", '["x", "y"]'], "dev": ['["y"]'], "test": ["[]", '["x"]']}
    in_a_table = read(write(tmp_path / "table", "tsv", **table(labels)))
    assert [example.gold for example in in_a_table.splits["train"]] == [{"x"}, set(), {"x", "y"}]


def test_scheme_of_the_model_decides_how_data_are_read(tmp_path):
    labels = {"train": ["a;b", "a", "b"], "dev": ["a"], "test": ["a", "b"]}
    write(tmp_path, "tsv", **table(labels))
    assert [example.gold for example in read(tmp_path, ("test",)).splits["test"]] == ["a", "b"]
    assert [example.gold for example in read(tmp_path, ("test",), "multi").splits["test"]] == [{"a"}, {"b"}]
    assert [example.gold for example in read(tmp_path, ("train",), "single").splits["train"]] == ["a;b", "a", "b"]


def test_title_and_abstract_are_joined_and_pmid_is_the_id(tmp_path):
    rows = {split: [f'{split}{n},{text},,"Long, quoted."' for n, text in enumerate(TEXTS[split])] for split in ALL}
    head = "pmid,title,keywords,abstract,label\n"
    files = {split: head + "".join(row + ",A;B\n" for row in items) for split, items in rows.items()}
    data = read(write(tmp_path, "csv", **files))
    assert data.splits["dev"][0].texts == (f"{TEXTS['dev'][0]} Long, quoted.",)
    assert data.splits["dev"][0].id == "dev0"
    write(tmp_path, "csv", dev=files["dev"] + f"dev0,{TEXTS['test'][1]},,,B\n")
    explained(lambda: read(tmp_path), "dev.csv:3: the id 'dev0' is already used at", "dev.csv:2")


def test_column_names_another_text(tmp_path):
    header = "text\tsummary\tlabel\n"
    rows = {split: header + "".join(f"x\t{text}\t{n % 2}\n" for n, text in enumerate(TEXTS[split])) for split in ALL}
    data = read(write(tmp_path, "tsv", **rows), column=("text=summary",))
    assert data.splits["test"][0].texts == (TEXTS["test"][0],)
    with pytest.raises(UsageError, match="--column txt=summary"):
        read(tmp_path, column=("txt=summary",))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("\tyes\n", ("train.tsv:2: no text", "remove")),
        ("A text.\t\n", ("train.tsv:2: no label",)),
        ("A text.\tyes\nB text.\tyes\n", ("train.tsv:2", "every example of train has the label 'yes'")),
        ("A text.\tyes\tx\n", ("train.tsv:2: 3 columns",)),
    ],
)
def test_bad_rows_are_named_by_file_and_line(tmp_path, rows, words):
    files = table({"train": ["yes", "no", "no"], "dev": ["no"], "test": ["yes", "no"]})
    write(tmp_path, "tsv", **{**files, "train": "text\tlabel\n" + rows})
    explained(lambda: read(tmp_path), *words)


@pytest.mark.parametrize("split", ["dev", "test"])
@pytest.mark.parametrize("sign", ["", ";"])
def test_label_unseen_in_train_is_refused_before_training(tmp_path, split, sign):
    labels = {"train": ["yes" + (sign and ";no"), "no", "no"], "dev": ["no"], "test": ["yes", "no"]}
    labels[split][-1] = "perhaps"
    write(tmp_path, "tsv", **table(labels))
    place = f"{split}.tsv:{len(labels[split]) + 1}"
    explained(lambda: read(tmp_path, ("train", "dev")), place, "'perhaps' is none of train's (no, yes)")


def test_multi_label_data_without_any_label_is_refused(tmp_path):
    write(tmp_path, "tsv", **table({"train": [";"] * 3, "dev": [""], "test": ["", ""]}))
    explained(lambda: read(tmp_path), "no example has a label")


def test_test_split_used_as_dev_is_refused(tmp_path):
    files = table({"train": ["yes", "no", "no"], "dev": ["no"], "test": ["yes", "no"]})
    write(tmp_path, "tsv", **{**files, "dev": files["test"]})
    explained(lambda: read(tmp_path, ("train", "dev")), "a test split used for selection")


def hoc_row(labels: set[int], sentence: str, index: str) -> str:
    flags = ",".join(f"{place}_{int(place in labels)}" for place in range(10))
    return f"{flags}\t{sentence}\t{index}\n"


def hoc(directory: Path) -> Path:
    head = "labels\tsentence\tindex\n"
    train = [
        hoc_row({5}, "Genomes broke here .", "11_s1"),
        hoc_row(set(), "We looked at cells .", "11_s0"),
        hoc_row({5, 7}, "They did not die .", "11_s10"),
        hoc_row(set(), "Nothing of note was seen .", "12_s0"),
    ]
    dev, test = hoc_row({0}, "It spread to the bone .", "13_s0"), hoc_row({9}, "Inflamed tissue grew faster .", "14_s0")
    return write(directory, "tsv", train=head + "".join(train), dev=head + dev, test=head + test)


def test_hoc_sentences_are_merged_to_abstracts(tmp_path, capsys):
    data = read(hoc(tmp_path))
    assert data.scheme == "multi"
    assert data.labels == HALLMARKS
    first, second = data.splits["train"]
    assert first.texts == ("We looked at cells . Genomes broke here . They did not die .",)
    assert first.gold == {"genomic instability and mutation", "resisting cell death"}
    assert (first.id, second.gold) == ("11", frozenset())
    said = capsys.readouterr().err
    assert "abstracts: train 2, dev 1, test 1" in said
    assert "all labels of their sentences" in said


def test_hoc_refuses_column_option(tmp_path):
    with pytest.raises(UsageError, match="text=sentence is not used for BLURB's HoC"):
        read(hoc(tmp_path), column=("text=sentence",))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (hoc_row({1}, "Again .", "11_s0"), ("train.tsv:6: the index '11_s0' is already used", "train.tsv:3")),
        (hoc_row({1}, "Again .", "11-0"), ("train.tsv:6", "PMID_sNUMBER")),
        ("0_1,1_0\tAgain .\t15_s0\n", ("train.tsv:6", "up to 9")),
        (hoc_row({1}, " ", "15_s0"), ("train.tsv:6", "15 has no text")),
    ],
)
def test_damaged_hoc_is_explained(tmp_path, row, words):
    path = hoc(tmp_path) / "train.tsv"
    path.write_text(path.read_text() + row)
    explained(lambda: read(tmp_path), *words)


def test_single_label_model_is_not_evaluated_on_hoc(tmp_path):
    explained(lambda: read(hoc(tmp_path), ("test",), "single"), "an abstract has any number of labels")


def test_single_windows_and_predictions():
    task = Kind().with_scheme("single")
    examples = [
        task.example_from_record({"text": "cells"}),
        task.example_from_record({"title": "gene", "abstract": "protein", "pmid": 7}),
    ]
    assert examples[1].texts == ("gene protein",)
    assert examples[1].id == "7"
    windows = task.encode(examples, NAMES, pico.tokenizer_of("bert"), 16)
    assert all("labels" not in window.features for window in windows)
    logits = [np.array([0, 3, 1, 0], np.float32), np.array([0, 0, 0, 1], np.float32)]
    assert task.decode(windows, logits, examples, NAMES) == ["b", "d"]
    assert task.describe(windows, logits, examples, NAMES)[0]["label"] == "b"


def test_multi_windows_and_predictions(tmp_path):
    task = Kind().with_scheme("multi")
    assert (task.METRIC, Kind().with_scheme("single").METRIC) == ("f1", "macro_f1")
    labels = {"train": ["a;c", "", "b"], "dev": ["b"], "test": ["", "a"]}
    examples = read(write(tmp_path, "tsv", **table(labels))).splits["train"]
    windows = task.encode(examples, ("a", "b", "c"), pico.tokenizer_of("bert"), 16)
    assert [window.features["targets"].tolist() for window in windows] == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert windows[0].features["targets"].dtype == np.float32
    logits = [np.array(row, np.float32) for row in ([2, -1, 3], [-1, -1, -1], [0, 0.1, -0.1])]
    decoded = task.decode(windows, logits, examples, ("a", "b", "c"))
    assert decoded == [{"a", "c"}, set(), {"b"}]
    assert task.score([example.gold for example in examples], decoded)["f1"] == 1.0
    described = task.describe(windows, logits, examples, ("a", "b", "c"))
    assert described[0]["labels"] == ["c", "a"]
    assert described[0]["scores"]["a"] == pytest.approx(1 / (1 + math.exp(-2)))
    assert described[1]["labels"] == []
    explained(lambda: task.encode(examples, ("a", "b"), pico.tokenizer_of("bert"), 16), "train.tsv:2", "'c'")


def test_record_without_text_is_refused():
    explained(lambda: Kind().example_from_record({"words": "x"}), "no column for 'text'", "--column text=NAME")
    explained(lambda: Kind().example_from_record({"text": " "}), "no text")
    with pytest.raises(UsageError, match="single or multi"):
        Kind().with_scheme("span")


@pytest.mark.real
def test_real_hoc_has_the_reference_counts(real_data):
    task = open_task("classification")
    data = task.read(str(real_data / "hoc" / "blurb"), ("train", "dev"))
    test = task.read(str(real_data / "hoc" / "blurb"), ("test",)).splits["test"]
    assert (len(data.splits["train"]), len(data.splits["dev"]), len(test)) == (1295, 186, 371)
    documents = [*data.splits["train"], *data.splits["dev"], *test]
    # The authors count 272 abstracts without a hallmark (PubMedBERT, section 4.5).
    assert sum(not document.gold for document in documents) == 272


@pytest.mark.parametrize("hidden", ['{"text": "d"}', '{"text": "d", "label": null}', '{"text": "d", "label": ""}'])
def test_unlabelled_test_split_is_read_only_on_request(tmp_path, hidden, capfd):
    for split, label in (("train", "x"), ("train", "y"), ("dev", "x")):
        with (tmp_path / f"{split}.jsonl").open("a") as file:
            file.write(json.dumps({"text": f"{split} {label}", "label": label}) + "\n")
    (tmp_path / "test.jsonl").write_text(hidden + "\n")
    data = open_task("classification").read(str(tmp_path), ("train", "dev"))
    assert {split: len(items) for split, items in data.splits.items()} == {"train": 2, "dev": 1}
    assert "test has no labels" in capfd.readouterr().err
    with pytest.raises(SqueezeError):
        open_task("classification").read(str(tmp_path), ("test",))


def test_tagged_words_are_not_taken_for_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, split in enumerate(("train", "dev")):
        (tmp_path / f"{split}.tsv").write_text(f"case{number}\tO\nsepsis{number}\tB-Disease\n")
    open_task("classification").read(str(tmp_path), ("train", "dev"))
    assert "every text is a single word, and the labels are tags" in capsys.readouterr().err


@pytest.mark.parametrize(("suffix", "separator"), [("csv", ","), ("tsv", "\t")])
def test_a_header_with_unknown_names_is_no_example(suffix: str, separator: str, tmp_path: Path) -> None:
    labels = {"train": ["a", "b", "a"], "dev": ["a"], "test": ["a", "b"]}
    data = write(tmp_path / "data", suffix, **table(labels, separator, f"note{separator}diagnosis\n"))
    explained(lambda: read(data), "looks like a header", "--column text=note --column label=diagnosis")
    named = read(data, column=("text=note", "label=diagnosis"))
    assert named.labels == ("a", "b") and len(named.splits["train"]) == 3
    bare = write(tmp_path / "bare", suffix, **table(labels, separator, ""))
    assert len(read(bare).splits["train"]) == 3


def test_quotes_of_a_tsv_are_explained(tmp_path: Path) -> None:
    rows = [("text", "label"), ("No fever was seen.", "a"), ("A cold was seen.", "b")]
    quoted = "".join(f'"{text}"\t"{label}"\n' for text, label in rows)
    data = write(tmp_path, "tsv", train=quoted)
    explained(lambda: read(data, ("train",)), "looks like a header", "save the table as .csv")


def test_an_object_is_no_text(tmp_path: Path) -> None:
    rows = [{"text": {"contexts": ["A."], "answers": ["yes"]}, "label": "a"}, {"text": "B.", "label": "b"}]
    data = write(tmp_path, "jsonl", train="\n".join(map(json.dumps, rows)))
    explained(lambda: read(data, ("train",)), "train.jsonl:1", "an object with contexts, answers")


def test_a_carriage_return_within_a_cell_is_read_and_guessed(tmp_path: Path) -> None:
    rows = "".join(f"first part\rsecond part {number}\t{number % 2}\n" for number in range(8))
    data = write(tmp_path, "tsv", train="text\tlabel\n" + rows)
    assert len(read(data, ("train",)).splits["train"]) == 8
    assert guess(str(data), Formulation()).kind == "classification"


def test_line_ends_of_carriage_returns_alone_are_explained(tmp_path: Path) -> None:
    data = write(tmp_path / "table", "tsv")
    (data / "train.tsv").write_bytes(b"text\tlabel\rNo fever.\ta\rA cold.\tb\r")
    explained(lambda: read(data, ("train",)), "carriage return", "tr '\\r' '\\n'")
    (data / "train.tsv").write_bytes(b"The\tO\rBRCA1\tB-Gene\rgene\tO\r\rp53\tB-Gene\r")
    explained(lambda: open_task("ner").read(str(data), ("train",)), "train.tsv:1", "carriage return")


@pytest.mark.parametrize(
    "rows", ["Hypertension\ta\nNo fever was seen.\tb\nA cold was seen.\ta\n", "Fever\t1\nA cold.\t0\n"]
)
def test_a_first_text_of_one_word_is_no_header(rows: str, tmp_path: Path) -> None:
    data = write(tmp_path, "tsv", train=rows)
    assert len(read(data, ("train",)).splits["train"]) == rows.count("\n")
