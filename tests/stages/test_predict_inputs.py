"""What the stage predict reads: columns, typed texts, tables, tagged words and tokens."""

import json
from pathlib import Path

import pytest

from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.stages import predict
from tests.manifests import write_manifest
from tests.stages.predicting import options_of, predicted, write_records


def test_columns(classifier, tmp_path):
    source = write_records(tmp_path / "r.jsonl", {"body": "car ci"})
    (predictions,) = predicted(classifier, source, task="classification", column=("text=body",))
    assert predictions["label"] in "abc"
    text = write_records(tmp_path / "r.txt", "car ci")
    with pytest.raises(UsageError, match="no fields"):
        predict.run(options_of(classifier, text, task="classification", column=("text=body",)))


def test_typed_texts(ner, classifier, shell):
    result = shell("predict", ner, "--text", "Hepti in fibneu", "--text", "ci")
    assert [json.loads(line)["id"] for line in result.out.splitlines()] == [1, 2]
    assert "--text is read as one text a line" not in result.err
    assert "label" in shell("predict", classifier, "--task", "classification", "--text", "Hepti").out
    assert "for every record of --text" in shell("predict", ner, "--text", "ci", "--dry-run").err
    for words, state in ((("--text", "ci", "r.txt"), "both were given"), ((), "neither was given")):
        result = shell("predict", ner, *words)
        assert (result.code, result.out) == (2, "")
        assert f"give either INPUT (or - in a pipe) or --text, and not both; {state}" in result.err


def test_tables_and_tagged_words(ner, classifier, tmp_path):
    (only,) = predicted(ner, write_records(tmp_path / "r.jsonl", {"id": "7", "text": "Hepti in fibneu"}))
    for name, content in (("r.csv", "id,text\n7,Hepti in fibneu"), ("r.tsv", "text\tid\nHepti in fibneu\t7")):
        assert predicted(ner, write_records(tmp_path / name, content)) == [only]
    table = write_records(tmp_path / "n.tsv", "7\tHepti in fibneu")
    assert predicted(ner, table, column=("text=2",)) == [{**only, "id": 1}]
    words = write_records(tmp_path / "r.conll", "Hepti B-Disease", "in O", "fibneu O")
    (tagged,) = predicted(ner, words)
    assert [e["words"] for e in tagged["entities"]] == [e["words"] for e in only["entities"]]
    assert predicted(ner, words, column=("word=1",)) == [tagged]
    with pytest.raises(UsageError, match=r"tagged words, which has no fields; write --column word=1"):
        predicted(ner, words, column=("text=1",))
    with pytest.raises(UsageError, match="tagged words, and classification needs texts"):
        predicted(classifier, words, task="classification")


def test_header_alone_is_no_record(ner, tmp_path):
    with pytest.raises(SqueezeError, match="has no record"):
        predicted(ner, write_records(tmp_path / "r.csv", "id,text"))


def test_no_tokens_and_empty_text_have_no_entities(ner, tmp_path):
    predictions = predicted(ner, write_records(tmp_path / "r.jsonl", {"id": 1, "tokens": []}, {"id": 2, "text": ""}))
    assert predictions == [{"id": 1, "entities": []}, {"id": 2, "entities": []}]


def test_tokens_have_no_offsets_and_no_pubtator(ner, tmp_path):
    source = write_records(tmp_path / "r.jsonl", {"id": 1, "tokens": ["car", "ci", "hepti", "ma"]})
    (predictions,) = predicted(ner, source)
    assert predictions["entities"] and all("start" not in entity for entity in predictions["entities"])
    with pytest.raises(SqueezeError, match=r'r\.jsonl:1: PubTator needs a "text" that is not empty; .* --format jsonl'):
        list(predict.run(options_of(ner, source, format="pubtator")).lines)


def test_plain_text_ignores_columns_of_the_fine_tuning(classifier, copy_of, tmp_path):
    path = copy_of(Path(classifier))
    task = {"name": "classification", "scheme": "single", "formulation": {"column": ["text=body"]}}
    write_manifest(path, task=task)
    (predictions,) = predicted(path, write_records(tmp_path / "r.txt", "car ci"))
    (same,) = predicted(path, write_records(tmp_path / "r.jsonl", {"body": "car ci"}))
    assert predictions["scores"] == pytest.approx(same["scores"])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("r.csv", ("id,text", "7,car ci")),
        ("r.tsv", ("id\ttext", "7\tcar ci")),
        ("r.jsonl", ('{"id": "7", "text": "car ci"}',)),
    ],
)
def test_named_fields_after_tuning_on_numbers(classifier, ner, copy_of, tmp_path, name, content):
    source = write_records(tmp_path / name, *content)
    for checkpoint, task, columns in (
        (classifier, {"name": "classification", "scheme": "single"}, ["text=2", "label=1"]),
        (ner, {"name": "ner", "scheme": "BIO"}, ["word=1", "tag=4"]),
    ):
        path = copy_of(Path(checkpoint))
        (same,) = predicted(path, source, task=task["name"])
        write_manifest(path, task={**task, "formulation": {"column": columns}})
        assert predicted(path, source) == [same]
