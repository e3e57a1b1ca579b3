"""What the report shows is read from the files of a checkpoint."""

import json
from pathlib import Path

import pytest

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.reporting.report_data import gather, short_names


def test_names_are_short_unless_equal():
    assert short_names(["a/teacher", "student"]) == {"a/teacher": "teacher", "student": "student"}
    assert short_names(["a/x", "b/x"]) == {"a/x": "a/x", "b/x": "b/x"}
    assert short_names(["."]) == {".": Path.cwd().name}


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
