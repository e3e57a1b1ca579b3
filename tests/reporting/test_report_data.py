"""What the report shows is read from the files of a checkpoint."""

from pathlib import Path

from biosqueeze.reporting.report_data import short_names


def test_names_are_short_unless_equal():
    assert short_names(["a/teacher", "student"]) == {"a/teacher": "teacher", "student": "student"}
    assert short_names(["a/x", "b/x"]) == {"a/x": "a/x", "b/x": "b/x"}
    assert short_names(["."]) == {".": Path.cwd().name}
