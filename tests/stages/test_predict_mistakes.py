"""Records and options of the stage predict that are wrong."""

import gzip
import json
from contextlib import closing

import pytest

from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.stages import predict
from tests.stages.predicting import options_of, predicted, write_records
from tests.standard_input import pipe_in

BAD = ({"id": 1, "text": "car ci"}, "foo", {"id": 3, "body": "no text"}, {"id": 4, "text": "hepti. Neu ma"})


def test_bad_record_stops_after_the_records_before_it(ner, tmp_path):
    source = write_records(tmp_path / "bad.jsonl", *BAD)
    predictions = predict.run(options_of(ner, source)).lines
    with closing(predictions):
        assert json.loads(next(predictions))["id"] == 1
        with pytest.raises(SqueezeError, match=r"bad\.jsonl:2: invalid JSON.*--skip-bad"):
            next(predictions)
    out = tmp_path / "out.jsonl"
    with pytest.raises(SqueezeError, match=r"out\.jsonl\.partial holds the predictions of the first 1 records"):
        predict.run(options_of(ner, source, out=str(out)))
    assert not out.exists()
    assert json.loads((tmp_path / "out.jsonl.partial").read_text())["id"] == 1


def test_skip_bad_writes_the_error_in_place(ner, tmp_path, capsys):
    source = write_records(tmp_path / "bad.jsonl", *BAD)
    predictions = predicted(ner, source, skip_bad=True)
    assert [each["id"] for each in predictions] == [1, None, 3, 4]
    assert ["error" in each for each in predictions] == [False, True, True, False]
    assert f"{source}:3: " in predictions[2]["error"]
    assert "4 records, 2 of them bad" in capsys.readouterr().err
    outcome = predict.run(options_of(ner, source, skip_bad=True, out=str(tmp_path / "out")))
    assert (outcome.facts["records"], outcome.facts["bad"]) == (4, 2)


def test_line_that_is_not_utf_8_is_a_bad_record(ner, tmp_path):
    source = tmp_path / "bad.jsonl"
    source.write_bytes(b'{"id": 1, "text": "car ci"}\n{"id": 2, "text": "caf\xe9"}\n{"id": 3, "text": "hepti"}\n')
    predictions = predicted(ner, source, skip_bad=True)
    assert ["error" in each for each in predictions] == [False, True, False]
    assert predictions[1]["error"].startswith(f"{source}:2: not UTF-8 text")
    lines = predict.run(options_of(ner, source)).lines
    assert json.loads(next(lines))["id"] == 1
    with pytest.raises(SqueezeError, match=r"bad\.jsonl:2: not UTF-8 text.*--skip-bad"):
        next(lines)


def test_records_before_damaged_input_are_predicted(ner, tmp_path):
    source = tmp_path / "cut.jsonl.gz"
    lines = b"".join(b'{"id": %d, "text": "car ci"}\n' % number for number in range(3))
    packed = gzip.compress(lines)
    source.write_bytes(packed[:-8])  # without the checksum at the end
    predictions = predict.run(options_of(ner, source, skip_bad=True)).lines
    assert [json.loads(line)["id"] for line in next(predictions).splitlines()] == [0, 1, 2]
    with pytest.raises(SqueezeError, match="gzip data is damaged"):
        next(predictions)


def test_all_records_bad_is_a_failure(ner, tmp_path):
    source = write_records(tmp_path / "bad.jsonl", {"a": 1}, {"b": 1})
    with pytest.raises(SqueezeError, match="every record is bad"):
        predicted(ner, source, skip_bad=True)


def test_only_the_unencodable_record_is_bad(classifier, tmp_path):
    texts = ["@CHEMICAL$ ci @GENE$", "car @ hepti @ ma # ci #", "carci"]
    source = write_records(tmp_path / "r.jsonl", *({"id": n, "text": text} for n, text in enumerate(texts)))
    predictions = predicted(classifier, source, task="relation", skip_bad=True)
    assert [each["id"] for each in predictions] == [0, 1, 2]
    assert predictions[0]["label"] in "abc" and "error" in predictions[2]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--task", "nar"), 2, "Did you mean 'ner'?"),
        (("--task", "classification"), 1, "no trained sequence-classification head"),
        (("--backend", "onnxruntime"), 1, "biosqueeze export"),
        (("--backend", "onxruntime"), 2, "Did you mean 'onnxruntime'?"),
        (("--json",), 2, "add --out"),
        (("--force",), 2, "--force needs --out"),
        (("--batch-size", "0"), 2, "at least 1, not 0"),
        (("--max-length", "2"), 2, "at least 3, not 2"),
        (("--out", "."), 1, "is a directory"),
        (("--format", "pubtator", "--skip-bad"), 2, "--skip-bad is only for --format jsonl"),
        (("--format", "pubtator", "--keep-fields"), 2, "--keep-fields is only for --format jsonl"),
    ],
)
def test_invalid_options_give_one_error_line(ner, records, shell, words, code, message):
    result = shell("predict", ner, records, *words)
    assert (result.code, result.out) == (code, "")
    assert message in result.err
    assert len([line for line in result.err.splitlines() if line.startswith("error: ")]) == 1


@pytest.mark.parametrize("task", ["nli", "similarity"])
@pytest.mark.parametrize("name", ["r.txt", "r.pubtator", "r.conll"])
def test_a_task_of_two_texts_needs_fields(classifier, tmp_path, task, name):
    line = {"r.txt": "car ci", "r.pubtator": "1|t|car ci", "r.conll": "car O"}[name]
    source = write_records(tmp_path / name, line)
    with pytest.raises(
        UsageError, match=rf"{name} is .* {task} needs two texts; .* a table with sentence1 and sentence2"
    ):
        predicted(classifier, source, task=task)


def test_a_question_needs_its_context(shallow, shell):
    result = shell("predict", shallow("bert", "question-answering"), "--text", "car ci")
    assert result.code == 2
    assert "qa needs two texts; give JSON lines or a table with question and context" in result.err


def test_checkpoint_without_a_task(pico_bert, classifier, ner, records, shell):
    result = shell("predict", pico_bert, records)
    assert result.code == 1 and "biosqueeze finetune" in result.err
    result = shell("predict", classifier, records)
    assert result.code == 2 and "--task classification, relation" in result.err
    result = shell("predict", classifier, records, "--task", "classification", "--format", "pubtator")
    assert result.code == 2 and "finds none" in result.err


def test_checkpoint_and_input_both_from_stdin(shell, monkeypatch):
    pipe_in(monkeypatch, b"x\n")
    result = shell("predict - -")
    assert result.code == 2 and "the checkpoint cannot be - too" in result.err
