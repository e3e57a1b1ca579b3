"""Question answering: fine-tune, evaluate on two runtimes, and fine-tune the result again."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoModelForQuestionAnswering

from tests import pico
from tests.cli.run import Shell

WORDS = pico.words()
NAMES = [word for word in WORDS if word.endswith("tis")][:8]
OTHERS = [word for word in WORDS if not word.endswith("tis")]


def questions(count: int, seed: int, *, unanswerable: bool = False) -> dict:
    """Write passages of random words; the answer is the one that ends in -tis, and some questions have none."""
    rng = random.Random(seed)
    paragraphs = []
    for number in range(count):
        words = rng.choices(OTHERS, k=rng.randint(8, 30))
        place = rng.randrange(len(words))
        none = unanswerable and number % 3 == 0
        if not none:
            words[place] = rng.choice(NAMES)
        start = len("".join(word + " " for word in words[:place]))
        answers = [] if none else [{"text": words[place], "answer_start": start}]
        asked = {"id": f"{seed}-{number}", "question": "which disease", "answers": answers, "is_impossible": none}
        paragraphs.append({"context": " ".join(words), "qas": [asked]})
    return {"version": "v2.0", "data": [{"title": "generated", "paragraphs": paragraphs}]}


def folder(root: Path, **more: bool) -> Path:
    path = root / "data"
    path.mkdir()
    for seed, (name, count) in enumerate((("train", 240), ("dev", 40), ("test", 40))):
        (path / f"{name}-v2.0.json").write_text(json.dumps(questions(count, seed, **more)))
    return path


LEARN = ("--task", "qa", "--lr", "4e-3", "--precision", "fp32", "--max-length", "32", "--batch-size", "16")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return folder(tmp_path)


@pytest.mark.slow
def test_qa_trains_and_both_runtimes_agree(shallow: Callable[[str, str], Path], data: Path, shell: Shell) -> None:
    said = shell(
        "finetune", shallow("bert", "mlm"), "--data", data, *LEARN, "--stride", 8, "--epochs", 6, "--out", "out"
    )
    assert said.code == 0, said.err
    assert "train is train-v2.0.json" in said.err
    manifest = json.loads(Path("out/biosqueeze.json").read_text())
    assert manifest["metrics"]["f1"] > 0.9
    assert manifest["task"]["formulation"] == {"stride": 8}
    _, info = AutoModelForQuestionAnswering.from_pretrained("out", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]

    assert shell("export out --out exported").code == 0
    found = {}
    for backend in ("torch", "onnxruntime"):
        scored = shell("evaluate exported --backend", backend, "--max-length", 32, "--json")
        assert scored.code == 0, scored.err
        found[backend] = json.loads(scored.out)["metrics"]
    assert found["torch"]["f1"] > 0.9
    assert found["torch"]["support"] == 40
    assert found["torch"]["mrr"] >= found["torch"]["strict_accuracy"] == found["torch"]["exact"]
    assert found["onnxruntime"] == pytest.approx(found["torch"], abs=1e-4)

    # The next fine-tuning starts from the trained head.
    again = shell("finetune out --data", data, *LEARN[:2], "--lr", "1e-9", *LEARN[4:], "--steps", 1, "--out", "on")
    assert again.code == 0, again.err
    assert json.loads(Path("on/biosqueeze.json").read_text())["metrics"]["f1"] > 0.9


@pytest.mark.slow
def test_longformer_answers_the_same_on_both_runtimes(
    shallow: Callable[[str, str], Path], data: Path, shell: Shell
) -> None:
    said = shell("finetune", shallow("longformer", "mlm"), "--data", data, *LEARN, "--steps", 20, "--out", "out")
    assert said.code == 0, said.err
    assert shell("export out --out exported").code == 0
    found = [json.loads(shell("evaluate exported --backend", name, "--json").out) for name in ("torch", "onnxruntime")]
    assert found[0]["metrics"]["mrr"] > 0
    assert found[0]["metrics"] == pytest.approx(found[1]["metrics"], abs=1e-4)


def test_questions_without_an_answer(shallow: Callable[[str, str], Path], tmp_path: Path, shell: Shell) -> None:
    data = folder(tmp_path, unanswerable=True)
    said = shell("finetune", shallow("bert", "mlm"), "--data", data, *LEARN, "--epochs", 4, "--out", "out")
    assert said.code == 0, said.err
    metrics = json.loads(Path("out/biosqueeze.json").read_text())["metrics"]
    assert metrics["f1-HasAns"] > 0.8
    assert metrics["f1-NoAns"] > 0.8
    assert metrics["best_f1"] >= metrics["f1"] > 0.8


def test_bad_data_is_explained_before_anything_is_trained(pico_bert: Path, data: Path, shell: Shell) -> None:
    dev = data / "dev-v2.0.json"
    content = json.loads(dev.read_text())
    content["data"][0]["paragraphs"][3]["qas"][0]["answers"][0]["answer_start"] += 1
    dev.write_text(json.dumps(content))
    said = shell("finetune", pico_bert, "--data", data, *LEARN, "--out", "out")
    assert said.code == 1
    assert len([line for line in said.err.splitlines() if "dev-v2.0.json: question 1-3: the answer" in line]) == 1
    assert not Path("out").exists()
