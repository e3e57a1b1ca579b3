"""Fine-tuning with heads that stock transformers lacks: they learn, load unchanged, and are never dropped."""

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from transformers import AutoModel, AutoModelForTokenClassification

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.finetuning.task_model import load_task_model
from biosqueeze.stages import evaluate
from biosqueeze.training.loop import TrainingLoop
from tests import pico
from tests.cli.run import Shell

SPLITS = ("train", "dev", "test")
WORDS = [word for word in pico.words() if not word.endswith(("tis", "car"))]
TIS, CAR = ([word for word in pico.words() if word.endswith(end)] for end in ("tis", "car"))
EPOCHS = {"crf": 6, "bilstm": 12, "mentions": 6, "entity-starts": 12}
TAGGERS, READERS = ("crf", "bilstm"), ("mentions", "entity-starts")


def tagged(rng: Random) -> list[str]:
    """Return a sentence whose diseases begin with a -tis word and continue with -car words."""
    rows: list[str] = []
    for _ in range(rng.randint(2, 5)):
        rows += [f"{rng.choice([*WORDS, rng.choice(CAR)])}\tO", f"{rng.choice(WORDS)}\tO"]
        if rng.random() < 0.6:
            rows += [f"{rng.choice(TIS)}\tB-Disease"]
            rows += [f"{rng.choice(CAR)}\tI-Disease" for _ in range(rng.randint(0, 2))]
    return [*rows, ""]


def related(rng: Random) -> dict[str, Any]:
    """Return a sentence with two entities among similar words; the first inhibits the second if it ends in -tis."""
    first, second = (rng.choice(rng.choice([TIS, CAR])) for _ in range(2))
    before = " ".join(rng.choices([*WORDS, *TIS, *CAR], k=rng.randint(1, 4)))
    between = " ".join(rng.choices([*WORDS, *TIS, *CAR], k=rng.randint(1, 4)))
    text = f"{before} {first} {between} {second}."
    start = len(before) + 1
    later = start + len(first) + len(between) + 2
    return {
        "text": text,
        "head": {"start": start, "end": start + len(first), "type": "DRUG"},
        "tail": {"start": later, "end": later + len(second), "type": "GENE"},
        "label": "inhibits" if first.endswith("tis") else "none",
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`data("ner")` and `data("relation")` are folders of generated examples."""
    root = tmp_path_factory.mktemp("generated")
    for seed, split in enumerate(SPLITS):
        rng = Random(seed)
        (root / "ner").mkdir(exist_ok=True)
        (root / "relation").mkdir(exist_ok=True)
        lines = [line for _ in range(96) for line in tagged(rng)]
        (root / "ner" / f"{split}.tsv").write_text("\n".join(lines))
        records = [json.dumps(related(rng)) for _ in range(192)]
        (root / "relation" / f"{split}.jsonl").write_text("\n".join(records))
    return lambda kind: root / kind


@pytest.fixture(scope="module")
def encoder(shallow: Callable[[str, str], Path]) -> Path:
    """An encoder of one layer: enough for these data, and fast to export."""
    return shallow("bert", "mlm")


def words_of(head: str, data: Callable[[str], Path]) -> tuple[Any, ...]:
    """Return the options that fine-tune with a head."""
    common = ("--lr", "5e-3", "--precision", "fp32")
    if head in TAGGERS:
        return ("--data", data("ner"), "--tagger", head, "--epochs", EPOCHS[head], *common)
    form = (
        "--entities",
        "markers" if head == "entity-starts" else "original",
        "--representation",
        head,
        "--epochs",
        EPOCHS[head],
    )
    return ("--data", data("relation"), "--task", "relation", *form, *common)


@pytest.fixture(scope="module")
def tuned(
    encoder: Path, data: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """`tuned("crf")` returns a checkpoint fine-tuned with this head, made once; tests change only copies."""
    root = tmp_path_factory.mktemp("tuned")

    @cache
    def make(head: str) -> Path:
        from biosqueeze.cli import main

        words = ("finetune", encoder, *words_of(head, data), "--out", root / head)
        assert main.run([str(word) for word in words]) == 0
        return root / head

    return lambda head: make(head)


def manifest_of(path: Path) -> dict[str, Any]:
    return json.loads((path / "biosqueeze.json").read_text())


def dev_scores(path: Path) -> list[float]:
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [line["dev"]["f1"] for line in lines if "dev" in line]


@pytest.mark.parametrize("head", [*TAGGERS, *READERS])
def test_training_and_loading_give_the_same_model(head: str, tuned: Callable[[str], Path], shell: Shell) -> None:
    out = tuned(head)
    scores = dev_scores(out)
    assert max(scores) > max(0.75, scores[0])
    told = manifest_of(out)
    assert told["metrics"]["f1"] == max(scores)
    assert told["task"]["formulation"]["tagger" if head in TAGGERS else "representation"] == head
    scored = shell("evaluate", out, "--split", "dev", "--json")
    assert scored.code == 0, scored.err
    assert json.loads(scored.out)["metrics"]["f1"] == max(scores)


@pytest.mark.parametrize("head", [*TAGGERS, *READERS])
def test_stock_transformers_loads_the_encoder_whole(head: str, tuned: Callable[[str], Path]) -> None:
    stock = AutoModelForTokenClassification if head == "crf" else AutoModel
    _, report = stock.from_pretrained(tuned(head), output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]


@pytest.mark.parametrize("head", [*TAGGERS, *READERS])
def test_the_manifest_counts_the_head(head: str, tuned: Callable[[str], Path], data: Any, shell: Shell) -> None:
    out = tuned(head)
    model = manifest_of(out)["model"]
    files = [out / "model.safetensors", out / "head.safetensors"]
    counted = sum(tensor.size for file in files for tensor in load_file(file).values())
    assert model["parameters"]["total"] == counted
    assert model["sha256"] == open_checkpoint(str(out)).weights_sha256()
    assert model["megabytes"] == pytest.approx(sum(file.stat().st_size for file in files) / 1e6, abs=1e-3)
    planned = shell("finetune", out, *words_of(head, data), "--out", "new", "--dry-run", "--json")
    assert json.loads(planned.out)["parameters_after"] == counted
    shown = json.loads(shell("inspect", out, "--json").out)
    assert (shown["parameters"]["total"], shown["own_head"]) == (counted, head)
    assert f"{head} head is in `head.safetensors`" in (out / "README.md").read_text()


def predictions(path: Path, backend: str = "torch", split: str = "dev") -> list[Any]:
    options = evaluate.Options(checkpoint=str(path), split=split, backend=backend)
    evaluation = evaluate._resolved(options)
    model = load_task_model(evaluation.checkpoint, evaluation.task, evaluation.inference)
    return model.predict(evaluation.examples())


def with_scores(path: Path, target: Path, **changes: Any) -> Path:
    """Return a copy of a checkpoint with other scores in its CRF."""
    copy = Path(shutil.copytree(path, target))
    tensors = load_file(copy / "head.safetensors")
    for name, value in changes.items():
        tensors[name][...] = value
    save_file(tensors, copy / "head.safetensors", {"biosqueeze_head": "crf"})
    return copy


def test_a_crf_decodes_with_its_transitions(tuned: Callable[[str], Path], tmp_path: Path) -> None:
    out = tuned("crf")
    learned = load_file(out / "head.safetensors")
    labels = manifest_of(out)["task"]["labels"]
    outside, inside = labels.index("O"), labels.index("I-Disease")
    assert learned["transitions"][outside, inside] < learned["transitions"][outside, outside] - 1
    assert not any(tag == "I-Disease" for tags in predictions(out) for tag in tags[:1])
    never = np.array([0.0 if label == "O" else -1e4 for label in labels])
    copy = with_scores(out, tmp_path / "never", transitions=never, start=never)
    assert {tag for tags in predictions(copy) for tag in tags} == {"O"}
    assert {tag for tags in predictions(out) for tag in tags} == set(labels)


@pytest.mark.slow
def test_a_crf_predicts_the_same_on_every_backend(tuned: Callable[[str], Path], tmp_path: Path, shell: Shell) -> None:
    source = tuned("crf")
    said = shell("quantize", source, "--out", tmp_path / "int8", "--tolerance", "0")
    assert said.code == 0, said.err
    int8 = Path(said.path)
    assert (int8 / "head.safetensors").read_bytes() == (source / "head.safetensors").read_bytes()
    assert manifest_of(int8)["model"] == manifest_of(source)["model"]
    tags = predictions(source)
    assert predictions(int8, "onnxruntime") == predictions(int8, "torch") == tags
    pairs = zip(tags, predictions(int8, "onnxruntime:int8"), strict=True)
    assert np.mean([a == b for one, other in pairs for a, b in zip(one, other, strict=True)]) > 0.9
    never = np.array([0.0, -1e4, 0.0])
    copy = with_scores(int8, tmp_path / "never", start=never, transitions=never)
    for backend in ("torch", "onnxruntime", "onnxruntime:int8"):
        assert "B-Disease" not in {tag for tags in predictions(copy, backend) for tag in tags}


@pytest.mark.parametrize("head", [*TAGGERS, "mentions"])
def test_an_interrupted_run_resumes_exactly(
    head: str, encoder: Path, data: Any, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ("finetune", encoder, *words_of(head, data), "--epochs", 2, "--save-every", 4)
    assert shell(*common, "--out", "whole").code == 0
    after = TrainingLoop._after_step

    def stop(loop: TrainingLoop, *arguments: Any) -> None:
        if loop.progress.step == 7:
            loop.interrupt.set()
        after(loop, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "_after_step", stop)
        assert shell(*common, "--out", "parted").code == 130
    resumed = shell(*common, "--out", "parted", "--resume")
    assert resumed.code == 0, resumed.err
    assert "going on from step 8" in resumed.err
    for name in ("model.safetensors", "head.safetensors"):
        assert Path("whole", name).read_bytes() == Path("parted", name).read_bytes()


@pytest.mark.parametrize("head", ["bilstm", "mentions"])
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_no_stage_drops_a_head(head: str, dry: tuple[str, ...], tuned: Callable[[str], Path], shell: Shell) -> None:
    out = tuned(head)
    flag = "--tagger linear" if head == "bilstm" else "--representation cls"
    commands = [
        ("export", out),
        ("quantize", out),
        ("shrink", out, "--ffn", 32),
        ("distill", "--teacher", out, "--student", "tiny"),
        ("bench", out),
    ]
    for command in commands:
        said = shell(*command, *dry)
        assert said.code == 1, said.err
        (line,) = said.err.strip().splitlines()
        assert f"has a {head} head" in line and f"{command[0]} does not support" in line and flag in line
    assert not list(Path().iterdir())


def test_shrink_keeps_a_crf_and_distill_refuses_it(tuned: Callable[[str], Path], data: Any, shell: Shell) -> None:
    out = tuned("crf")
    said = shell("shrink", out, "--ffn", 32, "--out", "small")
    assert said.code == 0, said.err
    assert Path("small/head.safetensors").read_bytes() == (out / "head.safetensors").read_bytes()
    again = shell("finetune small", *words_of("crf", data), "--steps", 1, "--lr", 0, "--out", "again")
    assert again.code == 0, again.err
    assert Path("again/head.safetensors").read_bytes() == (out / "head.safetensors").read_bytes()
    for words in (("--teacher", out, "--student", "tiny"), (out, "--teacher", "small")):
        said = shell("distill", *words, "--data", data("ner"))
        assert said.code == 1
        assert "has a crf head" in said.err and "--tagger linear" in said.err


@pytest.mark.parametrize("head", TAGGERS)
def test_another_custom_head_is_dropped_with_a_note(
    head: str, tuned: Callable[[str], Path], data: Any, shell: Shell
) -> None:
    said = shell("finetune", tuned(head), "--data", data("ner"), "--steps", 2, "--precision", "fp32", "--out", "plain")
    assert said.code == 0, said.err
    assert f"its {head} head is dropped" in said.err
    assert not Path("plain/head.safetensors").exists()
    _, report = AutoModelForTokenClassification.from_pretrained("plain", output_loading_info=True)
    assert not report["missing_keys"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--tagger", "crf", "--label-all-pieces"), "--label-all-pieces is only for --tagger linear"),
        (("--tagger", "crf", "--class-weights", "balanced"), "--class-weights"),
    ],
)
def test_options_that_a_crf_refuses(words: tuple[str, ...], says: str, encoder: Path, data: Any, shell: Shell) -> None:
    said = shell("finetune", encoder, "--data", data("ner"), *words, "--out", "out")
    assert said.code == 2
    assert says in said.err
    assert not Path("out").exists()


def test_a_relation_head_without_entities_is_explained(
    tuned: Callable[[str], Path], data: Any, tmp_path: Path, shell: Shell
) -> None:
    copy = Path(shutil.copytree(tuned("mentions"), tmp_path / "bare"))
    (copy / "biosqueeze.json").unlink()
    said = shell("evaluate", copy, "--task", "relation", "--data", data("relation"))
    assert said.code == 1
    assert "which these data lack" in said.err


@pytest.mark.parametrize("head", [*TAGGERS, "mentions"])
def test_training_options_act_on_custom_heads(head: str, encoder: Path, data: Any, shell: Shell) -> None:
    more = ("--gradient-checkpointing", "--layer-decay", 0.9, "--reinit-layers", 1, "--accumulate", 2, "--steps", 2)
    smart = () if head == "crf" else ("--smart", 0.5)
    said = shell("finetune", encoder, *words_of(head, data), *more, *smart, "--out", "out")
    assert said.code == 0, said.err
    plain = shell("finetune", encoder, *words_of(head, data), *more[1:], "--out", "plain")
    assert plain.code == 0, plain.err
    if head == "crf":  # gradient checkpointing changes nothing
        assert Path("out/model.safetensors").read_bytes() == Path("plain/model.safetensors").read_bytes()


@pytest.mark.parametrize("head", [*TAGGERS, "mentions"])
def test_half_precision_is_enough(head: str, encoder: Path, data: Any, shell: Shell) -> None:
    words = (*words_of(head, data), "--precision", "bf16", "--steps", 12)
    said = shell("finetune", encoder, *words, "--out", "out")
    assert said.code == 0, said.err
    losses = [json.loads(line).get("labels") for line in Path("out/metrics.jsonl").read_text().splitlines()]
    assert [loss for loss in losses if loss is not None][-1] < losses[0]
    answers = [predictions(Path("out").resolve(), backend) for backend in ("torch", "torch:bf16")]
    assert np.mean([one == other for one, other in zip(*answers, strict=True)]) > 0.8
