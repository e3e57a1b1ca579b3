"""biosqueeze pretrain: what is written, what stock transformers loads, and that a resumed run equals a whole one."""

import json
import os
import random
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer

from biosqueeze.errors import SqueezeError
from biosqueeze.models.families import FAMILIES
from biosqueeze.pretraining import probe
from biosqueeze.training import loop
from tests import pico
from tests.cli.run import Shell
from tests.metrics_log import log_of
from tests.training.interruption import press_ctrl_c

SMALL = ("--layers", "1", "--hidden", "16", "--heads", "2", "--ffn", "32", "--positions", "40")
SHORT = ("--steps", "4", "--batch-size", "4", "--max-length", "24", "--precision", "fp32", "--lr", "1e-3")
SHAPES = {"bert": "bert-base", "roberta": "roberta-base", "electra": "electra-base", "albert": "albert-base"}
SHAPES |= {"xlm-roberta": "xlm-roberta-base", "deberta-v2": "deberta-v3-base", "modernbert": "modernbert-base"}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    sentences, rng = list(pico.sentences(120, seed=5)), random.Random(0)
    lines: list[str] = []
    while sentences:
        lines += [*(sentences.pop() for _ in range(min(len(sentences), rng.randint(2, 6)))), ""]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for family in pico.FAMILIES:
        pico.save(family, folder / family)
    return folder


def missing(kind: type, path: Path | str) -> set[str]:
    """Return the tensors that stock transformers does not find in a checkpoint."""
    return set(kind.from_pretrained(path, output_loading_info=True)[1]["missing_keys"])


def weights_of(path: Path | str) -> dict[str, torch.Tensor]:
    return load_file(Path(path) / "model.safetensors")


def same(one: Path | str, other: Path | str) -> bool:
    first, second = weights_of(one), weights_of(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_a_continued_model_loads_with_no_missing_key(family, models, text, tmp_path, shell: Shell) -> None:
    out = tmp_path / "out"
    assert shell("pretrain", models / family, "--corpus", text, *SHORT, "--steps", "1", "--out", out).code == 0
    assert not missing(AutoModelForMaskedLM, out)
    assert {name.partition(".")[0] for name in missing(AutoModel, out)} <= {"pooler"}
    assert len(AutoTokenizer.from_pretrained(out)) == json.loads((out / "config.json").read_text())["vocab_size"]


@pytest.mark.parametrize(
    ("family", "objective"), [("bert", "mlm+nsp"), ("mobilebert", "mlm+nsp"), ("albert", "mlm+sop")]
)
def test_a_model_of_pairs_loads_with_no_missing_key(family, objective, models, text, tmp_path, shell: Shell) -> None:
    out = tmp_path / "out"
    options = (*SHORT, "--steps", "1", "--objective", objective, "--out", out)
    ran = shell("pretrain", models / family, "--corpus", text, *options)
    assert "tensors of its head" in ran.err
    for kind in (AutoModelForPreTraining, AutoModelForMaskedLM, AutoModel):
        assert not missing(kind, out)


@pytest.mark.parametrize("family", SHAPES)
def test_a_new_model_has_its_shape_and_vocabulary(family, models, text, tmp_path, shell: Shell) -> None:
    tokenizer, out = tmp_path / "vocabulary", tmp_path / "out"
    AutoTokenizer.from_pretrained(models / family).save_pretrained(tokenizer)
    new = ("--shape", SHAPES[family], "--tokenizer", tokenizer, *SMALL)
    ran = shell("pretrain", *new, "--corpus", text, *SHORT, "--out", out)
    assert ran.code == 0, ran.err
    assert "random weights (seed 0)" in ran.err
    assert not missing(AutoModelForMaskedLM, out)
    manifest = json.loads((out / "biosqueeze.json").read_text())
    assert manifest["parent"] is None
    shape = {"layers": 1, "hidden": 16, "heads": 2, "ffn": 32, "positions": 40 + FAMILIES[family].first_position}
    assert manifest["model"]["shape"] | shape == manifest["model"]["shape"]
    assert manifest["metrics"]["objective"] == "mlm"
    assert manifest["metrics"]["tokens"] > 0
    again = tmp_path / "again"
    assert shell("pretrain", *new, "--corpus", text, *SHORT, "--out", again).code == 0
    assert same(out, again)
    assert shell("inspect", out).code == 0


def test_what_follows_works_with_a_model_of_pairs(models, text, tmp_path, shell: Shell) -> None:
    out = tmp_path / "out"
    shell("pretrain", models / "bert", "--corpus", text, *SHORT, "--objective", "mlm+nsp", "--out", out)
    cut = shell("shrink", out, "--layers", "2", "--out", tmp_path / "cut")
    assert cut.code == 0, cut.err
    few = ("--corpus", text, "--steps", "1", "--batch-size", "4", "--max-length", "24")
    student = shell("distill", tmp_path / "cut", "--teacher", out, *few, "--out", tmp_path / "student")
    assert student.code == 0, student.err
    further = shell("pretrain", out, *few, "--out", tmp_path / "further")
    assert further.code == 0, further.err
    tuned = shell("finetune", out, "--data", "demo:ner", "--steps", "1", "--train-size", "4", "--out", tmp_path / "ner")
    assert tuned.code == 0, tuned.err


def test_the_card_has_the_length_that_the_positions_allow(models, text, tmp_path, shell: Shell) -> None:
    given = ("--corpus", text, *SHORT, "--max-length", "4096", "--out", tmp_path / "out")
    said = shell("pretrain", models / "bert", *given)
    assert said.code == 0, said.err
    (length,) = re.findall(r"--max-length 4096 is lowered to (\d+)", said.err)
    assert f"sequences of {length} tokens; " in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize(("family", "objective"), [("bert", "mlm+nsp"), ("electra", "rtd")])
def test_the_card_tells_what_was_done_and_its_example_runs(
    family, objective, models, text, tmp_path, shell: Shell, monkeypatch, capfd
) -> None:
    masking = ("--mask-unit", "word", "--mask-rate", "0.05:0.25:2")
    given = ("--corpus", text, *SHORT, "--steps", "2", "--objective", objective, *masking, "--held-out", "0.2")
    assert shell("pretrain", models / family, *given, "--out", tmp_path / "out").code == 0
    card = (tmp_path / "out" / "README.md").read_text()
    metrics = json.loads((tmp_path / "out" / "biosqueeze.json").read_text())["metrics"]
    assert "| masking | whole words, 0.05 to 0.25 of the tokens in 2 levels, masked anew in each epoch |" in card
    assert f"{metrics['corpus_tokens']:,} tokens; SHA-256 of the prepared text {metrics['corpus_sha256']} |" in card
    assert f"| length | 2 steps of 4 sequences of 24 tokens; {metrics['tokens']:,} tokens seen" in card
    assert f"| held-out text | mlm {metrics['held_out']['mlm']:.4f}, perplexity" in card
    assert ("replaced-token detection" in card) == (objective == "rtd")
    assert "biosqueeze finetune out --data DIRECTORY" in card
    (code,) = re.findall(r"^```python\n(.*?)\n```$", card, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    capfd.readouterr()
    exec(compile(code, "the card", "exec"), {})
    printed = capfd.readouterr().out
    assert (
        ("[CLS] original\n" in printed or "[CLS] replaced\n" in printed) if objective == "rtd" else "score" in printed
    )


def interrupted(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Press Ctrl-C after a step."""
    after = loop.TrainingLoop._after_step

    def press(self, result, started) -> None:
        if self.progress.step + 1 == step:
            press_ctrl_c()
        after(self, result, started)

    monkeypatch.setattr(loop.TrainingLoop, "_after_step", press)


RESUMED = [
    *(("mlm", (2, 3, 4, 6)), ("mlm+nsp", (4,)), ("mlm+sop", (3,)), ("rtd", (2,)), ("mlm --adversarial", (3,))),
    *(("mlm+nsp --precision bf16", (2,)), ("rtd --precision bf16", (4,))),
]


@pytest.mark.parametrize(("objective", "ends"), RESUMED)
def test_resumed_equals_uninterrupted(objective, ends, models, text, tmp_path, shell: Shell, monkeypatch) -> None:
    start = models / ("electra" if objective.startswith("rtd") else "bert")
    long = ("--long-length", "40", "--long-share", "0.5", "--held-out", "0.2", "--eval-every", "3")
    options = (start, "--corpus", text, *SHORT, "--steps", "6", "--objective", *objective.split(), *long)
    options += ("--dropout", "0.1")
    assert shell("pretrain", *options, "--out", tmp_path / "whole").code == 0
    out = tmp_path / "out"
    # The longer sequences begin after step 3.
    for step in ends:
        with monkeypatch.context() as patch:
            interrupted(patch, step)
            assert shell("pretrain", *options, "--out", out, "--resume", "auto").code == 130
    refused = shell("pretrain", *options, "--lr", "1", "--out", out, "--resume")
    assert "was started with other values of lr;" in refused.err
    assert "tokens" not in refused.err  # the text is not read
    assert shell("pretrain", *options, "--out", out, "--resume").code == 0
    assert same(out, tmp_path / "whole")
    assert log_of(out) == log_of(tmp_path / "whole")
    metrics = [json.loads((path / "biosqueeze.json").read_text())["metrics"] for path in (out, tmp_path / "whole")]
    for name in ("last_losses", "held_out"):
        assert metrics[0][name] == metrics[1][name]


def test_held_out_scores_are_logged_and_the_last_weights_kept(models, text, tmp_path, shell: Shell) -> None:
    out = tmp_path / "out"
    options = (*SHORT, "--held-out", "0.2", "--eval-every", "2", "--objective", "mlm+nsp", "--out", out)
    ran = shell("pretrain", models / "bert", "--corpus", text, *options)
    assert "kept the weights of the last step, 4; held-out mlm" in " ".join(ran.err.split())
    scores = {line["step"]: line["dev"] for line in log_of(out) if "dev" in line}
    assert list(scores) == [2, 4]
    assert list(scores[4]) == ["mlm", "perplexity", "word_accuracy", "nsp_accuracy"]
    metrics = json.loads((out / "biosqueeze.json").read_text())["metrics"]
    assert metrics["held_out"] == pytest.approx(scores[4], abs=1e-6)
    assert "best_step" not in metrics


def test_a_probe_leaves_the_training_as_it_is(models, text, tmp_path, shell: Shell, monkeypatch) -> None:
    options = (models / "bert", "--corpus", text, *SHORT, "--dropout", "0.3")
    assert shell("pretrain", *options, "--out", tmp_path / "without").code == 0
    tuned = tmp_path / "tuned"
    few = ("--data", "demo:ner", "--steps", "1", "--train-size", "4", "--out", tuned)
    assert shell("finetune", models / "bert", *few).code == 0
    calls: list[list[str]] = []

    def fine_tune(self, name, arguments, slot, log) -> str:
        """Stand in for the process of its own: check that the copy loads, and write a fine-tuned model."""
        del self, name, slot, log
        calls.append(arguments)
        assert not missing(AutoModelForMaskedLM, arguments[1])
        shutil.copytree(tuned, arguments[arguments.index("--out") + 1])
        return ""

    monkeypatch.setattr(probe.RunProcesses, "call", fine_tune)
    probes = ("--probe", "ner=demo:ner", "--probe", "model=demo:ner", "--probe-at", "2,4")
    ran = shell("pretrain", *options, *probes, "--out", tmp_path / "with")
    assert ran.code == 0, ran.err
    assert same(tmp_path / "with", tmp_path / "without")
    assert [line for line in log_of(tmp_path / "with") if "probe" not in line] == log_of(tmp_path / "without")
    score = json.loads((tuned / "biosqueeze.json").read_text())["metrics"]["f1"]
    metrics = json.loads((tmp_path / "with" / "biosqueeze.json").read_text())["metrics"]
    assert metrics["probes"] == {step: {"ner": score, "model": score} for step in ("2", "4")}
    assert [call[0] for call in calls] == ["finetune"] * 4
    assert not (tmp_path / "with" / "probe").exists()


def test_the_output_of_a_failed_probe_is_kept(models, text, tmp_path, shell: Shell, monkeypatch) -> None:
    def fail(self, name, arguments, slot, log) -> str:
        del self, name, arguments, slot
        log.write_text("what happened")
        raise SqueezeError(f"no memory (its whole output: {log})")

    monkeypatch.setattr(probe.RunProcesses, "call", fail)
    out = tmp_path / "out"
    ran = shell("pretrain", models / "bert", "--corpus", text, *SHORT, "--probe", "ner=demo:ner", "--out", out)
    assert ran.code == 0, ran.err
    assert "step 4: no score of the probe ner: no memory" in ran.err
    assert "step 4: probe" not in ran.err
    assert [path.name for path in (out / "probe").iterdir()] == ["ner.log"]


def test_the_plan_shows_shape_and_size(models, text, shell: Shell, tmp_path: Path) -> None:
    new = ("--shape", "bioformer-8l", "--tokenizer", models / "bert", *SMALL, "--long-length", "40", "--corpus", text)
    ran = shell("pretrain", *new, *SHORT, "--out", tmp_path / "out", "--dry-run")
    assert ran.code == 0, ran.err
    words = " ".join((ran.out + ran.err).split())
    assert "bert, 1 layers x 16, 2 heads, ffn 32, 40 positions" in words
    assert "of 40 in the last 10% of the steps" in words
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--shape", "bert-base"), "--shape needs --tokenizer"),
        (("{bert}", "--shape", "bert-base", "--tokenizer", "{bert}"), "both were given"),
        (("--shape", "roberta-base", "--tokenizer", "{bert}"), "has the id 0, and roberta counts positions from"),
        (("--shape", "bert-base", "--tokenizer", "{bert}", "--heads", "7"), "cannot be divided into 7 heads"),
        (("{roberta}", "--objective", "mlm+nsp"), "has no head for pairs of texts"),
        (("{bert}", "--long-length", "24"), "--long-length 24 must be above --max-length, 24"),
        (("{bert}", "--long-length", "999"), "at most 128, the positions of the model"),
        (("{bert}", "--long-length", "48", "--auto-batch"), "cannot be combined with --auto-batch"),
        (("{bert}", "--eval-every", "2"), "--eval-every needs held-out text"),
        (("{bert}", "--maskings", "2", "--mask-rate", "0.05:0.25:5"), "give one of the two"),
        (("{bert}", "--probe", "demo:ner"), "write NAME=DIR"),
        (("{bert}", "--probe", "a=demo:ner", "--probe", "a=demo:ner"), "a is given twice"),
        (("{bert}", "--probe", "a=nowhere"), "nowhere"),
        (("{bert}", "--probe", "a=demo:ner", "--probe-at", "2,9"), "--probe-at 9 is after the last of 4 steps"),
    ],
)
def test_mistakes_are_explained(words, message, models, text, tmp_path, shell: Shell) -> None:
    filled = [word.format(bert=models / "bert", roberta=models / "roberta") for word in words]
    ran = shell("pretrain", *filled, "--corpus", text, *SHORT, "--out", tmp_path / "out")
    assert ran.code in (1, 2)
    assert message in " ".join(ran.err.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--objective", "rtd", "--generator", "{bert}"), "it must be an ELECTRA generator"),
        (("--mask-unit", "word"), "do not show where words start"),
    ],
)
def test_no_text_is_read_for_a_mistake(options, message, models, text, tmp_path, shell: Shell) -> None:
    model = tmp_path / "model"
    shutil.copytree(models / "electra", model)
    if options[0] == "--mask-unit":
        rules = json.loads((model / "tokenizer.json").read_text())
        rules["model"] = {"type": "BPE", "vocab": rules["model"]["vocab"], "merges": [], "unk_token": "[UNK]"}
        (model / "tokenizer.json").write_text(json.dumps(rules))
    filled = [word.format(bert=models / "bert") for word in options]
    ran = shell("pretrain", model, *filled, "--corpus", text, *SHORT, "--out", tmp_path / "out")
    assert ran.code in (1, 2) and message in ran.err and "corpus:" not in ran.err, ran.err


def test_probes_after_the_end_are_refused_with_epochs(models, text, tmp_path, shell: Shell) -> None:
    probes = ("--probe", "a=demo:ner", "--probe-at", "2,99999")
    options = ("--corpus", text, "--max-length", "24", "--epochs", "0.05")
    ran = shell("pretrain", models / "bert", *options, *probes, "--out", tmp_path / "out")
    assert ran.code == 2
    assert "--probe-at 99999 is after the last of" in " ".join(ran.err.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [("--held-out", "0.2"), ("--long-length", "48")])
def test_a_pipe_is_not_read_twice(options, models, text, tmp_path, shell: Shell) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    ran = shell("pretrain", models / "bert", "--corpus", pipe, *SHORT, *options, "--out", tmp_path / "out")
    assert ran.code == 2
    assert f"{options[0]} reads the corpus twice, and {pipe} is a pipe" in " ".join(ran.err.split())


def test_a_tokenizer_without_a_mask_token_is_explained(models, text, tmp_path, shell: Shell) -> None:
    tokenizer = tmp_path / "tokenizer"
    AutoTokenizer.from_pretrained(models / "bert").save_pretrained(tokenizer)
    path = tokenizer / "tokenizer.json"
    path.write_text(path.read_text().replace("[MASK]", "[mask]"))
    settings = tokenizer / "tokenizer_config.json"
    settings.write_text(json.dumps({k: v for k, v in json.loads(settings.read_text()).items() if k != "mask_token"}))
    ran = shell("pretrain", "--shape", "bert-base", "--tokenizer", tokenizer, "--corpus", text, "--out", tmp_path / "o")
    assert ran.code == 1
    assert "has no mask token" in " ".join(ran.err.split())


def test_a_fine_tuned_model_is_refused(text, tmp_path, shell: Shell) -> None:
    model = pico.save("bert", tmp_path / "model")
    few = ("--steps", "1", "--train-size", "4")
    assert shell("finetune", model, "--data", "demo:ner", *few, "--out", tmp_path / "ner").code == 0
    ran = shell("pretrain", tmp_path / "ner", "--corpus", text, "--out", tmp_path / "out")
    assert ran.code == 2
    assert "is fine-tuned on a task" in " ".join(ran.err.split())


def test_there_is_no_plateau_to_look_for(models, text, shell: Shell) -> None:
    said = shell("pretrain", models / "bert", "--corpus", text, "--schedule", "plateau")
    assert said.code == 2
    assert "'plateau' is not one of 'linear', 'cosine', 'wsd'" in said.err
    assert "--hours" not in shell("pretrain --help").out
