"""The options of every run are checked before the first one trains."""

from typing import Any

import pytest

from biosqueeze.benchmarks.suite import load_suite, suite_names
from biosqueeze.errors import UsageError
from biosqueeze.finetuning.grid import parse_grid
from biosqueeze.finetuning.point_checks import check_points
from biosqueeze.finetuning.suite_runs import grid_points, paper_options
from biosqueeze.options import option_fields
from biosqueeze.stages import finetune

FIELDS = {field.name: field for field in option_fields(finetune.Options)}
SHARED = {"checkpoint": "teacher", "data": "d", "task": "ner"}


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        (["lr=1e-4,-1"], "--grid lr=-1: --lr must be at least 0, not -1"),
        (["lr=1e-4", "batch=8,0"], "--grid lr=0.0001 --grid batch-size=0: --batch-size must be at least 1, not 0"),
        (["tagger=linear,crf", "label-all-pieces=true"], "--label-all-pieces is only for --tagger linear or bilstm"),
        (["hours=1"], "--grid hours=1: --hours needs --schedule plateau"),
        (["epochs=1,2", "steps=3"], "--grid epochs=1 --grid steps=3: --epochs has no effect with --steps"),
        (["stride=64"], "--grid stride=64: --stride is not used by the task ner"),
    ],
)
def test_a_point_that_would_not_run_is_named(axes: list[str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_points(finetune.Options, SHARED, parse_grid(axes, FIELDS))
    assert says in str(caught.value)


def test_options_are_checked_together_with_the_point() -> None:
    shared: dict[str, Any] = {**SHARED, "hours": 1.0}
    check_points(finetune.Options, shared, parse_grid(["schedule=plateau"], FIELDS))
    with pytest.raises(UsageError, match=r"--set hours=1 --grid schedule=linear: --hours needs"):
        check_points(finetune.Options, shared, parse_grid(["schedule=plateau,linear"], FIELDS), {"hours": 1.0})


@pytest.mark.parametrize("name", suite_names())
def test_the_grids_of_the_papers_pass(name: str) -> None:
    for benchmark in load_suite(name).benchmarks:
        points = grid_points(["paper"], benchmark, FIELDS)
        check_points(finetune.Options, {**SHARED, **paper_options(benchmark)}, points)
