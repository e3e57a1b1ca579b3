"""report: one page that stands alone, holds the numbers it was given, and escapes what it did not write."""

import json
import math
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.reporting.curves import read_curves, smoothed, speed, thinned
from biosqueeze.reporting.markup import Markup, element
from biosqueeze.reporting.plots import Panel, Point, tradeoff_plot, training_plot
from biosqueeze.reporting.report_data import gather, relatives, short_names
from tests.layouts import edit_json

VOID = {"meta", "br", "hr", "img", "input", "link"}
NASTY = "<script>alert('x')</script> & \"co\" $x_1$"


class Page(HTMLParser):
    """Checks that every element is closed in its turn; gathers text, and whatever would load something."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.links, self.words = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href", "xlink:href", "data", "action")]

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def page_of(path):
    text = Path(path).read_text(encoding="utf-8")
    page = Page(text)
    assert not {"script", "link", "iframe", "img", "object"} & set(page.tags)
    assert all(link.startswith("#") for link in page.links)
    assert "@import" not in text and not re.search(r"url\((?!#)", text)
    return page


def write_metrics(path, steps=40, terms=("kl", "cosine"), judged=(20, 40)):
    lines = []
    for step in range(1, steps + 1):
        losses = {name: math.exp(-step / 10) * (i + 1) for i, name in enumerate(terms)}
        values = {"loss": sum(losses.values()), **losses, "lr": 1e-4 * step / steps}
        lines.append({"step": step, **values, "tokens": 100, "seconds": round(step * 0.5, 3)})
        if step in judged:
            scores = {"precision": 0.5, "recall": 0.625, "f1": 0.5 + step / 200, "support": 9, "f1-Disease": 0.5}
            lines.append({"step": step, "dev": scores})
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_score(path, backend, f1, data="/data/ncbi", **more):
    (path / "results").mkdir(exist_ok=True)
    metrics = {"precision": 0.8125, "recall": 0.75, "f1": f1, "support": 44, **more}
    result = {"task": "ner", "data": data, "split": "test", "backend": backend, "metrics": metrics, "examples": 9}
    (path / "results" / f"evaluate-{backend.replace(':', '-')}.json").write_text(json.dumps(result))


def bench_row(name, backend, **facts):
    usual = {"batch_size": 1, "length": 128, "p50_ms": 12.345, "p95_ms": 15.678, "sequences_per_second": 81.0}
    return {"checkpoint": name, "backend": backend, **usual, "speed_up": 2.5, "megabytes": 17.9, "f1": 0.8} | facts


@pytest.fixture
def made(shell, pico_ner, copy_of):
    """A teacher with curves and a score, and a student of it with its own."""
    teacher = copy_of(pico_ner)
    shell("shrink", teacher, "--layers", "3", "--out", "teacher")
    shell("shrink", "teacher", "--layers", "2", "--out", "student")
    write_metrics(Path("teacher"), terms=("labels",))
    write_metrics(Path("student"))
    write_score(Path("teacher"), "torch", 0.8765)
    write_score(Path("student"), "torch", 0.8321)
    return Path("student")


def test_the_page_holds_what_is_known(shell, made):
    rows = [bench_row("teacher", "torch"), bench_row("student", "onnxruntime:int8", p50_ms=3.217, f1=0.79)]
    bench = {"rows": rows, "machine": {"cpu": "A Processor", "threads": 3}, "rounds": 5}
    (made / "results" / "bench.json").write_text(json.dumps(bench))
    said = shell("report", made)
    assert (said.code, said.path) == (0, str(made))
    page = page_of(made / "report.html")
    parameters = json.loads((made / "biosqueeze.json").read_text())["model"]["parameters"]
    for count in parameters.values():
        assert f"{count:,}" in page.text
    for words in ("0.8765", "0.8321", "0.8125", "12.35", "15.68", "3.22", "2.50×", "A Processor", "3 threads"):  # noqa: RUF001
        assert words in page.text, words
    for words in ("layers 2", "kl", "cosine", "optimiser step", "tokens per second", "ncbi (test)"):
        assert words in page.text, words
    assert page.tags.count("svg") == 3  # the student's curves, the teacher's, the scatter plots
    assert "F1 against latency" in page.text and "F1 against size" in page.text


def test_scores_on_other_data_are_not_drawn_together(shell, made):
    rows = [bench_row("teacher", "torch", retention=1.0), bench_row("student", "onnxruntime:int8", retention=None)]
    (made / "results" / "bench.json").write_text(json.dumps({"rows": rows}))
    assert shell("report", made).code == 0
    assert "F1 against latency" not in page_of(made / "report.html").text


def test_json_names_the_file(shell, made):
    said = shell("report", made, "--html", "pages/student.html", "--json")
    assert json.loads(said.out) == {"path": str(made), "report": "pages/student.html"}
    assert Path("pages/student.html").is_file() and not (made / "report.html").exists()


def test_a_checkpoint_without_anything(shell, pico_any, copy_of):
    path = copy_of(pico_any)
    assert shell("report", path).code == 0
    page = page_of(path / "report.html")
    assert "svg" not in page.tags
    assert "biosqueeze evaluate" in page.text and "no biosqueeze.json" in page.text
    facts = json.loads(shell("inspect", path, "--json").out)
    assert f"{facts['parameters']['attention']:,}" in page.text


def test_without_matplotlib_the_pip_line(shell, made, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for words in ((), ("--dry-run",)):
        said = shell("report", made, *words)
        assert said.code == 1
        assert said.err.splitlines() == [
            'error: matplotlib is not installed; it comes with an extra: pip install "biosqueeze[report]"'
        ]


def test_what_others_wrote_is_escaped(shell, made):
    write_score(made, "torch", 0.8, data=NASTY)
    rows = [bench_row(NASTY, "torch"), bench_row("_hidden", NASTY, f1=0.7)]
    (made / "results" / "bench.json").write_text(json.dumps({"rows": rows, "machine": {"cpu": NASTY}}))
    write_metrics(made, terms=("kl", NASTY))
    edit_json(made / "config.json", id2label={"0": NASTY, "1": "B-X"}, architectures=[NASTY])
    manifest = json.loads((made / "biosqueeze.json").read_text())
    manifest["history"][-1]["options"]["layers"] = NASTY
    (made / "biosqueeze.json").write_text(json.dumps(manifest))
    assert shell("report", made).code == 0
    page = page_of(made / "report.html")
    shown = " ".join(NASTY.split())
    assert page.text.count(shown) >= 6
    assert page.text.count("_hidden") == 2  # in the table, and in the legend that matplotlib would leave it out of


def test_only_an_earlier_report_is_replaced(shell, made):
    assert shell("report", made).code == 0
    assert shell("report", made).code == 0
    Path("mine.html").write_text("<p>mine</p>")
    said = shell("report", made, "--html", "mine.html")
    assert said.code == 1 and "--force" in said.err and Path("mine.html").read_text() == "<p>mine</p>"
    assert shell("report", made, "--html", "mine.html", "--force").code == 0
    page_of("mine.html")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--html", "student/config.json", "--force"), 2, "end in .html"),
        (("--html", "folder.html"), 1, "is a directory"),
        (("--html", "student/config.json/page.html"), 1, "another place"),
    ],
)
def test_places_where_no_page_can_go(shell, made, words, code, says):
    Path("folder.html").mkdir()
    before = (made / "config.json").read_text()
    said = shell("report", made, *words)
    assert (said.code, said.out) == (code, "") and says in said.err
    assert (made / "config.json").read_text() == before


def test_a_checkpoint_that_is_not_ours_needs_a_file(shell, pico_ner, tmp_path, monkeypatch):
    monkeypatch.setattr("biosqueeze.checkpoint.Checkpoint.is_writable", False)
    said = shell("report", pico_ner)
    assert said.code == 1 and "--html FILE" in said.err
    assert shell("report", pico_ner, "-o", "page.html").code == 0


def test_dry_run_writes_nothing(shell, made):
    said = shell("report", made, "--dry-run")
    assert said.code == 0 and "student/report.html" in said.err
    assert not (made / "report.html").exists()


def test_the_page_is_no_part_of_the_model(shell, made):
    from biosqueeze.cli.recipe import content_hash

    before = content_hash(made)
    shell("report", made)
    assert content_hash(made) == before
    shell("shrink", made, "--layers", "1", "--out", "next")
    assert not Path("next/report.html").exists()


def test_relatives_are_those_that_are_still_the_same(made, tmp_path, monkeypatch):
    assert [r.name for r in relatives(open_checkpoint("student"))] == ["teacher"]
    monkeypatch.chdir(tmp_path / "teacher")  # names no longer lead there, but it still lies beside its child
    (relative,) = relatives(open_checkpoint("../student"))
    assert relative.path.resolve() == tmp_path / "teacher"
    edit_json(tmp_path / "teacher" / "biosqueeze.json", model={"sha256": "another"})
    assert relatives(open_checkpoint("../student")) == []


def test_names_are_short_where_they_differ():
    assert short_names(["a/teacher", "student"]) == {"a/teacher": "teacher", "student": "student"}
    assert short_names(["a/x", "b/x"]) == {"a/x": "a/x", "b/x": "b/x"}
    assert short_names(["."]) == {".": Path.cwd().name}


def test_a_backend_that_is_gone_leaves_its_score(made):
    write_score(made, "abacus", 0.5)
    scores = {score.result["backend"]: score.megabytes for score in gather(open_checkpoint("student")).scores}
    assert scores["abacus"] is None and scores["torch"] > 0


def test_curves_are_read_as_written(tmp_path):
    write_metrics(tmp_path)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 41, "lo')  # cut short
    curves = read_curves(tmp_path)
    assert curves.steps.tolist() == list(range(1, 41))
    assert set(curves.terms) == {"loss", "kl", "cosine"}
    assert [step for step, _ in curves.dev] == [20, 40]
    assert curves.dev_names == ("precision", "recall", "f1")
    assert np.isnan(curves.durations[20]), "the scoring of the dev split is not training"
    np.testing.assert_allclose(speed(curves), 200.0)
    assert read_curves(tmp_path / "results") is None


def test_a_resumed_run_keeps_its_speed(tmp_path):
    lines = [{"step": s, "loss": 1.0, "tokens": 100, "seconds": t} for s, t in ((1, 1), (2, 2), (3, 1), (4, 2))]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert read_curves(tmp_path).durations.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(("length", "half"), [(3, 1), (200, 3)])
def test_smoothing_is_the_mean_of_the_neighbours(length, half):
    values = np.random.default_rng(0).normal(size=length)
    values[length // 2] = np.nan
    expected = [np.nanmean(values[max(0, i - half) : i + half + 1]) for i in range(length)]
    np.testing.assert_allclose(smoothed(values), expected)


def test_thinning_keeps_the_extremes():
    steps = np.arange(1.0, 20_001)
    values = np.random.default_rng(0).normal(size=20_000)
    values[777], values[12_345] = 50, -50
    x, y = thinned(steps, values)
    assert len(x) <= 1000 and (np.diff(x) > 0).all()
    assert (x[y.argmax()], x[y.argmin()]) == (778, 12_346)


@pytest.mark.parametrize("terms", [{}, {"loss": 0.0}, {"loss": float("inf"), "kl": 1.0}, {"loss": -1.0}])
@pytest.mark.filterwarnings("error")
def test_odd_runs_can_be_drawn(tmp_path, terms):
    lines = [{"step": 1, **terms}, {"step": 2, **terms, "lr": 0.0, "tokens": 5, "seconds": 0.0}]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    Page(training_plot(read_curves(tmp_path)))


def test_plots_are_the_same_each_time_and_share_no_group_ids():
    panel = Panel("F1", "ms", "F1", (Point("a", "torch", 3.0, 0.5), Point("b" * 90, "torch", 9.0, 0.25)))
    drawn = tradeoff_plot([panel, panel])
    assert drawn == tradeoff_plot([panel, panel])
    assert '<g id="' not in drawn and "var(--ink)" in drawn and "#010203" not in drawn


def test_elements_escape_text_but_not_markup():
    assert element("p", "<", Markup("<b></b>"), title='"') == '<p title="&quot;">&lt;<b></b></p>'
    assert element("p", class_="x", title=None, data_x=1) == '<p class="x" data-x="1"></p>'
