"""The stages of the history, as the page shows them."""

import json

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.manifest import HistoryEntry, ParentRef
from biosqueeze.reporting.overview import describe_checkpoint, describe_stage
from biosqueeze.reporting.report_data import gather


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
