"""The table of a suite: means, deviations, averages over task types, the papers' columns, in every form."""

import statistics
from itertools import product

import pytest

from biosqueeze.benchmarks.suite import load_suite
from biosqueeze.reporting.scoreboard import Scoreboard, ScoreCell, best_published, latex, markdown

BLURB = load_suite("blurb")
SCORES = {"teacher": (80.0, 82.0, 84.0), "student": (78.0, 80.0, 79.0)}


def board(*names: str, **changes: object) -> Scoreboard:
    benchmarks = tuple(BLURB[name] for name in names)
    cells = {
        (who, name): ScoreCell(tuple(score - 10 * (name == "hoc") for score in SCORES[who]), 1.5)
        for who, name in product(SCORES, names)
    }
    return Scoreboard(BLURB, benchmarks, tuple(SCORES), **{"cells": cells, "published": ("PubMedBERT",), **changes})


def test_average_is_over_task_types_not_data_sets() -> None:
    few = board("ncbi-disease", "bc2gm", "hoc")
    assert few.mean_of("teacher") == pytest.approx(((82 + 82) / 2 + 72) / 2)
    assert few.is_partial
    last = list(few.rows())[-1]
    assert last[0] == "BLURB score, partial"
    papers = BLURB["ncbi-disease"], BLURB["bc2gm"], BLURB["hoc"]
    ner, gm, hoc = (benchmark.published_score("PubMedBERT") for benchmark in papers)
    assert last[-1] == f"{((ner + gm) / 2 + hoc) / 2:.2f}"


def test_average_of_a_whole_suite_agrees_with_the_paper() -> None:
    whole = board(*(benchmark.name for benchmark in BLURB.benchmarks))
    assert not whole.is_partial
    last = list(whole.rows())[-1]
    assert last[0] == "BLURB score"
    assert float(last[-1]) == pytest.approx(81.10, abs=0.011)


@pytest.mark.parametrize("score", [0.0, -5.0])
def test_no_share_of_a_score_that_is_not_positive(score: float) -> None:
    cells = {("teacher", "hoc"): ScoreCell((score,), 1.0), ("student", "hoc"): ScoreCell((4.0,), 1.0)}
    rows = board("hoc", cells=cells).rows()
    assert [row[4] for row in rows] == ["-", "-"]


def test_sample_deviation_and_retention_of_the_first() -> None:
    row = next(iter(board("hoc").rows()))
    assert row[2] == f"72.00 ± {statistics.stdev(SCORES['teacher']):.2f}"
    assert row[3:5] == ["69.00 ± 1.00", f"{100 * 69 / 72:.1f}"]
    assert row[5] == "3"
    assert ScoreCell((50.0,), 1.0).deviation is None


def test_differences_and_skipped_benchmarks_are_footnotes() -> None:
    scoreboard = board("hoc", notes={"hoc": "dev has 2 more"}, skipped={"ddi": "no ddi under data"})
    assert next(iter(scoreboard.rows()))[0] == "HoC*"
    assert scoreboard.footnotes()[:2] == ["* HoC: dev has 2 more", "DDI: not run, no ddi under data"]
    assert all(note in text for note in scoreboard.footnotes() for text in (markdown(scoreboard), latex(scoreboard)))


def test_markdown_and_latex_have_every_row() -> None:
    scoreboard = board("hoc", "biosses")
    width = len(scoreboard.columns())
    lines = [line for line in markdown(scoreboard).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 3
    assert {line.count("|") for line in lines} == {width + 1}
    tex = latex(scoreboard)
    assert {line.count("&") for line in tex.splitlines() if line.endswith(r"\\")} == {width - 1}
    assert r"$\pm$" in tex
    assert r"keeps \%" in tex
    assert "_" not in tex.replace(r"\_", "")


def test_json_has_single_runs_and_every_published_column() -> None:
    row = board("hoc", settings={"hoc": {"lr": 5e-5}}).as_dict()["benchmarks"][0]
    assert row["results"]["student"]["runs"] == [68.0, 70.0, 69.0]
    assert set(row["published"]) == set(BLURB.models)
    assert row["options"] == {"lr": 5e-5}


def test_best_published_columns_are_the_default() -> None:
    printed = BLURB.total.printed
    assert list(best_published(BLURB, ())) == sorted(printed, key=lambda model: -printed[model])[:3]
    assert best_published(BLURB, ("BioBERT",)) == ("BioBERT",)


def test_names_do_not_break_the_tables() -> None:
    name = r"a|b\c_{x}^$"
    cells = {(name, "hoc"): ScoreCell((50.0,), 1.0)}
    odd = Scoreboard(BLURB, (BLURB["hoc"],), (name,), cells)
    assert r"| a\|b\\c_{x}^$ |" in markdown(odd)
    assert r"a|b\textbackslash{}c\_\{x\}\textasciicircum{}\$" in latex(odd)
