"""The stage distill: losses fall, teachers without a head, BioBERT's old layout, resume, usage errors."""

import json
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForTokenClassification, AutoTokenizer

from biosqueeze.distillation import warm_start
from biosqueeze.distillation.losses.presets import LOSS_PRESETS
from tests import pico
from tests.cli.run import Shell, start

# The loss after forty steps must be below this share of its first value.
FALLS = {
    "distilbert": 0.85,
    "tinybert": 0.75,
    "tinybiobert": 0.75,
    "compact": 0.92,
    "biolm": 0.92,
    "mobilebert": 0.75,
    "minilm": 0.35,
    "minilmv2": 0.4,
    "mse": 0.35,
}
QUICK = ("--precision", "fp32", "--batch-size", "8", "--max-length", "32")


def metrics(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def fall(steps: list[dict], term: str) -> float:
    """Return the mean of the last five values of a term over the mean of the first five."""
    first, last = (sum(step[term] for step in part) for part in (steps[:5], steps[-5:]))
    return last / first


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text("\n".join(pico.sentences(200, seed=5)))
    return path


@pytest.fixture(scope="module")
def tags(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write sentences in which words ending in `ma` or `tis` are diseases."""
    folder = tmp_path_factory.mktemp("tags")
    for split, seed in (("train", 1), ("dev", 2), ("test", 3)):
        rows = []
        for sentence in pico.sentences(60, seed=seed):
            words = sentence.rstrip(".").split()
            rows += [f"{w}\t{'B-Disease' if w.lower().endswith(('ma', 'tis')) else 'O'}" for w in words]
            rows += ["sepsis\tB-Disease", "syndrome\tI-Disease", ""]
        (folder / f"{split}.tsv").write_text("\n".join(rows))
    return folder


def tune(family: str, tags: Path, root: Path) -> Path:
    """Fine-tune a pico encoder of the family on the tags."""
    from biosqueeze.stages import finetune

    source = pico.save(family, root / f"untuned-{family}", head="base")
    options = finetune.Options(
        checkpoint=str(source),
        data=str(tags),
        epochs=20,
        lr=5e-3,
        precision="fp32",
        max_length=64,
        out=str(root / f"tuned-{family}"),
    )
    return finetune.run(options).path


@pytest.fixture(scope="module")
def tuned(tags: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A folder for each call: a worker that gets tests of this module twice makes it anew.
    return tune("bert", tags, tmp_path_factory.mktemp("tuned"))


@pytest.fixture(scope="module")
def tuned_electra(tags: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tune("electra", tags, tmp_path_factory.mktemp("tuned"))


def test_task_agnostic_losses_fall(pico_bert: Path, text: Path, shell: Shell) -> None:
    result = shell(
        "distill --teacher",
        pico_bert,
        "--student",
        "tiny",
        "--loss",
        "distilbert",
        "--corpus",
        text,
        "--steps",
        24,
        "--lr",
        "3e-3",
        "--out",
        "student",
        *QUICK,
    )
    assert result.code == 0, result.err
    steps = metrics(Path(result.path))
    first, last = (
        {k: sum(s[k] for s in part) / 5 for k in ("mlm", "kl", "cosine")} for part in (steps[:5], steps[-5:])
    )
    assert last["cosine"] < 0.6 * first["cosine"]
    assert last["mlm"] < 0.95 * first["mlm"]
    _, info = AutoModelForMaskedLM.from_pretrained(result.path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]


def test_shrunk_student_in_a_pipe(pico_bert: Path, text: Path, shell: Shell) -> None:
    shrunk = shell("shrink", pico_bert, "--layers", "every-other", "--out", "half")
    result = shell("distill - --teacher", pico_bert, "--corpus", text, "--steps", 4, "--json", *QUICK, stdin=shrunk.out)
    assert result.code == 0, result.err
    facts = json.loads(result.out)
    assert facts["path"] == "half-distilled"
    assert facts["metrics"]["steps"] == 4
    manifest = json.loads(Path("half-distilled/biosqueeze.json").read_text())
    assert [entry["stage"] for entry in manifest["history"]] == ["shrink", "distill"]
    assert set(manifest["history"][-1]["parents"]) == {"parent", "teacher"}
    assert manifest["history"][-1]["sources"]["steps"] == "flag"


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "distilbert", "albert", "mobilebert", "modernbert"])
def test_every_family_distils(family: str, precision: str, text: Path, tmp_path: Path, shell: Shell) -> None:
    teacher = pico.save(family, tmp_path / "teacher", head="mlm")
    result = shell(
        "distill --teacher", teacher, "--student", "distil", "--corpus", text, "--steps", 2, *QUICK,
        "--precision", precision,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "kl" in metrics(Path(result.path))[-1]


def test_electra_discriminator_gets_a_head(pico_electra: Path, text: Path, shell: Shell) -> None:
    """The losses of the student's paper read a distribution that the discriminator lacks; others need no head."""
    words = ("distill --teacher", pico_electra, "--student", "distil", "--corpus", text, "--steps", 2, *QUICK)
    result = shell(*words, "--out", "x")
    assert result.code == 0, result.err
    assert "one is fitted first" in result.err
    assert set(metrics(Path(result.path))[-1]) >= {"mlm", "cosine", "kl"}
    headless = (*words, "--loss", "mlm=1", "--loss", "cosine=1")
    result = shell(*headless, "--out", "y")
    assert result.code == 0, result.err
    assert "fitted" not in result.err
    assert "kl" not in metrics(Path(result.path))[-1]
    idle = shell(*headless, "--temperature", 4, "--out", "z")
    assert (idle.code, "--temperature has no effect on the losses mlm, cosine" in idle.err) == (2, True), idle.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--student", "tiny"), "the attention of 12 heads cannot be compared with that of 4"),
        (("--student", "distil", "--cache-teacher", "cache"), "--cache-teacher stores no attention"),
    ],
)
def test_default_losses_without_attention(
    words: tuple[str, ...], why: str, tuned: Path, tags: Path, shell: Shell
) -> None:
    result = shell("distill --teacher", tuned, "--data", tags, "--steps", 2, "--out", "student", *words, *QUICK)
    assert result.code == 0, result.err
    assert f"{why}: training on soft labels and hidden states" in result.err
    manifest = json.loads(Path(result.path, "biosqueeze.json").read_text())
    assert manifest["metrics"]["losses"] == {"kl": 1.0, "hidden": 1.0}


def test_task_distillation_with_unlabelled_text(tuned: Path, tags: Path, text: Path, shell: Shell) -> None:
    result = shell(
        "distill --teacher", tuned, "--student", "distil", "--data", tags, "--corpus", text, "--epochs", 12,
        "--lr", "5e-3", "--out", "student", *QUICK,
    )  # fmt: skip
    assert result.code == 0, result.err
    manifest = json.loads(Path(result.path, "biosqueeze.json").read_text())
    assert manifest["task"]["labels"] == list(pico.LABELS)
    assert manifest["metrics"]["f1"] > 0.8
    assert manifest["metrics"]["losses"] == {"kl": 1.0, "attention-kl": 1.0}
    steps = [m for m in metrics(Path(result.path)) if "loss" in m]
    assert fall(steps, "kl") < 0.5
    assert fall(steps, "attention-kl") < 0.6
    assert fall(steps, "loss") < 0.5
    _, info = AutoModelForTokenClassification.from_pretrained(result.path, output_loading_info=True)
    assert not info["missing_keys"]


def test_task_distillation_on_text_alone(tuned: Path, text: Path, shell: Shell) -> None:
    result = shell(
        "distill --teacher", tuned, "--student", "distil", "--corpus", text, "--steps", 3, "--out", "x", *QUICK
    )
    assert result.code == 0, result.err


def test_warning_without_a_corpus(pico_bert: Path, shell: Shell) -> None:
    result = shell("distill --teacher", pico_bert, "--student", "distil", "--steps", 1, "--out", "x", *QUICK)
    assert result.code == 0, result.err
    assert "sample" in result.err
    assert "warning" in result.err
    assert "`biosqueeze corpus" in result.err


def test_dry_run_reads_no_weights(pico_bert: Path, tmp_path: Path, shell: Shell) -> None:
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(pico_bert / name, tmp_path / name)
    result = shell("distill --teacher", tmp_path, "--student", "distil", "--dry-run", "--json")
    assert result.code == 0, result.err
    plan = json.loads(result.out)
    assert plan["parameters_after"] < plan["parameters_before"]


def test_lines_of_a_document_are_joined(pico_bert: Path, shell: Shell) -> None:
    Path("articles.txt").write_text("the cells\nof the gene\n\nthe protein\nin patients\n\n")
    words = ("distill --student distil --steps 1 --corpus articles.txt --precision fp32 --teacher", pico_bert)
    assert "corpus: 4 texts" in shell(*words, "--out", "lines").err
    assert "corpus: 2 texts" in shell(*words, "--documents", "--out", "documents").err


@pytest.mark.parametrize(
    ("student", "words", "losses"),
    [
        ("distil", (), "2 mlm + 5 kl + 1 cosine, temperature 2"),  # equation 4
        ("tiny", (), "1 embedding + 1 hidden + 1 soft, temperature 1"),  # equation 7; the teacher has other heads
        ("compact", (), "1 mlm + 3 hidden-cosine + 3 attention-kl-mean + 5 kl, temperature 1"),  # equation 9
        ("compact", ("--cache-teacher", "cache"), "1 mlm + 3 hidden-cosine + 5 kl, temperature 1"),
        ("compact", ("--loss", "minilm"), "(mlm: 1 minilm,"),
        ("bert-mini", (), "2 mlm + 5 kl + 1 cosine, temperature 2"),
    ],
)
def test_students_bring_the_losses_of_their_paper(
    student: str, words: tuple[str, ...], losses: str, pico_bert: Path, text: Path, shell: Shell
) -> None:
    result = shell(
        "distill --teacher", pico_bert, "--student", student, "--corpus", text, "--dry-run", "--json", *words
    )
    assert losses in json.loads(result.out)["steps"][0], result.err


def test_dry_run_prints_the_losses_without_a_head(biobert: str, text: Path, shell: Shell) -> None:
    result = shell("distill --dry-run --json --student compact --teacher", biobert, "--corpus", text)
    assert result.code == 0, result.err
    fitting, losses, _ = json.loads(result.out)["steps"]
    assert "lacks: at most 2,000 steps" in fitting
    assert "(mlm: 1 mlm + 3 hidden-cosine + 3 attention-kl-mean + 5 kl," in losses
    assert "--fit-head sets their number; without kl: --loss mlm=1 --loss hidden-cosine=3" in result.err
    other = shell("distill --dry-run --json --student bert-mini --teacher", biobert, "--corpus", text)
    assert "(mlm: 2 mlm + 1 cosine," in json.loads(other.out)["steps"][0]
    assert "--fit-head 2000, or a teacher with the head (for BioBERT: dmis-lab/biobert-base-cased-v1.2)" in other.err
    words = ("distill --dry-run --json --student tiny --teacher", biobert, "--corpus", text, "--fit-head", 9)
    fitted = shell(*words)
    assert "1 embedding + 1 hidden + 1 soft" in json.loads(fitted.out)["steps"][1]


# ------------------------------------------------------------------ what users get wrong


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ((), 2, "give either CHECKPOINT (or - in a pipe) or --student"),
        (("TEACHER", "--student", "tiny"), 2, "not both"),
        (("--student", "tiyn"), 2, "Did you mean 'tiny'"),
        (("--student", "distil", "--loss", "kll=1"), 2, "Did you mean 'kl'"),
        (("--student", "distil", "--loss", "kl="), 2, "NAME=WEIGHT"),
        (("--student", "distil", "--layer-map", "top", "--loss", "kl"), 2, "--layer-map has no effect"),
        (("--student", "distil", "--layer-map", "top", "--loss", "embedding"), 2, "--layer-map has no effect"),
        (("--student", "distil", "--layer-weights", "1,2", "--loss", "cosine"), 2, "--layer-weights has no effect"),
        (("--student", "distil", "--layer-map", "1:9"), 2, "possible for 2 and 4 layers"),
        (("--student", "distil", "--layer-weights", "1,1,1"), 2, "expected"),
        (("--student", "tiny", "--relation-heads", "5", "--loss", "minilmv2"), 2, "divide"),
        (("--student", "tiny", "--loss", "attention"), 2, "head by head"),
        (("--student", "distil", "--warm-start", "finetune"), 2, "--data"),
        (("--student", "distil", "--warm-epochs", "2"), 2, "--warm-start finetune"),
        (("--student", "distil", "--teacher-weights", "1,2"), 2, "one for each --teacher"),
        (("--student", "distil", "--loss", "kl=-1"), 2, "positive weight"),
        (
            ("--student", "distil", "--loss", "hard=1"),
            2,
            "hard does not fit, because plain text has no labels",
        ),
        (("--student", "distil", "--loss", "hard=2", "--loss", "kl"), 2, "leave it out: --loss kl=1"),
        (("--student", "distil", "--data", "somewhere"), 2, "biosqueeze finetune"),
        (("--student", "distil", "--resume"), 1, "nothing to resume"),
        (("--student", "distil", "--temperature", "0"), 2, "--temperature must be above 0 and at most 1,000, not 0"),
        (("--student", "distil", "--temperature", "2", "--loss", "cosine"), 2, "--temperature has no effect"),
        (
            ("--student", "distil", "--relation-heads", "0", "--loss", "minilmv2"),
            2,
            "must be at least 1, not 0",
        ),
        (("--student", "distil", "--unlabelled", "2"), 2, "--unlabelled needs --data; give --data PATH too"),
        (("--student", "distil", "--epochs", "1e300"), 2, "--epochs must be above 0 and at most 1,000,000"),
        (("--student", "distil", "--seed", "-1"), 2, "--seed must be at least 0 and at most 2,147,483,647, not -1"),
        (("--student", "distil", "--mask-rate", "1.5"), 2, "--mask-rate"),
        (("--student", "distil", "--warmup", "2"), 2, "--warmup must be at least 0 and at most 1, not 2"),
        (("--student", "distil", "--accumulate", "0"), 2, "--accumulate must be at least 1"),
    ],
)
def test_usage_errors(
    words: tuple[str, ...], code: int, says: str, pico_bert: Path, text: Path, tmp_path: Path, shell: Shell
) -> None:
    given = [str(pico_bert) if word == "TEACHER" else word for word in words]
    result = shell("distill", *given, "--teacher", pico_bert, "--corpus", text, "--out", "out", "--steps", 1, *QUICK)
    assert result.code == code, result.err
    assert says in result.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--mask-rate", "0.3"), "--mask-rate is for masked text"),
        (("--mask-unit", "word"), "--mask-unit is for masked text"),
        (("--maskings", "2"), "--maskings is for masked text"),
        (("--loss", "compact"), "leave it out: --loss hidden-cosine=3 --loss attention-kl-mean=3 --loss kl=5"),
        (("--unlabelled", "2"), "--unlabelled needs --corpus; give --corpus PATH too"),
        (("--field", "abstract"), "--field needs --corpus"),
        (("--data", "", "--corpus", "demo:text", "--types", "Disease"), "--types needs --data"),
        (("--data", "", "--corpus", "demo:text", "--dev-share", "0.5"), "--dev-share needs --data"),
        (("--data", "", "--corpus", "demo:text", "--column", "word=a"), "--column is about labelled examples"),
    ],
)
def test_unused_options_of_a_task(words: tuple[str, ...], says: str, tuned: Path, tags: Path, shell: Shell) -> None:
    result = shell("distill --teacher", tuned, "--student", "distil", "--data", tags, "--out", "out", *words)
    assert (result.code, says in result.err) == (2, True), result.err


def test_other_vocabulary_sizes_raise(pico_bert: Path, pico_bert_uncased: Path, text: Path, shell: Shell) -> None:
    result = shell("distill", pico_bert_uncased, "--teacher", pico_bert, "--corpus", text, "--out", "out")
    assert result.code == 1
    assert "different vocabularies" in result.err
    assert not Path("out.partial").exists()


def test_a_nan_stops_the_run_and_leaves_nothing(pico_bert: Path, text: Path, shell: Shell) -> None:
    result = shell(
        "distill --teacher", pico_bert, "--student", "distil", "--corpus", text, "--out", "out", "--lr", "1e30",
        "--warmup", "0", "--steps", 20, *QUICK,
    )  # fmt: skip
    assert result.code == 1
    assert "NaN or infinite at step" in result.err
    assert "--lr" in result.err
    assert not Path("out").exists()
    assert not Path("out.partial").exists()


# ------------------------------------------------------------------ what the Hub really holds


@pytest.fixture
def biobert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """`dmis-lab/biobert-v1.1` in a Hub cache, laid out as it is there: .bin, vocab.txt, a bare config, no MLM head."""
    import huggingface_hub.constants as hub

    repository = tmp_path / "hub" / "models--dmis-lab--biobert-v1.1"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    vocabulary = pico.wordpieces(cased=True)
    model = pico.model_of("bert", len(vocabulary), head="base")
    torch.save({f"bert.{name}": tensor for name, tensor in model.state_dict().items()}, snapshot / "pytorch_model.bin")
    (snapshot / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    config = model.config.to_dict()
    kept = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    kept += ("max_position_embeddings", "type_vocab_size", "hidden_act", "initializer_range")
    (snapshot / "config.json").write_text(json.dumps({key: config[key] for key in kept}))
    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return "dmis-lab/biobert-v1.1"


def test_biobert_with_pytorch_weights(biobert: str, text: Path, shell: Shell) -> None:
    result = shell("distill --teacher", biobert, "--student", "tiny", "--corpus", text, "--steps", 2, *QUICK)
    assert result.code == 0, result.err
    assert result.path == "biobert-v1.1-tiny"
    assert "has no masked-language-model head" in result.err
    assert "v1.2" in result.err
    assert "cased" in result.err
    assert "fitting a head to dmis-lab/biobert-v1.1, the encoder frozen" in result.err
    assert "2 steps; the decoder is" in result.err  # no more than the distillation takes
    assert set(metrics(Path(result.path))[-1]) >= {"embedding", "hidden", "soft"}
    tokenizer = AutoTokenizer.from_pretrained(result.path)
    assert tokenizer.tokenize("BRCA") == ["BRCA"]


def test_kl_from_a_headless_teacher_raises(biobert: str, text: Path, shell: Shell) -> None:
    result = shell("distill --teacher", biobert, "--student", "tiny", "--corpus", text, "--loss", "kl=1", "--out", "x")
    assert result.code == 1
    assert "would give random distributions" in result.err
    assert not Path("x.partial").exists()


# ------------------------------------------------------------------ kill and resume


def test_killed_and_resumed_run_is_bit_identical(pico_bert: Path, text: Path, tmp_path: Path, shell: Shell) -> None:
    common = (
        "distill",
        "--teacher",
        pico_bert,
        "--student",
        "distil",
        "--corpus",
        text,
        "--steps",
        40,
        "--save-every",
        5,
    )
    whole = shell(*common, "--out", "whole", *QUICK)
    assert whole.code == 0, whole.err
    running = start(*common, "--out", "killed", *QUICK, log=tmp_path / "log")
    log = tmp_path / "killed.partial" / "metrics.jsonl"
    running.wait_for(lambda: log.is_file() and log.read_text().count("\n") >= 12)
    running.end(signal.SIGKILL)
    assert not (tmp_path / "killed").exists()
    refused = shell(*common, "--out", "killed", *QUICK)
    assert refused.code == 1
    assert "--resume" in refused.err
    resumed = shell(*common, "--out", "killed", "--resume", *QUICK)
    assert resumed.code == 0, resumed.err
    assert "going on from step" in resumed.err
    losses = [[step["loss"] for step in metrics(tmp_path / name)] for name in ("whole", "killed")]
    assert losses[0] == losses[1]
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert weights[0] == weights[1]


def test_resume_with_other_options_raises(pico_bert: Path, text: Path, tmp_path: Path, shell: Shell) -> None:
    common = ("distill", "--teacher", pico_bert, "--student", "distil", "--corpus", text, "--out", "x", *QUICK)
    running = start(*common, "--steps", 5000, "--save-every", 2, log=tmp_path / "log")
    running.wait_for(lambda: list(tmp_path.glob("x.partial/state-*")))
    assert running.end(signal.SIGINT) == 130
    assert "--resume goes on from there" in running.log.read_text()
    for words, names in (
        (("--lr", "1e-5"), "lr"),
        (("--loss", "mlm", "--loss", "cosine"), "loss"),
        (("--temperature", 3, "--mask-rate", 0.3), "mask_rate, temperature"),
        (("--student", "compact"), "student"),
        (("--corpus", "demo:text"), "data or corpus"),
    ):
        result = shell(*common, "--steps", 5000, "--resume", *words)
        assert (result.code, f"other values of {names};" in result.err) == (1, True), result.err


# ------------------------------------------------------------------ warm start, every task, several teachers


def test_warm_start(tuned: Path, tags: Path, shell: Shell) -> None:
    result = shell(
        "distill --teacher", tuned, "--student", "distil", "--data", tags, "--epochs", 1, "--lr", "5e-3",
        "--warm-start", "finetune", "--warm-epochs", 2, "--out", "student", *QUICK,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "warm start: f1" in result.err
    warm = [json.loads(line) for line in Path("student/warm-start.jsonl").read_text().splitlines()]
    assert len([line for line in warm if "dev" in line]) == 2
    assert {"labels"} <= set(warm[0])
    assert not list(Path("student").glob("warm-start/*"))
    start, first, *_ = metrics(Path("student"))
    assert start["dev"]["f1"] == max(line["dev"]["f1"] for line in warm if "dev" in line)
    assert "kl" in first


def test_the_warm_start_has_the_same_dropout(
    tuned: Path, tags: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[float]] = []

    def looking(models: Any, *rest: Any) -> Any:
        seen.append({module.p for module in models.student.modules() if isinstance(module, torch.nn.Dropout)})
        return warm_start.warm_start(models, *rest)

    monkeypatch.setattr("biosqueeze.distillation.pipeline.warm_start", looking)
    words = ("--warm-start", "finetune", "--dropout", 0, "--steps", 1, "--loss", "kl", "--out", "student", *QUICK)
    assert shell("distill --teacher", tuned, "--student", "distil", "--data", tags, *words).code == 0
    assert seen == [{0.0}]


@pytest.mark.parametrize("warm", [(), ("--warm-start", "finetune", "--warm-epochs", 0.2)])
def test_untrained_head_is_not_evaluated(warm: tuple[object, ...], tuned: Path, tags: Path, shell: Shell) -> None:
    result = shell(
        "distill --teacher", tuned, "--student", "tiny", "--data", tags, "--loss", "hidden", "--steps", 3,
        "--eval-every", 1, "--out", "student", *QUICK, *warm,
    )  # fmt: skip
    if not warm:
        assert (result.code, "--eval-every needs scores on a dev split" in result.err) == (2, True), result.err
        words = ("distill", "--teacher", tuned, "--student", "tiny", "--data", tags, "--loss", "hidden", "--steps", 3)
        result = shell(*words, "--out", "student", *QUICK)
    assert result.code == 0, result.err
    (architecture,) = json.loads(Path("student/config.json").read_text())["architectures"]
    evaluated = any("dev" in line for line in metrics(Path("student")))
    assert (evaluated, architecture) == (bool(warm), "BertForTokenClassification" if warm else "BertModel")


def test_default_length_is_that_of_the_teacher(tuned: Path, tags: Path, shell: Shell) -> None:
    for words, length in (((), 64), (("--max-length", 32), 32)):
        result = shell(
            "distill --teacher", tuned, "--student", "distil", "--data", tags, "--steps", 1, "--out", f"s{length}",
            *words,
        )  # fmt: skip
        assert result.code == 0, result.err
        noted = json.loads(Path(f"s{length}/biosqueeze.json").read_text())
        assert (noted["task"]["max_length"], noted["history"][-1]["options"]["max_length"]) == (length, length)


def test_teacher_without_label_names(pico_root: Path, text: Path, shell: Shell) -> None:
    placeholders = [f"LABEL_{number}" for number in range(3)]
    teacher = pico.save("bert", pico_root / "unnamed", head="token-classification", labels=placeholders)
    student = pico.save("bert", pico_root / "plain-student", head="base")
    words = ("distill", student, "--teacher", teacher, "--corpus", text, "--steps", 1, *QUICK)
    result = shell(*words, "--out", "student")
    assert result.code == 0, result.err
    assert len(json.loads(Path("student/config.json").read_text())["id2label"]) == 3
    other = pico.save("bert", pico_root / "two", head="token-classification", labels=placeholders[:2])
    result = shell(*words, "--teacher", other, "--out", "x")
    assert (result.code, "student and teachers have 3, 3, 2 as num_labels" in result.err) == (1, True), result.err


def test_interrupted_warm_start_continues(tuned: Path, tags: Path, shell: Shell) -> None:
    words = (
        "distill", "--teacher", tuned, "--student", "distil", "--data", tags, "--steps", 6, "--lr", "5e-3",
        "--warm-start", "finetune", "--warm-epochs", 2, "--save-every", 3, *QUICK,
    )  # fmt: skip
    assert shell(*words, "--out", "whole").code == 0
    for phase in ("warm-start", "."):
        killed_when(Path(f"{phase}-cut.partial") / phase, [*words, "--out", f"{phase}-cut"])
        if phase == "warm-start":
            cold = [word for word in words if word not in ("--warm-start", "finetune", "--warm-epochs", 2)]
            result = shell(*cold, "--out", f"{phase}-cut", "--resume")
            assert (result.code, "holds the state of a warm start alone" in result.err) == (1, True), result.err
        result = shell(*words, "--out", f"{phase}-cut", "--resume")
        assert result.code == 0, result.err
        assert weights(Path(f"{phase}-cut")) == weights(Path("whole"))
        assert [m["step"] for m in metrics(Path(f"{phase}-cut"))] == [m["step"] for m in metrics(Path("whole"))]


def weights(path: Path) -> bytes:
    return (path / "model.safetensors").read_bytes()


def killed_when(folder: Path, words: Sequence[object]) -> None:
    """Start a command, and kill it when the folder has a training state."""
    running = start(*words, log=Path("log"))
    running.wait_for(lambda: list(folder.glob("state-*")))
    running.end(signal.SIGKILL)


def test_several_teachers_are_averaged(tuned: Path, tags: Path, tmp_path: Path, shell: Shell) -> None:
    other = shell("finetune", tuned, "--data", tags, "--steps", 2, "--out", tmp_path / "other", *QUICK)
    result = shell(
        "distill --teacher", tuned, "--teacher", other.path, "--teacher-weights", "2,1", "--student", "distil",
        "--data", tags, "--loss", "kl", "--steps", 2, "--out", "student", *QUICK,
    )  # fmt: skip
    assert result.code == 0, result.err
    parents = json.loads(Path("student/biosqueeze.json").read_text())["history"][-1]["parents"]
    assert {"teacher", "teacher 2"} <= set(parents)


@pytest.mark.parametrize("student", ["bert", "roberta"])
def test_teacher_weights(
    student: str, tuned: Path, tags: Path, tmp_path: Path, pico_roberta: Path, shell: Shell
) -> None:
    """A teacher of weight 1e-9 changes nothing, one of equal weight does; with one and with two vocabularies."""
    plain = pico.save("bert", tmp_path / "plain", head="base", seed=1)
    other = shell("finetune", plain, "--data", tags, "--steps", 9, "--lr", "1e-2", "--out", tmp_path / "other", *QUICK)
    learner = ("--student", "distil") if student == "bert" else (pico_roberta,)

    def losses(out: str, *more: object) -> list[float]:
        words = ("distill", *learner, "--teacher", tuned, *more, "--data", tags, "--loss", "kl", "--steps", 2)
        result = shell(*words, "--out", out, "--dropout", 0, *QUICK)
        assert result.code == 0, result.err
        return [step["loss"] for step in metrics(tmp_path / out) if "loss" in step]

    alone = losses("alone")
    assert losses("weightless", "--teacher", other.path, "--teacher-weights", "1,1e-9") == pytest.approx(
        alone, rel=1e-4
    )
    assert losses("equal", "--teacher", other.path) != pytest.approx(alone, rel=1e-2)


def test_teacher_without_the_head_of_its_task_raises(tuned: Path, tags: Path, tmp_path: Path, shell: Shell) -> None:
    words = ("distill", "--student", "distil", "--data", tags, "--steps", 1, "--out", "student", *QUICK, "--teacher")
    other = shell(*words, tuned, "--task", "qa")
    assert (other.code, "has no trained question-answering head" in other.err) == (1, True), other.err
    headless = shutil.copytree(tuned, tmp_path / "headless")
    weights = load_file(headless / "model.safetensors")
    body = {name: tensor for name, tensor in weights.items() if not name.startswith("classifier")}
    save_file(body, headless / "model.safetensors", {"format": "pt"})
    without = shell(*words, headless)
    assert (without.code, "has no trained token-classification head" in without.err) == (1, True), without.err
    assert not (tmp_path / "student").exists()


def test_plain_text_for_pairs_raises(text: Path, tmp_path: Path, shell: Shell) -> None:
    teacher = pico.save("bert", tmp_path / "teacher", head="sequence-classification")
    words = ("distill", "--teacher", teacher, "--task", "nli", "--student", "distil", "--out", "x", "--corpus")
    result = shell(*words, "demo:text")
    assert (result.code, "give JSON lines" in result.err) == (1, True), result.err
    result = shell(*words, text, "--field", "abstract")
    assert (result.code, "--field: records of the task nli have their own fields" in result.err) == (2, True), (
        result.err
    )


def test_named_columns(tmp_path: Path, shell: Shell) -> None:
    """A teacher without a manifest, unusual column names, and no dev split."""
    teacher = pico.save("bert", tmp_path / "teacher", head="sequence-classification", labels=("no", "yes"))
    rows = [f"{'yes' if n % 3 else 'no'}\t{sentence}" for n, sentence in enumerate(pico.sentences(30))]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.tsv").write_text("\n".join(["klass\tbefund", *rows]) + "\n")
    words = ("distill", "--teacher", teacher, "--task", "classification", "--student", "distil", "--data", "data")
    columns = ("--column", "label=klass", "--column", "text=befund")
    result = shell(*words, *columns, "--dev-share", 0.2, "--steps", 2, "--out", "x", *QUICK)
    assert result.code == 0, result.err
    assert "accuracy" in json.loads(Path("x/biosqueeze.json").read_text())["metrics"]
    (tmp_path / "data" / "train.tsv").rename(tmp_path / "data" / "test.tsv")
    again = shell("evaluate x --json")  # reads the same columns
    assert again.code == 0, again.err
    assert "accuracy" in json.loads(again.out)["metrics"]
    plain = shell("distill --teacher", pico.save("bert", tmp_path / "plain"), "--student", "distil", *columns)
    assert (plain.code, "--column needs a teacher" in plain.err) == (2, True), plain.err


def test_layers_of_the_first_of_several_teachers(tuned: Path, tags: Path, tmp_path: Path, shell: Shell) -> None:
    other = shell("finetune", tuned, "--data", tags, "--steps", 2, "--out", tmp_path / "other", *QUICK)
    words = ("distill", "--teacher", tuned, "--teacher", other.path, "--student", "distil", "--data", tags, *QUICK)
    both = shell(*words, "--loss", "kl", "--loss", "hidden", "--steps", 1, "--out", "student")
    assert both.code == 0, both.err
    assert f"hidden compares with the layers of {tuned} alone" in " ".join(both.err.split())
    idle = shell(*words, "--loss", "hidden", "--steps", 1, "--out", "idle")
    assert (idle.code, "other would not be used" in " ".join(idle.err.split())) == (2, True), idle.err
    assert not Path("idle").exists()


@pytest.mark.parametrize("student", ["roberta", "albert"])
def test_student_with_another_vocabulary(
    student: str, tuned_electra: Path, tags: Path, text: Path, tmp_path: Path, shell: Shell
) -> None:
    other = pico.save(student, tmp_path / student, head="base", cased=False) if student == "albert" else pico.save(
        student, tmp_path / student, head="base"
    )  # fmt: skip
    result = shell(
        "distill", other, "--teacher", tuned_electra, "--data", tags, "--corpus", text, "--epochs", 6,
        "--lr", "5e-3", "--out", "student", *QUICK,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "by word or by text" in result.err
    steps = [m for m in metrics(Path("student")) if "loss" in m]
    assert steps[-1]["kl"] < 0.5 * steps[0]["kl"]
    assert json.loads(Path("student/biosqueeze.json").read_text())["metrics"]["f1"] > 0.6


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--loss", "kl", "--loss", "hidden"), "--loss hidden compares them token by token"),
        (("--cache-teacher", "cache"), "leave it out"),
    ],
)
def test_losses_across_vocabularies_raise(
    words: tuple[str, ...], says: str, tuned: Path, tags: Path, pico_roberta: Path, shell: Shell
) -> None:
    result = shell(
        "distill", pico_roberta, "--teacher", tuned, "--data", tags, "--steps", 1, "--out", "x", *words, *QUICK
    )
    assert (result.code, says in result.err) == (2, True), result.err


def test_plain_text_across_vocabularies_raises(pico_bert: Path, pico_roberta: Path, text: Path, shell: Shell) -> None:
    result = shell(
        "distill", pico_roberta, "--teacher", pico_bert, "--corpus", text, "--steps", 1, "--out", "x", *QUICK
    )
    assert result.code == 1
    assert "fine-tuned on a task" in result.err


def test_untrained_head_is_not_saved(pico_bert: Path, text: Path, shell: Shell) -> None:
    result = shell(
        "distill --teacher", pico_bert, "--student", "tiny", "--corpus", text, "--loss", "minilmv2", "--steps", 2,
        "--out", "small", *QUICK,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "without a head" in result.err
    assert json.loads(Path("small/config.json").read_text())["architectures"] == ["BertModel"]
    _, info = AutoModel.from_pretrained("small", output_loading_info=True)
    assert not info["missing_keys"]


@pytest.fixture(scope="module")
def random_student(pico_root: Path) -> Path:
    """Two layers of twice the teacher's width."""
    with mock.patch.multiple(pico, LAYERS=2, HIDDEN=2 * pico.HIDDEN):
        return pico.save("bert", pico_root / "random-student", seed=1)


def test_all_presets_are_covered() -> None:
    assert set(LOSS_PRESETS) - set(FALLS) == {"task", "text-pairs"}, "these two are tested on tasks"


@pytest.mark.parametrize("preset", FALLS)
def test_loss_of_every_preset_falls(
    preset: str, pico_bert: Path, random_student: Path, text: Path, shell: Shell
) -> None:
    student = ("--student", "distil") if preset == "compact" else (random_student,)
    result = shell(
        "distill", *student, "--teacher", pico_bert, "--corpus", text, "--loss", preset, "--steps", 40, "--lr", "3e-3",
        "--out", "small", *QUICK,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert fall(metrics(Path("small")), "loss") < FALLS[preset]


def test_hard_labels_alone(tuned: Path, tags: Path, shell: Shell) -> None:
    result = shell(
        "distill --teacher", tuned, "--student", "distil", "--data", tags, "--loss", "hard", "--epochs", 12,
        "--lr", "5e-3", "--out", "student", *QUICK,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert fall([m for m in metrics(Path("student")) if "loss" in m], "hard") < 0.4


def test_masked_tokens_alone(pico_distilbert: Path, text: Path, shell: Shell) -> None:
    result = shell(
        "distill", pico_distilbert, "--teacher", pico_distilbert, "--corpus", text, "--loss", "mlm", "--steps", 30,
        "--lr", "3e-3", "--out", "read", *QUICK,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "needs a teacher" in result.err
    steps = metrics(Path("read"))
    assert sum(s["mlm"] for s in steps[-5:]) < sum(s["mlm"] for s in steps[:5])
