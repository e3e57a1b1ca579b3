"""report: one self-contained page with the numbers of the checkpoint's files; their text is escaped."""

import json
import math
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.reporting.report_data import gather, relatives
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


def write_metrics(path, terms=("kl", "cosine")):
    lines = []
    for step in range(1, 41):
        losses = {name: math.exp(-step / 10) * (i + 1) for i, name in enumerate(terms)}
        values = {"loss": sum(losses.values()), **losses, "lr": 1e-4 * step / 40}
        lines.append({"step": step, **values, "tokens": 100, "seconds": round(step * 0.5, 3)})
        if step in (20, 40):
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
    shell("shrink teacher --layers 2 --out student")
    write_metrics(Path("teacher"), terms=("labels",))
    write_metrics(Path("student"))
    write_score(Path("teacher"), "torch", 0.8765)
    write_score(Path("student"), "torch", 0.8321)
    return Path("student")


def test_page_shows_facts_curves_and_results(shell, made):
    rows = [bench_row("teacher", "torch"), bench_row("student", "onnxruntime:int8", p50_ms=3.217, f1=0.79)]
    bench = {"rows": rows, "machine": {"cpu": "A Processor", "threads": 3}, "rounds": 5}
    (made / "results" / "bench.json").write_text(json.dumps(bench))
    said = shell("report", made)
    assert (said.code, said.path) == (0, str(made / "report.html"))
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


@pytest.mark.parametrize(
    ("first", "drawn"),
    [({"score": None}, True), ({"score": 0.9, "evaluated_on": "other"}, True), ({"score": 0.9}, True), ({}, False)],
)
def test_scores_are_compared_with_each_other(shell, made, first, drawn):
    students = [
        bench_row(name, "torch", metric="pearson", score=score, evaluated_on="data" if drawn else name, retention=None)
        for name, score in (("a", 0.8), ("b", -0.1))
    ]
    rows = [bench_row("teacher", "torch", metric="pearson", retention=None, **first), *students]
    (made / "results" / "bench.json").write_text(json.dumps({"rows": rows}))
    assert shell("report", made).code == 0
    assert ("pearson against latency" in page_of(made / "report.html").text) is drawn


def test_json_names_the_file(shell, made):
    said = shell("report", made, "--html", "pages/student.html", "--json")
    assert json.loads(said.out) == {
        "path": "pages/student.html",
        "report": "pages/student.html",
        "checkpoint": str(made),
    }
    assert Path("pages/student.html").is_file() and not (made / "report.html").exists()


def test_page_of_a_checkpoint_without_manifest_or_results(shell, pico_any, copy_of):
    path = copy_of(pico_any)
    assert shell("report", path).code == 0
    page = page_of(path / "report.html")
    assert "svg" not in page.tags
    assert "biosqueeze evaluate" in page.text and "no biosqueeze.json" in page.text
    facts = json.loads(shell("inspect", path, "--json").out)
    assert f"{facts['parameters']['attention']:,}" in page.text


def test_missing_library_names_the_extra(shell, made, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for words in ((), ("--dry-run",)):
        said = shell("report", made, *words)
        assert said.code == 1
        assert said.err.splitlines() == [
            'error: matplotlib is not installed; it comes with an extra: pip install "biosqueeze[report]"'
        ]


def test_text_of_other_files_is_escaped(shell, made):
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
def test_unwritable_places_are_explained(shell, made, words, code, says):
    Path("folder.html").mkdir()
    before = (made / "config.json").read_text()
    said = shell("report", made, *words)
    assert (said.code, said.out) == (code, "") and says in said.err
    assert (made / "config.json").read_text() == before


def test_read_only_checkpoint_needs_html_option(shell, pico_ner, tmp_path, monkeypatch):
    monkeypatch.setattr("biosqueeze.checkpoint.Checkpoint.is_writable", False)
    said = shell("report", pico_ner)
    assert said.code == 1 and "--html FILE" in said.err
    assert shell("report", pico_ner, "-o", "page.html").code == 0


def test_dry_run_writes_nothing(shell, made):
    said = shell("report", made, "--dry-run")
    assert said.code == 0 and "student/report.html" in said.err
    assert not (made / "report.html").exists()


def test_page_does_not_change_the_content_hash(shell, made):
    from biosqueeze.files import content_hash

    before = content_hash(made)
    shell("report", made)
    assert content_hash(made) == before
    shell("shrink", made, "--layers", "1", "--out", "next")
    assert not Path("next/report.html").exists()


def test_relatives_have_unchanged_weights(made, tmp_path, monkeypatch):
    assert [r.name for r in relatives(open_checkpoint("student"))] == ["teacher"]
    monkeypatch.chdir(tmp_path / "teacher")  # the recorded path is wrong here
    (relative,) = relatives(open_checkpoint("../student"))
    assert relative.path.resolve() == tmp_path / "teacher"
    manifest = json.loads((tmp_path / "teacher" / "biosqueeze.json").read_text())
    edit_json(tmp_path / "teacher" / "biosqueeze.json", model=manifest["model"] | {"sha256": "another"})
    assert relatives(open_checkpoint("../student")) == []


def test_score_of_a_deleted_backend_is_kept(made):
    write_score(made, "abacus", 0.5)
    evaluations = gather(open_checkpoint("student")).evaluations
    megabytes = {evaluation.backend: evaluation.megabytes for evaluation in evaluations}
    assert megabytes["abacus"] is None and megabytes["torch"] > 0
