"""The stream of records around a model."""

from types import SimpleNamespace
from typing import Any

import pytest

from biosqueeze.annotation.annotator import AnnotatedRecord, RecordChunk
from biosqueeze.annotation.stream import annotate_stream
from biosqueeze.annotation.tally import Tally
from biosqueeze.data.records.input_record import InputRecord
from biosqueeze.tasks.encoding.entities import PairKind


@pytest.mark.parametrize("pairs", [0, 1])
def test_entities_of_other_types_bring_a_warning(pairs: int, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = (PairKind("Drug", "Effect", False), PairKind("Gene", "Drug", True))
    windows: list[Any] = [object()] * pairs
    annotator: Any = SimpleNamespace(
        model=SimpleNamespace(task=SimpleNamespace(pairs=kinds), batch_size=8),
        prepare=lambda records, as_document: RecordChunk([AnnotatedRecord(each) for each in records], windows),
        annotate=lambda chunk: None,
    )
    record = InputRecord("x:1", {"text": "a", "entities": []})
    source: Any = SimpleNamespace(records=iter([record]), position=None, name="x")
    formatter: Any = SimpleNamespace(format="jsonl", lines=lambda _: "\n")
    assert list(annotate_stream(annotator, source, formatter, Tally(), skip_bad=False)) == ["\n"]
    said = " ".join(capsys.readouterr().err.split())
    warned = "no record has two entities of types that may be related: the model was trained on Drug and Effect, Gene"
    assert (warned in said) == (not pairs)
