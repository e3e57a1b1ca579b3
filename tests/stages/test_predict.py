"""The stage predict: what is predicted, from which records, with which heads, and in which form."""

import json
from pathlib import Path

import pytest

from tests import pico
from tests.stages.predicting import predicted, write_records


def test_one_line_per_record_in_order(ner, records):
    predictions = predicted(ner, records, batch_size=8)
    given_ = [json.loads(line) for line in records.read_text().splitlines()]
    assert [each["id"] for each in predictions] == [each["id"] for each in given_]
    assert sum(len(each["entities"]) for each in predictions) > 50
    for each, record in zip(predictions, given_, strict=True):
        for entity in each["entities"]:
            assert entity["text"] == record["text"][entity["start"] : entity["end"]]
            assert 0 <= entity["score"] <= 1


def test_class_does_not_depend_on_the_batch(classifier, records, tmp_path):
    together = predicted(classifier, records, task="classification", batch_size=7)
    for number in (0, 33, 69):
        single = tmp_path / f"{number}.jsonl"
        single.write_text(records.read_text().splitlines()[number])
        (alone,) = predicted(classifier, single, task="classification")
        assert alone["label"] == together[number]["label"]
        assert alone["scores"] == pytest.approx(together[number]["scores"], abs=1e-5)


def test_long_texts_are_not_cut(ner, tmp_path):
    text = " ".join(pico.sentences(60))
    source = write_records(tmp_path / "long.jsonl", {"text": text})
    (predictions,) = predicted(ner, source, max_length=16)
    assert max(entity["end"] for entity in predictions["entities"]) > len(text) * 0.9


def test_keep_fields_adds_the_whole_record(classifier, tmp_path):
    record = {"id": 5, "text": "car ci", "label": "gold", "more": [1, None]}
    (predictions,) = predicted(
        classifier, write_records(tmp_path / "r.jsonl", record), task="classification", keep_fields=True
    )
    assert predictions["record"] == record
    assert predictions["label"] in "abc"


def test_kept_fields_are_not_changed_by_the_id(ner, tmp_path):
    record = {"id": 5, "pmid": "7", "text": "car ci"}
    source = write_records(tmp_path / "r.jsonl", record)
    (named,) = predicted(ner, source, column=("id=pmid",), keep_fields=True)
    assert (named["id"], named["record"]) == ("7", record)
    (row,) = predicted(ner, write_records(tmp_path / "r.csv", "pmid,text", "7,car ci"), keep_fields=True)
    assert (row["id"], row["record"]) == (2, {"pmid": "7", "text": "car ci"})
    lacking = write_records(tmp_path / "l.jsonl", record, {"id": 6, "text": "ci"})
    _, bad = predicted(ner, lacking, column=("id=pmid",), keep_fields=True, skip_bad=True)
    assert "no column 'pmid'" in bad["error"]
    assert (bad["id"], bad["record"]) == (6, {"id": 6, "text": "ci"})


def test_crf_is_decoded_with_its_scores(ner, copy_of, records):
    import torch
    from safetensors.torch import save_file

    path = copy_of(Path(ner))
    never = torch.tensor([0.0, -50.0, -50.0])  # into B-Disease and I-Disease
    scores = {"transitions": never.repeat(3, 1), "start": never.clone(), "end": torch.zeros(3)}
    save_file(scores, path / "head.safetensors", {"biosqueeze_head": "crf"})
    assert any(each["entities"] for each in predicted(ner, records))
    assert not any(each["entities"] for each in predicted(path, records))


def test_multi_label_by_the_config(copy_of, classifier, tmp_path):
    path = copy_of(Path(classifier))
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "problem_type": "multi_label_classification"}))
    (predictions,) = predicted(path, write_records(tmp_path / "r.jsonl", {"text": "car ci"}), task="classification")
    assert predictions["labels"] == sorted(
        (k for k, v in predictions["scores"].items() if v >= 0.5), key=lambda k: -predictions["scores"][k]
    )
    assert sum(predictions["scores"].values()) != pytest.approx(1, abs=1e-3)


def test_counted_warnings_are_added_up(classifier, tmp_path, capsys):
    texts = ["car ci hepti ma neu ro pa thy hep ti"] * 20 + ["ci"] * 20
    source = write_records(tmp_path / "r.jsonl", *({"text": text} for text in texts))
    predictions = predicted(classifier, source, task="classification", max_length=8, batch_size=4)
    err = capsys.readouterr().err
    assert len(predictions) == 40
    assert err.count("warning:") == 1
    assert "warning: 4 of 4 inputs are longer than 8 tokens" in err
    assert "in all, 20 inputs are longer than 8 tokens\n" in err


def test_recipe_skips_a_finished_step(ner, records, shell, tmp_path):
    (tmp_path / "r.toml").write_text(f'[predict]\ncheckpoint = "{ner}"\ninput = "{records}"\n')
    first = shell("run r.toml")
    assert first.code == 0 and first.path == "r-run/predict"
    assert len((tmp_path / first.path).read_text().splitlines()) == 70
    assert "unchanged, skipped" in shell("run r.toml").err
    changed = shell("run r.toml --set predict.max-length=20")
    assert changed.code == 0 and "unchanged" not in changed.err
