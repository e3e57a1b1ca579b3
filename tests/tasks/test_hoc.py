"""BLURB's HoC, whose sentences are merged to abstracts. All texts are ours."""

from pathlib import Path

import pytest

from biosqueeze.errors import UsageError
from biosqueeze.tasks import open_task
from biosqueeze.tasks.readers.hoc import HALLMARKS
from tests.error_messages import explained
from tests.tasks.classification_data import read, write


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


@pytest.mark.real
def test_real_hoc_has_the_reference_counts(real_data):
    task = open_task("classification")
    data = task.read(str(real_data / "hoc" / "blurb"), ("train", "dev"))
    test = task.read(str(real_data / "hoc" / "blurb"), ("test",)).splits["test"]
    assert (len(data.splits["train"]), len(data.splits["dev"]), len(test)) == (1295, 186, 371)
    documents = [*data.splits["train"], *data.splits["dev"], *test]
    # The authors count 272 abstracts without a hallmark (PubMedBERT, section 4.5).
    assert sum(not document.gold for document in documents) == 272
