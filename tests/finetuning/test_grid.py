"""--grid and --set are parsed strictly."""

from pathlib import Path

import pytest

from biosqueeze.errors import UsageError
from biosqueeze.finetuning.grid import parse_grid, parse_value
from biosqueeze.finetuning.search import SearchPlan
from biosqueeze.options import option_fields
from biosqueeze.stages import finetune

FIELDS = {field.name: field for field in option_fields(finetune.Options)}


def test_a_grid_is_every_combination() -> None:
    points = parse_grid(["lr=1e-5,3e-5", "batch=8,16", "scheme=IO"], FIELDS)
    assert points[0] == {"lr": 1e-5, "batch_size": 8, "scheme": "IO"}
    assert len(points) == 4
    assert {(p["lr"], p["batch_size"]) for p in points} == {(1e-5, 8), (1e-5, 16), (3e-5, 8), (3e-5, 16)}
    assert parse_grid([], FIELDS) == [{}]


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        (["lr"], "not of the form NAME=VALUE"),
        (["lr=1e-5,,3e-5"], "not of the form NAME=VALUE"),
        (["learning=1"], "no option"),
        (["bach-size=8"], "Did you mean 'batch_size'"),
        (["e=1"], "short for several options"),
        (["lr=fast"], "lr=fast is no float"),
        (["lr=1e999"], "lr=1e999 is not a finite number"),
        (["lr=nan"], "lr=nan is not a finite number"),
        (["batch=8.5"], "no int"),
        (["scheme=XYZ"], "none of BIO, IO, BIOUL"),
        (["label-all-pieces=maybe"], "true or false"),
        (["lr=1", "lr=2"], "given twice"),
        (["lr=3e-5,1e-5,0.00003"], "lr=0.00003 is the same as lr=3e-5"),
        (["metric=f1,recall"], "runs with another metric cannot be compared by their dev scores"),
        (["merge-types=true,false"], "runs with another merge-types cannot be compared"),
        (["betas=0.9,0.98"], "a value of betas has commas"),
        (["data=a,b"], "runs with another data cannot be compared"),
        (["device=cpu,cuda"], "device says how a training runs, and not what it learns; give --device, for all runs"),
        (["save-every=1,2"], "save-every says how a training runs"),
    ],
)
def test_a_wrong_grid_is_explained(axes: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_grid(axes, FIELDS)


def test_the_options_that_are_listed_can_be_given() -> None:
    with pytest.raises(UsageError, match="no option") as raised:
        parse_grid(["learning=1"], FIELDS)
    listed = str(raised.value).partition("Known: ")[2].split(", ")
    assert {"lr", "batch-size", "scheme"} < set(listed)
    assert not {"data", "task", "device", "workers"} & set(listed)


def test_a_value_of_a_repeatable_option_is_a_tuple_of_one(tmp_path: Path) -> None:
    assert parse_value("text=body", FIELDS["column"], "--set") == ("text=body",)
    points = [{"types": ("A",)}, {"types": ("B",)}]
    runs = list(SearchPlan("teacher", tmp_path, {"data": "d"}, points, [0]).runs())
    assert [run.directory for run in runs] == [tmp_path / "types=A" / "seed-0", tmp_path / "types=B" / "seed-0"]
    assert runs[0].name == "types=A, seed=0"
    finetune.Options(checkpoint="teacher", **runs[0].options)
