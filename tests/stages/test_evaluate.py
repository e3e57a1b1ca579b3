import json
import shutil

import numpy as np
import pytest

from biosqueeze import progress
from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.errors import QualityGateMissedError, SqueezeError, UsageError
from biosqueeze.reporting.measurements import evaluation_table
from biosqueeze.reporting.report_data import gather
from biosqueeze.stages import evaluate
from biosqueeze.summaries import measured_on
from tests import pico
from tests.manifests import write_manifest

TEST = "The\tO\ncarcino\tB-Disease\nmatis\tI-Disease\n.\tO\n\nNo\tO\nhepti\tB-Disease\nin\tO\nfibneu\tB-Disease\n"


@pytest.fixture
def data(tmp_path):
    directory = tmp_path / "data"
    directory.mkdir()
    (directory / "test.tsv").write_text(TEST)
    return directory


@pytest.fixture
def checkpoint(tmp_path, pico_ner):
    return shutil.copytree(pico_ner, tmp_path / "ner")


@pytest.fixture
def gold_but(monkeypatch):
    """Replace the model by one that predicts the gold labels, and O for the words with the given indices."""

    def install(*wrong: int) -> list[dict]:
        calls = []

        def predict_all(predictor, features, pad_token_id, batch_size):
            calls.append({"features": features, "batch_size": batch_size})
            word = -1
            logits = []
            for feature in features:
                rows = np.zeros((len(feature["input_ids"]), len(pico.LABELS)), np.float32)
                for place in np.flatnonzero(feature["labels"] >= 0):
                    word += 1
                    rows[place, 0 if word in wrong else feature["labels"][place]] = 1
                logits.append(rows)
            return logits

        monkeypatch.setattr("biosqueeze.finetuning.task_model.predict_all", predict_all)
        return calls

    return install


def _options(checkpoint, data, **changes) -> evaluate.Options:
    return evaluate.Options(checkpoint=str(checkpoint), data=str(data), **changes)


def _result(checkpoint, name: str = "evaluate-torch") -> dict:
    return json.loads((checkpoint / "results" / f"{name}.json").read_text())


def test_scores_are_written_and_shown(checkpoint, data, gold_but, capsys):
    calls = gold_but(5)  # "hepti"
    outcome = evaluate.run(_options(checkpoint, data, batch_size=3, max_length=16))
    result = _result(checkpoint)
    assert outcome.path == checkpoint
    assert outcome.facts["metrics"] == result["metrics"]
    assert result["metrics"] == {
        "precision": 1.0,
        "recall": pytest.approx(2 / 3),
        "f1": pytest.approx(0.8),
        "support": 3,
        "f1-Disease": pytest.approx(0.8),
        "support-Disease": 3,
    }
    assert (result["backend"], result["split"], result["data"]) == ("torch", "test", str(data))
    assert result["data_path"] == str(data.resolve())
    assert (result["task"], result["examples"], result["max_length"]) == ("ner", 2, 16)
    assert calls[0]["batch_size"] == 3
    measured = {"checkpoint": str(checkpoint), "task": "ner", "data": str(data), "split": "test", "backend": "torch"}
    assert outcome.rows[0] == {**measured, "metric": "precision", "value": 1.0}
    assert [row["metric"] for row in outcome.rows] == list(result["metrics"])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "0.8000" in captured.err and "f1-Disease" in captured.err


def test_no_title_without_its_table(checkpoint, data, gold_but, capsys):
    gold_but()
    progress.show_tables(shown=False)
    try:
        evaluate.run(_options(checkpoint, data))
    finally:
        progress.show_tables(shown=True)
    assert "with torch:" not in capsys.readouterr().err
    evaluate.run(_options(checkpoint, data))
    assert f"\nner on {data} (test) with torch:\n" in capsys.readouterr().err


def test_long_sentences_are_windowed(checkpoint, data, gold_but):
    calls = gold_but()
    outcome = evaluate.run(_options(checkpoint, data, max_length=5))
    lengths = [len(feature["input_ids"]) for feature in calls[0]["features"]]
    assert max(lengths) <= 5 and len(lengths) > 2
    assert outcome.facts["metrics"]["f1"] == 1


def test_max_length_is_limited_by_the_positions(checkpoint, data, gold_but):
    (data / "test.tsv").write_text("x\tB-Disease\n" * (2 * pico.POSITIONS))
    calls = gold_but()
    evaluate.run(_options(checkpoint, data, max_length=100_000))
    assert max(len(feature["input_ids"]) for feature in calls[0]["features"]) == pico.POSITIONS


@pytest.mark.parametrize("backend", ["torch", "torch:bf16"])
def test_real_backend_agrees_with_stock_transformers(checkpoint, data, backend):
    import torch
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    from biosqueeze.tasks import open_task

    ner = open_task("ner")
    outcome = evaluate.run(_options(checkpoint, data, backend=backend))
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForTokenClassification.from_pretrained(checkpoint)
    examples = ner.read(str(data), ("test",)).splits["test"]
    windows = ner.encode(examples, pico.LABELS, tokenizer, 128)
    with torch.no_grad():
        logits = [model(torch.from_numpy(w.input_ids)[None]).logits[0].numpy() for w in windows]
    predicted = ner.decode(windows, logits, examples, pico.LABELS)
    expected = ner.score([e.gold for e in examples], predicted)
    assert _result(checkpoint, f"evaluate-{backend.replace(':', '-')}")["metrics"] == outcome.facts["metrics"]
    if backend == "torch":
        assert outcome.facts["metrics"] == expected


def test_floors_reached(checkpoint, data, gold_but, capsys):
    gold_but(5)
    evaluate.run(_options(checkpoint, data, min=("f1=0.79", "f1-Disease=.8", "precision=1")))
    assert "every floor is reached (f1 >= 0.79" in capsys.readouterr().err


def test_missed_floor_fails_after_writing_the_scores(checkpoint, data, gold_but):
    gold_but(5)
    with pytest.raises(QualityGateMissedError) as caught:
        evaluate.run(_options(checkpoint, data, min=("precision=0.9", "f1=0.81", "recall=0.7")))
    assert "f1 0.8000 is below 0.81, recall 0.6667 is below 0.7;" in str(caught.value)
    assert "precision" not in str(caught.value)
    assert caught.value.exit_code == 4
    assert _result(checkpoint)["metrics"]["f1"] == pytest.approx(0.8)


def test_a_missed_count_has_no_decimals(checkpoint, data, gold_but):
    gold_but()
    with pytest.raises(QualityGateMissedError, match=r": support 3 is below 1000;"):
        evaluate.run(_options(checkpoint, data, min=("support=1000",)))


@pytest.mark.parametrize("floor", ["f1", "f1=", "=0.8", "f1=high", "f1=nan", "f1=inf", ""])
def test_malformed_floor(checkpoint, data, floor):
    with pytest.raises(UsageError, match=r"METRIC=FLOOR; write for example f1=0\.80"):
        evaluate.run(_options(checkpoint, data, min=(floor,)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"backend": "touch"}, "no backend called 'touch'.*Did you mean 'torch'"),
        ({"backend": "torch:int3"}, "no precision 'int3'"),
        ({"batch_size": 0}, "--batch-size must be at least 1"),
        ({"threads": -1}, "--threads must be at least 1"),
        ({"split": "tset"}, "no split 'tset'.*Did you mean 'test'"),
        ({"max_length": 2}, "at least 3, not 2"),
        ({"task": "ren"}, "there is no task 'ren'"),
        ({"negative": "x"}, r"--negative is not used by the task ner.*its options: --column, --types\)"),
    ],
)
def test_invalid_options(checkpoint, data, changes, words):
    with pytest.raises(SqueezeError, match=words):
        evaluate.run(_options(checkpoint, data, **changes))
    assert not (checkpoint / "results").exists()


def test_spellings_of_a_backend_share_one_result(checkpoint, data, gold_but):
    gold_but()
    evaluate.run(_options(checkpoint, data, backend="torch:fp32"))
    assert [path.name for path in (checkpoint / "results").iterdir()] == ["evaluate-torch.json"]


def test_a_tagger_that_predicts_nothing_is_named(checkpoint, data, gold_but, capsys):
    gold_but(1, 2, 5, 7)
    assert evaluate.run(_options(checkpoint, data)).facts["metrics"]["f1"] == 0
    assert f"predicts no entity at all in 2 examples of {data}" in capsys.readouterr().err
    gold_but(1, 2)
    evaluate.run(_options(checkpoint, data))
    assert "no entity" not in capsys.readouterr().err


def test_a_floor_in_percent_is_refused(checkpoint, data, gold_but):
    calls = gold_but()
    with pytest.raises(UsageError, match=r"--min f1=80: scores are from 0 to 1 here; say f1=0.80"):
        evaluate.run(_options(checkpoint, data, min=("f1=80",)))
    assert not calls
    evaluate.run(_options(checkpoint, data, min=("support=2",)))


def test_two_floors_of_a_metric_are_refused(checkpoint, data):
    with pytest.raises(UsageError, match=r"--min gives f1 twice, 0.9 and 0.1; keep one"):
        evaluate.plan(_options(checkpoint, data, min=("f1=0.9", "recall=0.5", "f1=0.1")))


def test_unknown_metric_fails_before_the_model_runs(checkpoint, data, gold_but):
    calls = gold_but()
    with pytest.raises(
        UsageError, match=r"no metric 'recal'.*Did you mean 'recall'.*precision, recall, f1, support, f1-D"
    ):
        evaluate.run(_options(checkpoint, data, min=("recal=0.8",)))
    assert not calls
    assert not (checkpoint / "results").exists()


def test_data_with_labels_the_checkpoint_lacks(checkpoint, data):
    (data / "test.tsv").write_text(TEST.replace("hepti\tB-Disease", "hepti\tB-Drug"))
    with pytest.raises(
        SqueezeError, match=r"labels B-Drug, but .* only O, B-Disease, I-Disease; score the others"
    ) as raised:
        evaluate.run(_options(checkpoint, data))
    assert "(--types Disease), give the data" in str(raised.value)


def test_checkpoint_without_fine_tuning(pico_bert, data):
    with pytest.raises(SqueezeError, match=r"no trained task head.*first: biosqueeze finetune"):
        evaluate.run(_options(pico_bert, data))


def test_a_classifier_without_a_record_needs_its_task(tmp_path, data):
    path = pico.save("bert", tmp_path / "nli", head="sequence-classification", labels=("a", "b"))
    with pytest.raises(UsageError, match="give --task classification, relation, nli or similarity"):
        evaluate.run(_options(path, data))


def test_head_in_config_json_but_not_in_the_weights(checkpoint, data):
    from safetensors.torch import load_file, save_file

    weights = checkpoint / "model.safetensors"
    trunk = {name: tensor for name, tensor in load_file(weights).items() if not name.startswith("classifier")}
    save_file(trunk, weights, {"format": "pt"})
    with pytest.raises(SqueezeError, match="no trained task head"):
        evaluate.run(_options(checkpoint, data))


def test_checkpoint_without_label_names(tmp_path, data):
    nameless = pico.save(
        "bert", tmp_path / "nameless", head="token-classification", labels=("LABEL_0", "LABEL_1", "LABEL_2")
    )
    with pytest.raises(SqueezeError, match=r"has no names of its labels.*id2label"):
        evaluate.run(_options(nameless, data))


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (("O", "Disease", "Gene"), "the label 'Disease'"),
        (("B_X", "I_X", "O"), "the label 'B_X'"),
        (("B", "I"), "no label O"),
    ],
)
def test_labels_that_are_no_tags(labels, says, tmp_path, data):
    path = pico.save("bert", tmp_path / "other", head="token-classification", labels=labels)
    with pytest.raises(SqueezeError, match=f"has {says}, and entities are read from tags"):
        evaluate.run(_options(path, data))


def test_multi_label_checkpoint_without_manifest(tmp_path):
    path = pico.save("bert", tmp_path / "multi", head="sequence-classification", labels=("a", "b", "c"))
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "problem_type": "multi_label_classification"}))
    (tmp_path / "test.tsv").write_text("text\tlabel\ncar ci\ta;b\nhepti\tc\nneu ro\t\n")
    metrics = evaluate.run(_options(path, tmp_path, task="classification")).facts["metrics"]
    assert 0 <= metrics["f1"] <= 1
    (tmp_path / "test.tsv").write_text("text\tlabel\ncar ci\ta\nhepti\tc\n")  # no example has several labels here
    assert "f1" in evaluate.run(_options(path, tmp_path, task="classification")).facts["metrics"]


def test_data_default_to_those_of_the_fine_tuning(checkpoint, data, gold_but):
    with pytest.raises(UsageError, match=r"give --data"):
        evaluate.run(evaluate.Options(checkpoint=str(checkpoint)))
    write_manifest(checkpoint, stage="finetune", task={"name": "ner", "data": str(data)})
    gold_but()
    assert evaluate.run(evaluate.Options(checkpoint=str(checkpoint))).facts["metrics"]["f1"] == 1


def test_plan_loads_no_weights(checkpoint, data, monkeypatch):
    monkeypatch.setattr("biosqueeze.finetuning.evaluation.load_task_model", lambda *_: pytest.fail("loaded"))
    plan = evaluate.plan(_options(checkpoint, data, min=("f1=0.8",)))
    assert plan.out is None
    assert "2 test examples" in plan.steps[0]
    assert plan.steps[1:] == ("fail below f1 0.8",)
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(SqueezeError, match="has no weights"):
        evaluate.plan(_options(checkpoint, data))


def test_a_score_of_some_types_says_so(tmp_path, pico_ner, data, gold_but):
    (data / "test.tsv").write_text(TEST + "\nfever\tB-Sign\n")
    labels = (*pico.LABELS, "B-Sign", "I-Sign")
    checkpoint = pico.save("bert", tmp_path / "signs", head="token-classification", labels=labels)
    evaluate.run(_options(checkpoint, data))
    assert "types" not in _result(checkpoint)
    whole = measured_on(_result(checkpoint))
    evaluate.run(_options(checkpoint, data, types=("Disease",)))
    result = _result(checkpoint)
    assert result["types"] == ["Disease"]
    assert "support-Sign" not in result["metrics"]
    assert measured_on(result) != whole
    assert measured_on({**result, "types": None}) == whole
    (shown,) = [each for each in gather(open_checkpoint(str(checkpoint))).evaluations if each.own]
    assert shown.measured_on == measured_on(result)
    (row, *_) = evaluation_table([shown]).rows
    assert row.data == "data (test; types Disease)"


@pytest.mark.parametrize(("task", "metric"), [("ner", "f1"), ("blurb/jnlpba", "f1")])
def test_a_merged_checkpoint_is_scored_as_it_was_trained(tmp_path, data, gold_but, task, metric):
    checkpoint = pico.save("bert", tmp_path / "merged", head="token-classification", labels=("O", "B", "I"))
    record = {"name": "ner", "labels": ["O", "B", "I"], "formulation": {"merge_types": True}}
    write_manifest(checkpoint, task=record)
    evaluate.run(_options(checkpoint, data, task=task))
    assert _result(checkpoint)["merge_types"] is True
    assert _result(checkpoint)["metric"] == metric


def test_a_benchmark_compares_by_its_own_metric(tmp_path):
    lines = [json.dumps({"text": f"cell {number}", "label": ["a", "b"]}) for number in range(3)]
    (tmp_path / "test.jsonl").write_text("\n".join(lines))
    checkpoint = pico.save("bert", tmp_path / "texts", head="sequence-classification", labels=("a", "b"))
    write_manifest(checkpoint, task={"name": "classification", "labels": ["a", "b"], "scheme": "multi"})
    evaluate.run(_options(checkpoint, tmp_path, task="biolm/hoc"))
    assert (_result(checkpoint)["task"], _result(checkpoint)["metric"]) == ("classification", "blue_f1")
