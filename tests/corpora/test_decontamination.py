"""Documents that hold a test sentence are found, whatever the format and tokenisation of the benchmark."""

import json
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from biosqueeze.corpora.decontamination import read_test_sentences
from biosqueeze.errors import SqueezeError

RAW = "In vitro, the p53-null cells (n = 12) were sensitive to 5-FU treatment."
TOKENS = "In vitro , the p53 - null cells ( n = 12 ) were sensitive to 5 - FU treatment ."
FILES = {
    "test.tsv": "\n".join(f"{word}\tO" for word in TOKENS.split()) + "\n\n",
    "test.txt": f'{{"text": "{TOKENS}", "label": "x"}}\n',
    "blurb/test.tsv": f"labels\tsentence\tindex\n0_0\t{TOKENS}\t1_s0\n",
    "test.csv": f'id,text\n1,"{RAW}"\n',
    "blurb/test.csv": f'id;text;label\n1;"{RAW}";yes\n',
    "test_lines.csv": 'text,label\n"{}",yes\n'.format(RAW.replace(" cells", "\n\ncells")),
    "test_words.csv": "\n".join(f"{word.strip(',')},O" for word in RAW.split()) + "\n\n",
    "test_long.csv": f'text,label\n"{RAW}{" More." * 30_000}",yes\n',
    "qa/test.json": f'{{"1": {{"QUESTION": "Short one?", "CONTEXTS": ["First. {RAW}"]}}}}',
    "qa/7B1_golden.json": json.dumps({"questions": [{"body": "Short?", "snippets": [{"text": RAW}]}]}, indent=1),
    "qa/test-v1.json": json.dumps({"data": [{"context": "Short one? " * 300_000}, {"context": RAW}]}),
    "NCBItestset_corpus.txt": f"1|t|A title\n1|a|{RAW}\n",
    "Test/DrugBank/a.txt": f"{RAW}\n",
    "test.jsonl": json.dumps({"tokens": TOKENS.split(), "tags": ["O"] * 20}) + "\n",
    "re/test.tsv": RAW.replace("p53", "[E1]p53[/E1]").replace("5-FU", "<e2>5-FU</e2>") + "\tyes\n",
}


@pytest.mark.parametrize("name", FILES)
def test_sentence_is_found(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(FILES[name])
    found = read_test_sentences(tmp_path)
    assert str(found.find(f"Background. {RAW} The end.")).startswith(str(path))
    assert found.find(RAW.replace("sensitive", "resistant")) is None
    assert found.find("") is None


def test_a_test_split_of_ids_names_records_beside_it(tmp_path: Path) -> None:
    other = "Of a train question the context may be in a corpus without harm."
    records = {"1": {"CONTEXTS": [RAW]}, "2": {"CONTEXTS": [other]}}
    (tmp_path / "questions.json").write_text(json.dumps(records, indent=1))
    (tmp_path / "test_ground_truth.json").write_text('{"1": "yes"}')
    found = read_test_sentences(tmp_path)
    assert found.find(RAW) == f"{tmp_path / 'questions.json'}:1"
    assert found.find(other) is None


@pytest.mark.parametrize(
    ("apart", "raw"), [("can not be", "cannot be"), ("was n't", "wasn't"), ("nai\u0308ve", "na\u00efve")]
)
def test_words_that_are_written_in_two_ways(apart: str, raw: str, tmp_path: Path) -> None:
    sentence = "The role of this receptor in mice {} excluded by these data."
    for tested, text in ((apart, raw), (raw, apart)):
        (tmp_path / "test.txt").write_text(sentence.format(tested))
        assert read_test_sentences(tmp_path).find(sentence.format(text)) is not None


def test_train_files_and_short_sentences_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text(FILES["test.tsv"])
    with pytest.raises(SqueezeError, match="no test sentences"):
        read_test_sentences(tmp_path)
    (tmp_path / "test.tsv").write_text("No\tO\nevents\tO\n\n")
    with pytest.raises(SqueezeError, match="no test sentences"):
        read_test_sentences(tmp_path)
    with pytest.raises(SqueezeError, match="no directory"):
        read_test_sentences(tmp_path / "absent")


def test_the_longest_part_without_masks_is_found(tmp_path: Path) -> None:
    masked = "The allele at position -607 in the @GENE$ gene can be used as a new marker in predicting @DISEASE$ early."
    (tmp_path / "test.tsv").write_text(f"index\tsentence\tlabel\n1\t{masked}\t1\n2\t@GENE$ is seen in @DISEASE$.\t0\n")
    found = read_test_sentences(tmp_path)
    assert found.sentences == 1
    text = "The allele at position -607 in the IL-18 gene can be used as a new marker in predicting cancer early."
    assert found.find(text) == f"{tmp_path / 'test.tsv'}:2"
    assert found.find(text.replace("new marker", "marker")) is None


def test_parquet_files_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": 1, "text": "Short.", "parts": ["a"]}, {"id": 2, "text": None, "parts": ["One.", RAW]}]
    path = tmp_path / "data" / "test-00000-of-00001.parquet"
    path.parent.mkdir()
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    assert read_test_sentences(tmp_path).find(RAW) == f"{path}:2"
    assert "unknown formats" not in capsys.readouterr().err
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(SqueezeError, match=r"cannot be read as Parquet .* take it out of --against"):
        read_test_sentences(tmp_path)


def test_test_files_that_are_not_read_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("test.tsv", "test.arrow", "train.arrow", "test/1.txt", "test/1.ann", "test/README.md", "test.zip"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{RAW}\n")
    read_test_sentences(tmp_path)
    said = " ".join(capsys.readouterr().err.split())
    assert f"no test sentence is read from {tmp_path / 'test.arrow'}, {tmp_path / 'test.zip'}: unknown" in said
