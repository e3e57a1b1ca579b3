"""What the report shows is read from the files of a checkpoint."""

import json
import math
from typing import Any

import pytest

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.reporting.measurements import bench_table, evaluation_table
from biosqueeze.reporting.report_data import Evaluation, gather, teacher_evaluations
from tests.manifests import history_entry, write_manifest


@pytest.mark.parametrize(
    ("file", "content", "cause"),
    [
        ("bench.json", {"rows": [{"checkpoint": "a", "backend": 1}]}, "rows[0].backend is an integer"),
        ("bench.json", {"rows": {}}, "rows is an object, a list was expected"),
        ("evaluate-torch.json", {"metrics": []}, "metrics is a list, an object was expected"),
    ],
)
def test_damaged_results_are_explained(pico_bert, copy_of, file, content, cause):
    path = copy_of(pico_bert)
    (path / "results").mkdir()
    (path / "results" / file).write_text(json.dumps(content))
    with pytest.raises(SqueezeError, match="measure again") as caught:
        gather(open_checkpoint(str(path)))
    assert f"{file}: {cause}" in str(caught.value)


@pytest.mark.parametrize("number", [math.nan, math.inf, 10**400])
def test_numbers_that_cannot_be_drawn_are_missing(pico_bert, copy_of, number) -> None:
    path = copy_of(pico_bert)
    (path / "results").mkdir()
    row = {"checkpoint": "a", "backend": "torch", "p50_ms": math.nan, "megabytes": math.inf}
    (path / "results" / "bench.json").write_text(json.dumps({"rows": [row]}))
    (path / "results" / "evaluate-torch.json").write_text(json.dumps({"metrics": {"f1": number, "recall": 0.5}}))
    lines = [{"step": 1, "loss": 1.0}, {"step": 1, "dev": {"f1": number, "recall": 0.5}}]
    (path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    data = gather(open_checkpoint(str(path)))
    assert data.bench is not None
    assert (data.bench.rows[0].p50_ms, data.bench.rows[0].megabytes) == (0.0, None)
    assert data.evaluations[0].metrics == data.trainings[0].curves.dev[0][1] == {"recall": 0.5}


def evaluation(metrics: dict[str, float], **changes: Any) -> Evaluation:
    measured = {"own": True, "task": "ner", "data": "d", "split": "test", "backend": "torch", "metric": "f1"}
    values = {"checkpoint": "c", "restriction": "", "megabytes": None, **measured, **changes}
    return Evaluation(metrics=metrics, **values)


def test_types_are_those_of_the_checkpoint_on_one_data_set() -> None:
    types = {"f1-Drug": 0.5, "support-Drug": 3, "f1-Gene": 0.6, "support-Gene": 4}
    parent = evaluation({"f1-Cell": 0.9, "support-Cell": 9}, own=False)
    other = evaluation({"f1-Drug": 0.1, "support-Drug": 300}, data="elsewhere")
    table = evaluation_table([parent, evaluation(types), evaluation(types, backend="onnxruntime"), other])
    assert table is not None
    assert table.class_columns == ("class", "in the data", "torch, test", "onnxruntime, test")
    assert table.class_rows == (("Drug", "3", "0.5000", "0.5000"), ("Gene", "4", "0.6000", "0.6000"))


def test_data_are_compared_by_the_path_that_was_recorded() -> None:
    first, second = (evaluation({}, data_path=f"/{project}/d").measured_on for project in "ab")
    assert first != second
    assert first == evaluation({}, data="../a/d", data_path="/a/d").measured_on
    assert evaluation({}).measured_on == evaluation({}, data="d").measured_on


@pytest.mark.parametrize(
    ("machine", "ending"), [({}, "2 threads, 5 rounds"), ({"device": "cuda"}, "; PyTorch on cuda")]
)
def test_the_device_of_a_bench_is_named(pico_bert, copy_of, machine, ending) -> None:
    path = copy_of(pico_bert)
    (path / "results").mkdir()
    row = {"checkpoint": "a", "backend": "torch", "p50_ms": 1.5}
    result = {"rows": [row], "rounds": 5, "machine": {"cpu": "A Processor", "threads": 2, **machine}}
    (path / "results" / "bench.json").write_text(json.dumps(result))
    table = bench_table(gather(open_checkpoint(str(path))).bench)
    assert table is not None
    assert table.machine.startswith("A Processor, ") and table.machine.endswith(ending)


def test_damaged_results_of_a_teacher_are_no_error(pico_bert, copy_of, tmp_path) -> None:
    path, teacher = copy_of(pico_bert), tmp_path / "teacher"
    (teacher / "results").mkdir(parents=True)
    write_manifest(teacher)
    known = {"name": str(teacher), "sha256": "1" * 64}
    write_manifest(path, history=[history_entry(parents={"parent": known, "teacher": known})])
    result = teacher / "results" / "evaluate-torch.json"
    result.write_text('{"metrics": {"f1": 0.5}}')
    assert [each.score for each in teacher_evaluations(open_checkpoint(str(path)))] == [0.5]
    result.write_text("{")
    assert teacher_evaluations(open_checkpoint(str(path))) == []
