"""Predicting and evaluating with ONNX Runtime imports neither torch nor transformers, which takes seconds."""

import json
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

_CHECK = """
import sys
from biosqueeze.cli.main import main
try:
    main(sys.argv[1:])
finally:
    heavy = {"torch", "transformers"} & {name.split(".")[0] for name in sys.modules}
    assert not heavy, heavy
"""
_RECORDS = {
    "ner": {"text": "Hepti in fibneu"},
    "classification": {"text": "Hepti in fibneu"},
    "relation": {"text": "@CHEMICAL$ in @GENE$"},
    "nli": {"sentence1": "car ci", "sentence2": "ma"},
}


def _run(*arguments):
    done = subprocess.run([sys.executable, "-c", _CHECK, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("task", _RECORDS)
def test_predict_imports_no_torch(task, exported, tmp_path):
    head = "token-classification" if task == "ner" else "sequence-classification"
    checkpoint, source = exported("bert", head), tmp_path / "records.jsonl"
    source.write_text(json.dumps({"id": 7, **_RECORDS[task]}))
    prediction = json.loads(_run("predict", checkpoint, source, "--task", task, "--backend", "onnxruntime"))
    assert prediction["id"] == 7 and ("entities" in prediction or "label" in prediction)


def test_crf_is_decoded_without_torch(exported, copy_of):
    checkpoint = copy_of(exported("bert", "token-classification"))
    never = np.array([0.0, -50.0, -50.0], dtype=np.float32)  # into B-Disease and I-Disease
    scores = {"transitions": np.tile(never, (3, 1)), "start": never, "end": np.zeros(3, dtype=np.float32)}
    save_file(scores, checkpoint / "head.safetensors", {"biosqueeze_head": "crf"})
    assert json.loads(_run("predict", checkpoint, "--text", "Hepti in fibneu", "--backend", "onnxruntime")) == {
        "id": 1,
        "entities": [],
    }


def test_evaluate_imports_no_torch(exported, copy_of, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "test.tsv").write_text("Hepti\tB-Disease\nin\tO\n\nfibneu\tB-Disease\n")
    checkpoint = copy_of(exported("bert", "token-classification"))
    _run("evaluate", checkpoint, "--data", tmp_path / "data", "--backend", "onnxruntime")
    (result,) = (checkpoint / "results").iterdir()
    assert json.loads(result.read_text())["examples"] == 2
