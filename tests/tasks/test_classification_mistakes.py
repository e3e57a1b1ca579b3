"""Classification: data that are refused or warned about."""

import json
from pathlib import Path

import pytest

from biosqueeze.tasks import open_task
from tests.error_messages import explained
from tests.tasks.classification_data import read, table, write


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


@pytest.mark.parametrize(
    ("outside", "inside", "words"),
    [
        ("O", "B-Disease", "the labels are tags"),
        ("O", "B_Disease", "write the tags as"),
        ("o", "b-disease", "write the tags as"),
        ("O", "Disease", "write the tags as"),
    ],
)
def test_tagged_words_are_not_taken_for_texts(
    tmp_path: Path, outside: str, inside: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, split in enumerate(("train", "dev")):
        rows = [("no", outside), ("case", outside), ("sepsis", inside)]
        (tmp_path / f"{split}.tsv").write_text("".join(f"{word}{number}\t{tag}\n" for word, tag in rows))
    open_task("classification").read(str(tmp_path), ("train", "dev"))
    message = capsys.readouterr().err
    assert "every text is a single word" in message
    assert words in message


def test_quotes_of_a_tsv_are_explained(tmp_path: Path) -> None:
    rows = [("text", "label"), ("No fever was seen.", "a"), ("A cold was seen.", "b")]
    quoted = "".join(f'"{text}"\t"{label}"\n' for text, label in rows)
    data = write(tmp_path, "tsv", train=quoted)
    explained(lambda: read(data, ("train",)), "looks like a header", "save the table as .csv")


def test_an_object_is_no_text(tmp_path: Path) -> None:
    rows = [{"text": {"contexts": ["A."], "answers": ["yes"]}, "label": "a"}, {"text": "B.", "label": "b"}]
    data = write(tmp_path, "jsonl", train="\n".join(map(json.dumps, rows)))
    explained(lambda: read(data, ("train",)), "train.jsonl:1", "an object with contexts, answers")


def test_line_ends_of_carriage_returns_alone_are_explained(tmp_path: Path) -> None:
    data = write(tmp_path / "table", "tsv")
    (data / "train.tsv").write_bytes(b"text\tlabel\rNo fever.\ta\rA cold.\tb\r")
    explained(lambda: read(data, ("train",)), "carriage return", "tr '\\r' '\\n'")
    (data / "train.tsv").write_bytes(b"The\tO\rBRCA1\tB-Gene\rgene\tO\r\rp53\tB-Gene\r")
    explained(lambda: open_task("ner").read(str(data), ("train",)), "train.tsv:1", "carriage return")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("['cancer' 'gene']", "train.csv:2: the labels ['cancer' 'gene'] are not a list"),
        ("['cancer' 'gene'\n 'cell']", "train.csv:2: the labels ['cancer' 'gene' 'cell'] are not a list"),
        ("[1 3]", "train.csv:2: the labels [1 3] are not a list"),
        ("['a' ... 'z']", "train.csv:2: the labels ['a' ... 'z'] are not a list"),
        ("[{[]: 1}]", "train.csv:2: the labels [{[]: 1}] are not a list"),
        (f"[{'-' * 9000}1]", "train.csv:2: the labels [---"),
    ],
)
def test_lists_as_numpy_prints_them_are_refused(tmp_path: Path, value: str, found: str) -> None:
    rows = f'text,labels\nA text.,"{value}"\nB text.,"[3]"\n'
    write(tmp_path, "csv", train=rows, dev='text,labels\nC text.,"[3]"\n')
    explained(lambda: read(tmp_path, ("train", "dev")), found, "separate the items with commas")


def test_brackets_in_names_of_single_labels_are_kept(tmp_path: Path) -> None:
    write(tmp_path, "tsv", **table({"train": ["[A]", "B", "B"], "dev": ["B"], "test": ["[A]", "B"]}))
    assert read(tmp_path).labels == ("B", "[A]")


def test_adjacent_quotes_within_one_name_are_kept(tmp_path: Path) -> None:
    rows = "text\tlabels\nA text.\t['a \\'b\\' c', \"d\"]\nB text.\t['d',]\n"
    write(tmp_path, "tsv", train=rows, dev="text\tlabels\nC text.\t['d']\n")
    assert read(tmp_path, ("train", "dev")).labels == ("a 'b' c", "d")
