"""The stages of the history, as the page shows them."""

import json
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.manifest import HistoryEntry, ParentRef
from biosqueeze.reporting import overview
from biosqueeze.reporting.overview import describe_checkpoint, describe_stage, describe_training
from biosqueeze.reporting.report_data import gather
from tests.manifests import write_manifest


def test_a_teacher_is_shown_once() -> None:
    options = {"checkpoint": "start", "teacher": ["big", "wide"], "corpus": ["a.txt", "big"], "steps": 3}
    parents = {"parent": "start", "teacher": "big", "teacher 2": "wide"}
    entry = HistoryEntry(
        stage="distill",
        version="0.1.0",
        created="2026-01-02T03:04:05+00:00",
        options=options,
        sources=dict.fromkeys(options, "flag"),
        parents={role: ParentRef(name, "0") for role, name in parents.items()},
    )
    section = describe_stage(entry)
    assert section.parents == (("from", "start"), ("teacher", "big"), ("teacher 2", "wide"))
    assert section.options == (("corpus", "a.txt, big"), ("steps", "3"))


def test_the_best_score_names_its_data(pico_bert, copy_of) -> None:
    """They may be other data than those of the fine-tuning."""
    path = copy_of(pico_bert)
    (path / "results").mkdir()
    for backend, data, f1 in (("torch", "/data/ncbi", 0.8), ("onnxruntime", "/data/other", 0.9)):
        result = {"task": "ner", "data": data, "split": "test", "backend": backend, "metrics": {"f1": f1}}
        (path / "results" / f"evaluate-{backend}.json").write_text(json.dumps({**result, "types": ["Gene"]}))
    figures = describe_checkpoint(gather(open_checkpoint(str(path)))).key_figures
    assert figures[-1] == ("F1 on other (test; types Gene), onnxruntime", "0.9000")


@pytest.mark.parametrize("is_mean", [False, True])
def test_no_step_is_marked_where_a_mean_was_kept(
    is_mean: bool, pico_bert: Path, copy_of: Callable[[Path], Path]
) -> None:
    path = copy_of(pico_bert)
    metrics = {
        "steps": 4,
        "seconds": 93_784,
        "best_step": 4,
        "f1": 0.75,
        **({"mean_with_start": True} if is_mean else {}),
    }
    write_manifest(path, stage="distill", metrics=metrics)
    lines = [{"step": 0, "dev": {"f1": 0.7}}, {"step": 4, "loss": 1.0}, {"step": 4, "dev": {"f1": 0.6}}]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (training,) = gather(open_checkpoint(str(path))).trainings
    with mock.patch.object(overview, "training_plot") as plot:
        section = describe_training(training)
    plot.assert_called_once_with(training.curves, "f1", None if is_mean else 4)
    assert "4 steps · 26 h 3 min · " in section.facts
    mean = "dev F1 0.7500 of the mean of the last weights and those before the training"
    assert (mean if is_mean else "best dev F1 0.7500 at step 4") in section.facts
