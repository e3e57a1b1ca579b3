"""The point with the best mean on dev is selected, and folds are tested once."""

import json
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.finetuning import search
from biosqueeze.finetuning.runs import FineTuningRun, RunResult
from biosqueeze.options import option_fields
from biosqueeze.stages import finetune

FIELDS = {field.name: field for field in option_fields(finetune.Options)}


def test_runs_get_every_option_that_was_given(pico_ner: Path, tmp_path: Path) -> None:
    given = {"schedule": "plateau", "epochs": FIELDS["epochs"].default}
    options = finetune.Options(
        checkpoint=str(pico_ner), data="demo:ner", seeds=2, **given, sources=dict.fromkeys(given, "flag")
    )
    (shared, *_) = (run.options for run in finetune._search_plan(options, tmp_path / "out").runs())
    assert {name: shared.get(name) for name in given} == given
    assert "lr" not in shared


def test_spread_matches_statistics() -> None:
    scores = [0.1, 0.4, 0.2]
    told = search.spread(scores)
    assert told == pytest.approx(
        {"mean": sum(scores) / 3, "median": 0.2, "deviation": statistics.stdev(scores), "runs": 3}
    )
    assert search.spread([0.5])["deviation"] == 0


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[FineTuningRun, str]]:
    """Replace `execute`: dev scores come from a table, and the test score is half of that on dev."""
    seen: list[tuple[FineTuningRun, str]] = []
    dev = {(1, 0): 0.9, (1, 1): 0.1, (2, 0): 0.6, (2, 1): 0.7}

    def results(runs: list[FineTuningRun]) -> Iterator[RunResult]:
        for run in runs:
            score = dev[run.options["lr"], run.options["seed"]] + (
                0.05 if str(run.options["data"]).endswith("2") else 0
            )
            told = {"f1": score, "metric": "f1", "seconds": 60}
            yield RunResult(run.options, told, {"metrics": {"f1": score / 2}} if run.test else None)

    def execute(runs: list[FineTuningRun], *, jobs: int | None, keep: str) -> list[RunResult]:
        seen.extend((run, keep) for run in runs)
        return list(results(runs))

    monkeypatch.setattr(search, "execute", execute)
    return seen


def test_the_best_mean_is_chosen_and_not_the_best_run(
    executed: list[tuple[FineTuningRun, str]], tmp_path: Path
) -> None:
    plan = search.SearchPlan("teacher", tmp_path, {"data": "d"}, [{"lr": 1}, {"lr": 2}], [0, 1])
    found = search.search(plan, None)
    assert found.best.options == {"data": "d", "lr": 2, "seed": 1}
    assert [point["mean"] for point in found.points] == [0.5, pytest.approx(0.65)]
    assert len(found.runs) == 4
    assert found.folds is None
    assert all(not run.test and keep == "best" for run, keep in executed)
    assert len({run.directory for run, _ in executed}) == 4
    json.dumps(found.as_dict())


def test_each_fold_of_the_chosen_point_is_scored_once(
    executed: list[tuple[FineTuningRun, str]], tmp_path: Path
) -> None:
    plan = search.SearchPlan("teacher", tmp_path, {}, [{"lr": 1}, {"lr": 2}], [0, 1], ["gad/1", "gad/2"])
    found = search.search(plan, None)
    tested = [run for run, _ in executed if run.test]
    assert [(run.options["lr"], run.options["data"], run.options["seed"]) for run in tested] == [
        (2, "gad/1", 1),
        (2, "gad/2", 1),
    ]
    assert found.folds is not None
    assert found.folds["test"] == [0.35, 0.375]
    assert found.folds["median"] == pytest.approx(0.3625)


def test_folds_without_the_score_are_not_in_the_mean(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tests = {"gad/1": {"f1-X": 0.4}, "gad/2": {}, "gad/3": {"f1-X": 0.8}}

    def execute(runs: list[FineTuningRun], **_: object) -> list[RunResult]:
        dev = {"f1-X": 0.5, "metric": "f1-X", "seconds": 1}
        return [
            RunResult(run.options, dev, {"metrics": tests[run.options["data"]]} if run.test else None) for run in runs
        ]

    monkeypatch.setattr(search, "execute", execute)
    found = search.search(search.SearchPlan("teacher", tmp_path, {}, [{"lr": 1}], [0], [*tests]), None)
    assert found.folds is not None
    assert (found.folds["test"], found.folds["mean"], found.folds["runs"]) == ([0.4, None, 0.8], pytest.approx(0.6), 2)
    assert "1 of 3 folds have no f1-X on test, and are left out of the mean" in capsys.readouterr().err
    tests |= {"gad/1": {}, "gad/3": {}}
    assert search.search(search.SearchPlan("teacher", tmp_path, {}, [{"lr": 1}], [0], [*tests]), None).folds == {
        "test": [None, None, None]
    }


def test_what_is_left_of_removed_runs_is_not_reused(
    pico_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = search.SearchPlan("teacher", tmp_path / "out.runs", {}, [{"lr": 1}], [0])
    source = open_checkpoint(str(pico_bert))
    plan.prepare_directory(source, force=False)
    record = plan.directory / "seed-0.json"
    record.write_text("{}")
    plan.prepare_directory(source, force=True)
    assert record.is_file()  # of the same search
    with monkeypatch.context() as killed:
        killed.setattr("shutil.rmtree", lambda *_: None)
        plan.remove_directory()
    plan.prepare_directory(source, force=True)
    assert not record.exists()
