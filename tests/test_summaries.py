"""What is said at the end of a stage."""

import json
from types import SimpleNamespace

import pytest

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.progress import duration
from biosqueeze.summaries import scored, trained_summary
from tests import pico


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.96, "10.0 s"),
        (12.4, "12 s"),
        (59.6, "1 min 0 s"),
        (192, "3 min 12 s"),
        (1522, "25 min"),
        (3599, "1 h 0 min"),
        (7500, "2 h 5 min"),
    ],
)
def test_duration_as_one_would_say_it(seconds, text):
    assert duration(seconds) == text


def test_score_beside_the_teachers():
    assert scored("f1", 0.7427, 0.7785) == "f1 0.7427, 95.4% of the teacher's 0.7785"
    assert scored("f1", 0.7427, None) == scored("f1", 0.7427, 0.0) == "f1 0.7427"
    assert scored("pearson", 0.1, -0.2) == "pearson 0.1000"
    assert scored("pearson", -0.2, 0.1) == "pearson -0.2000"


def test_step_without_scores_is_the_last(pico_ner):
    checkpoint = Checkpoint(pico_ner, str(pico_ner))
    summary = trained_summary(checkpoint, {"steps": 1200, "compute": "fp32", "device": "cpu"}, "f1")
    assert (summary.result, summary.machine) == ("kept the weights of the last step, 1,200", "fp32 on cpu")


def test_a_mean_with_the_start_is_named(pico_ner):
    checkpoint = Checkpoint(pico_ner, str(pico_ner))
    metrics = {"steps": 340, "best_step": 340, "start_score": 0.81, "mean_with_start": True, "f1": 0.82}
    kept = "kept the mean of the weights before the training and the last ones; on dev f1 0.8200"
    assert trained_summary(checkpoint, metrics, "f1").result == f"{kept}; 0.8100 before training"


def test_the_command_after_a_cut_can_be_typed(tmp_path, shallow, shell):
    data = tmp_path / "data"
    data.mkdir()
    for split in ("train", "dev", "test"):
        (data / f"{split}.tsv").write_text(f"The\tO\ncarcino\tB-X\nin\tO\n{split}\tO\n\n" * 3)
    quick = ("--steps", 1, "--precision", "fp32", "--max-length", 24)
    encoder = shallow("bert", "mlm")
    assert shell("finetune", encoder, "--data", "data", "--tagger", "crf", *quick, "--out", "crf").code == 0
    cut = shell("shrink crf --ffn 32 --out cut")
    command = "next: biosqueeze finetune cut --task ner --tagger crf --data data"
    assert cut.err.splitlines()[-1] == command
    again = shell(command.removeprefix("next: biosqueeze "), *quick)
    assert again.code == 0, again.err
    (data / "dev.tsv").unlink()
    held_out = ("--dev-share", 0.5, "--seed", 3)
    assert shell("finetune", encoder, "--data", "data", *held_out, *quick, "--out", "plain").code == 0
    cut = shell("shrink plain --ffn 32 --out small")
    command = "next: biosqueeze distill small --teacher plain --data data --dev-share 0.5 --seed 3"
    assert cut.err.splitlines()[-1] == command
    again = shell(command.removeprefix("next: biosqueeze "), *quick)
    assert again.code == 0, again.err
    data.rename(tmp_path / "moved")
    assert shell("shrink crf --ffn 32 --out cut2").err.splitlines()[-1].endswith(" --data DIRECTORY")
    exported = shell("export crf --out exported")
    assert exported.err.splitlines()[-1] == "next: biosqueeze evaluate exported --data DIRECTORY"
    refused = shell("evaluate exported")
    assert refused.code == 1
    assert "exported was trained on data, and there is no such directory here; name the data with --data" in refused.err


def test_a_cut_that_was_not_trained_is_no_teacher(tmp_path, pico_bert, shell):
    words = tmp_path / "words.txt"
    words.write_text("\n".join(pico.sentences(3)))
    assert shell("shrink", pico_bert, "--seed", 0, "--vocab-keep", words, "--out", "whole").code == 0
    assert shell("shrink whole --layers 2 --out cut").err.splitlines()[-1].split("--teacher ")[1].split()[0] == "whole"
    assert "distill again --teacher whole " in shell("shrink cut --ffn 32 --out again").err.splitlines()[-1]
    assert "distill third --teacher whole " in shell("shrink again --ffn 16 --out third").err.splitlines()[-1]
    (tmp_path / "whole").rename(tmp_path / "moved")
    assert "distill fourth --teacher cut " in shell("shrink again --ffn 8 --out fourth").err.splitlines()[-1]


@pytest.mark.slow
def test_every_stage_of_a_chain_says_what_comes_next(pico_bert, shell):
    """Kept step, precision, device, score beside the teacher's, size, time, and a command that can be typed."""
    quick = "--precision fp32 --max-length 24 --seed 0"
    made = shell("finetune", pico_bert, *f"--data demo:ner --steps 2 {quick}".split(), "--out", "a teacher")
    assert "kept step 2 of 2, the best on dev: f1 0." in made.err
    assert "fp32 on cpu; " in made.err and " parameters, " in made.err and "; took " in made.err
    assert made.err.splitlines()[-1] == "next: biosqueeze evaluate 'a teacher'"
    evaluated = shell("evaluate", "a teacher", "--json")
    assert evaluated.err.splitlines()[-1] == "next: biosqueeze quantize 'a teacher'"
    shrunk = shell("shrink", "a teacher", "--layers", "2", "--out", "start")
    assert shrunk.err.splitlines()[-1] == "next: biosqueeze distill start --teacher 'a teacher' --data demo:ner"
    distilled = shell("distill start --teacher", "a teacher", *f"--data demo:ner --steps 2 {quick} --out out".split())
    assert distilled.err.splitlines()[-1] == "next: biosqueeze evaluate out"
    assert "the best on dev: f1 0." in distilled.err
    scores = json.loads(shell("evaluate out --json").out)
    assert scores["teacher_score"] == json.loads(evaluated.out)["metrics"]["f1"]
    assert scores["of_teacher"] == pytest.approx(scores["metrics"]["f1"] / scores["teacher_score"], abs=1e-6)
    assert shell("quantize out --out int8").code == 0
    by_torch = shell("evaluate int8 --backend torch")
    assert by_torch.err.splitlines()[-1] == "next: biosqueeze bench int8"
    assert "next:" not in shell("evaluate out --quiet").err


@pytest.mark.parametrize(("head", "command"), [("bilstm", "predict"), ("crf", "quantize"), (None, "quantize")])
def test_the_command_after_a_score_takes_the_head(head, command, pico_ner, monkeypatch):
    from biosqueeze.stages import evaluate

    checkpoint = Checkpoint(pico_ner, str(pico_ner))
    monkeypatch.setitem(vars(checkpoint), "custom_head", head)
    evaluation = SimpleNamespace(checkpoint=checkpoint, metric="f1", inference=SimpleNamespace(device="cpu"))
    monkeypatch.setattr("biosqueeze.backends.files_of", lambda *_: ())
    summary = evaluate._summary(evaluation, {"backend": "torch", "metrics": {"f1": 0.6}}, None)
    assert summary.next_words[0] == command


def test_score_of_evaluate_is_beside_the_teachers(pico_ner, tmp_path, monkeypatch):
    from biosqueeze.reporting.report_data import Evaluation
    from biosqueeze.stages import evaluate

    def evaluation(split, backend, f1):
        measured = {"checkpoint": "t", "own": False, "task": "ner", "data": "d", "split": split, "backend": backend}
        return Evaluation(**measured, restriction="", metric="f1", metrics={"f1": f1}, megabytes=1.0)

    known = [evaluation("dev", "torch", 0.9), evaluation("test", "torch", 0.8), evaluation("test", "onnxruntime", 0.5)]
    monkeypatch.setattr("biosqueeze.reporting.report_data.teacher_evaluations", lambda _: known)
    result = {"task": "ner", "data": "d", "split": "test", "backend": "torch", "metrics": {"f1": 0.6}}
    evaluation_of = SimpleNamespace(
        checkpoint=Checkpoint(pico_ner, str(pico_ner)),
        metric="f1",
        inference=SimpleNamespace(device="cpu"),
    )
    teacher = evaluate._teacher_score(evaluation_of, result)
    assert evaluate._summary(evaluation_of, result, teacher).result == "f1 0.6000, 75.0% of the teacher's 0.8000"
    assert evaluate._beside_teacher(0.6, teacher) == {"teacher_score": 0.8, "of_teacher": 0.75}
    assert evaluate._teacher_score(evaluation_of, {**result, "data": "other"}) is None
    assert evaluate._summary(evaluation_of, result, None).result == ""
