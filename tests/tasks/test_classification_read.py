"""Classification: every way to write texts and labels."""

import json
from pathlib import Path

import pytest

from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.tasks import Formulation, open_task
from biosqueeze.tasks.sniffing import guess
from tests.error_messages import explained
from tests.tasks.classification_data import ALL, TEXTS, read, table, write


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


def test_nan_is_a_missing_value(tmp_path):
    row = '{{"title": NaN, "text": "{0}", "label": {1}}}\n'
    (tmp_path / "train.jsonl").write_text(row.format("a b", '"x"') + row.format("c d", '"y"'))
    (tmp_path / "dev.jsonl").write_text(row.format("e f", '"x"'))
    data = open_task("classification").read(str(tmp_path), ("train", "dev"))
    assert [example.texts for example in data.splits["train"]] == [("a b",), ("c d",)]
    (tmp_path / "train.jsonl").write_text(row.format("a b", '"x"') + row.format("c d", "NaN"))
    with pytest.raises(SqueezeError, match=r"train\.jsonl:2: no label"):
        open_task("classification").read(str(tmp_path), ("train", "dev"))


@pytest.mark.parametrize(("suffix", "separator"), [("csv", ","), ("tsv", "\t")])
def test_a_header_with_unknown_names_is_no_example(suffix: str, separator: str, tmp_path: Path) -> None:
    labels = {"train": ["a", "b", "a"], "dev": ["a"], "test": ["a", "b"]}
    data = write(tmp_path / "data", suffix, **table(labels, separator, f"note{separator}diagnosis\n"))
    explained(lambda: read(data), "looks like a header", "--column text=note --column label=diagnosis")
    named = read(data, column=("text=note", "label=diagnosis"))
    assert named.labels == ("a", "b") and len(named.splits["train"]) == 3
    bare = write(tmp_path / "bare", suffix, **table(labels, separator, ""))
    assert len(read(bare).splits["train"]) == 3


@pytest.mark.parametrize(
    "rows", ["Hypertension\ta\nNo fever was seen.\tb\nA cold was seen.\ta\n", "Fever\t1\nA cold.\t0\n"]
)
def test_a_first_text_of_one_word_is_no_header(rows: str, tmp_path: Path) -> None:
    data = write(tmp_path, "tsv", train=rows)
    assert len(read(data, ("train",)).splits["train"]) == rows.count("\n")


def test_a_carriage_return_within_a_cell_is_read_and_guessed(tmp_path: Path) -> None:
    rows = "".join(f"first part\rsecond part {number}\t{number % 2}\n" for number in range(8))
    data = write(tmp_path, "tsv", train="text\tlabel\n" + rows)
    assert len(read(data, ("train",)).splits["train"]) == 8
    assert guess(str(data), Formulation()).kind == "classification"


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (
            "condition_label\tmedical_abstract\n",
            "looks like a header.*--column label=condition_label",
        ),
        ("", "column 1 has recurring values where a text.*--column label=1 --column text=2"),
    ],
)
def test_labels_before_texts_without_known_names(tmp_path, first, message):
    rows = "".join(f"{number % 3 + 1}\tThe text of example {number}.\n" for number in range(12))
    (tmp_path / "train.tsv").write_text(first + rows)
    with pytest.raises(SqueezeError, match=message):
        open_task("classification").read(str(tmp_path), ("train",))
