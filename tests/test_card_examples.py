"""The examples of the model card run, with stock libraries where they can."""

import ast
import contextlib
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import transformers

from biosqueeze import card, manifest
from biosqueeze.tasks import open_task
from biosqueeze.tasks.formulation import Formulation
from tests import pico
from tests.cards import card_of


def code_of(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)


def printed_by(code: str, directory: Path) -> str:
    """Run code in this process, which has imported torch and transformers, and return what it prints."""
    with contextlib.chdir(directory), contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "example", "exec"), {})
    return out.getvalue()


def test_names_in_examples_are_python(tmp_path: Path) -> None:
    (directory := tmp_path / 'gène 🧬 "x" \\').mkdir()
    (directory / "model.safetensors").touch()
    (code,) = code_of(card_of(directory, head="mlm"))
    names = [node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)]
    assert directory.name in names


@pytest.mark.slow
def test_the_examples_run(tmp_path: Path) -> None:
    code = []
    for head in ("token-classification", "sequence-classification", "question-answering", "mlm", "base"):
        path = pico.save("bert", tmp_path / f"a {head}", head if head.endswith("-classification") else None)
        if head == "question-answering":
            transformers.BertForQuestionAnswering(pico.config_of("bert", 413, ("a", "b"))).save_pretrained(path)
        code += code_of(card_of(path, head=head))
    assert len(code) == 5
    printed = printed_by("\n\n".join(code), tmp_path)
    assert "Disease" in printed
    assert "torch.Size([1, " in printed


@pytest.mark.parametrize("head", ["token-classification", "sequence-classification"])
def test_the_onnx_example_needs_neither_torch_nor_transformers(
    head: str, exported: Callable[[str, str], Path], tmp_path: Path
) -> None:
    path = Path(shutil.copytree(exported("bert", head), tmp_path / "model"))
    (path / "onnx" / "model.onnx").rename(path / "onnx" / "model_quantized.onnx")
    for float_weights in path.glob("*.safetensors"):
        float_weights.unlink()
    (code,) = code_of(card_of(path, head=head))
    check = "\nimport sys\nassert not {'torch', 'transformers', 'biosqueeze'} & set(sys.modules)"
    words = [sys.executable, "-c", code + check]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Disease" in done.stdout


@pytest.mark.parametrize("head", ["token-classification", "sequence-classification"])
def test_the_onnx_example_runs_without_names_of_labels(
    head: str, exported: Callable[[str, str], Path], tmp_path: Path
) -> None:
    path = Path(shutil.copytree(exported("bert", head), tmp_path / "model"))
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({name: config[name] for name in config if name != "id2label"}))
    (path / "model.safetensors").unlink()
    (code,) = code_of(card_of(path, head=head))
    assert printed_by(code, tmp_path)


@pytest.mark.parametrize("task", ["nli", "similarity"])
def test_examples_of_a_pair_task_have_two_texts(
    task: str, exported: Callable[[str, str], Path], tmp_path: Path
) -> None:
    path = Path(shutil.copytree(exported("bert", "sequence-classification"), tmp_path / "model"))
    record = {"name": task, "data": None, "labels": ["a", "b"]}
    code = code_of(card_of(path, head="sequence-classification", task=record))
    assert len(code) == 2
    assert all("Fever is treated with aspirin." in example for example in code)
    scores, logits = printed_by("\n\n".join(code), tmp_path).strip().splitlines()
    expected = np.array(list(ast.literal_eval(logits).values()))
    found = {each["label"]: each["score"] for each in ast.literal_eval(scores)}
    shares = np.exp(expected) / np.exp(expected).sum()
    np.testing.assert_allclose([found[label] for label in ast.literal_eval(logits)], shares, atol=1e-4)


def test_the_examples_of_question_answering_find_the_same_span(
    exported: Callable[[str, str], Path], tmp_path: Path
) -> None:
    path = Path(shutil.copytree(exported("bert", "question-answering"), tmp_path / "model"))
    by_torch, by_onnx = (printed_by(code, tmp_path) for code in code_of(card_of(path, head="question-answering")))
    assert by_torch == by_onnx


def test_a_relation_without_its_own_head_is_run_with_biosqueeze(tmp_path: Path) -> None:
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).touch()
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.onnx").touch()
    task = {"name": "relation", "data": None, "labels": ["a", "b"]}
    text = card_of(tmp_path, head="sequence-classification", task=task)
    assert '"head": {"start": 0, "end": 7}' in text
    assert not code_of(text)


def test_a_custom_head_is_run_with_biosqueeze(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    text = card_of(tmp_path, head="token-classification", own_head="crf")
    assert f"| biosqueeze predict {tmp_path.name} -" in text
    assert "transformers import" not in text


def test_a_graph_with_a_custom_head_has_an_example(tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model_quantized.onnx").touch()
    (tmp_path / "tokenizer.json").touch()
    text = card_of(tmp_path, head="base", own_head="cosine", task={"name": "similarity", "data": None, "labels": []})
    assert f"| biosqueeze predict {tmp_path.name} -" in text
    assert not code_of(text)


@pytest.mark.parametrize(("task", "own_head"), [("relation", "mentions"), ("similarity", "cosine")])
def test_an_example_has_all_fields_of_the_task(task: str, own_head: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    record = {"name": task, "data": None, "labels": ["a", "b"]}
    text = card_of(tmp_path, head="sequence-classification", own_head=own_head, task=record)
    (line,) = re.findall(r"^echo (.*) \| biosqueeze predict", text, re.MULTILINE)
    formulation = Formulation(representation=own_head)
    example = open_task(task, formulation, "").example_from_record(json.loads(shlex.split(line)[0]))
    if task == "relation":
        assert [example.text[m.start : m.end] for m in example.mentions] == ["Aspirin", "fever"]
    else:
        assert len(example.texts) == 2


def test_the_onnx_example_of_the_hub_fetches_the_model(
    exported: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shutil.copytree(exported("bert", "token-classification"), tmp_path / "model"))
    (path / "model.safetensors").unlink()
    text = card_of(path, head="token-classification")
    (code,) = code_of(card.renamed(text, "me/model", manifest.read_manifest(path), path))
    assert 'Path(snapshot_download("me/model"))' in code
    monkeypatch.setattr("huggingface_hub.snapshot_download", {"me/model": str(path)}.get)
    assert "Disease" in printed_by(code, tmp_path)
