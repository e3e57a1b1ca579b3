"""The stages of the history, as the page shows them."""

from biosqueeze.manifest import HistoryEntry, ParentRef
from biosqueeze.reporting.overview import describe_stage


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
