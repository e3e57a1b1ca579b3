"""Plots of odd runs, and plots side by side on one page."""

import json

import pytest
from matplotlib.axes import Axes

from biosqueeze.distillation.losses.presets import LOSS_PRESETS
from biosqueeze.reporting import plots
from biosqueeze.reporting.curves import read_curves
from biosqueeze.reporting.plots import Panel, Point, tradeoff_plot, training_plot
from tests.stages.test_report import Page


@pytest.mark.parametrize("terms", [{}, {"loss": 0.0}, {"loss": float("inf"), "kl": 1.0}, {"loss": -1.0}])
@pytest.mark.filterwarnings("error")
def test_odd_runs_can_be_drawn(tmp_path, terms):
    lines = [{"step": 1, **terms}, {"step": 2, **terms, "lr": 0.0, "tokens": 5, "seconds": 0.0}]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    Page(training_plot(read_curves(tmp_path)))


def test_plots_are_reproducible_without_group_ids():
    panel = Panel("F1", "ms", "F1", (Point("a", "torch", 3.0, 0.5), Point("b" * 90, "torch", 9.0, 0.25)))
    drawn = tradeoff_plot([panel, panel])
    assert drawn == tradeoff_plot([panel, panel])
    assert '<g id="' not in drawn and "var(--ink)" in drawn and "#010203" not in drawn


def test_checkpoints_have_numbers_where_colours_repeat():
    points = tuple(Point(f"cut-{index}", "torch", 1.0 + index, 0.5) for index in range(9))
    few = Page(tradeoff_plot([Panel("F1", "ms", "F1", points[:8])])).text
    many = Page(tradeoff_plot([Panel("F1", "ms", "F1", points)])).text
    assert "cut-7, torch" in few and "8 cut-7" not in few
    assert "1 cut-0, torch" in many and "9 cut-8, torch" in many


@pytest.mark.parametrize("name", ["$x^2$", "$\\frac{$", "_hidden", "#010203", "<b>&", "[/red]"])
def test_names_are_drawn_as_they_are(tmp_path, name):
    drawn = tradeoff_plot([Panel(f"of {name}", f"MB {name}", name, (Point(name, name, 3.0, 0.5),))])
    lines = [{"step": step, "loss": 1.0, name: 0.5, "other": 0.5, "lr": 0.1} for step in (1, 2)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, [*lines, {"step": 2, "dev": {name: 0.5}}])))
    text = Page(drawn).text
    assert f"of {name}" in text and f"MB {name}" in text and f"{name}, {name}" in text
    assert name in Page(training_plot(read_curves(tmp_path))).text


def test_the_score_that_selected_the_step_is_ringed(tmp_path, monkeypatch):
    steps = [{"step": step, "loss": 1.0, "lr": 0.1} for step in range(1, 21)]
    dev = {
        10: {"f1": 0.8, "f1-Disease": 0.3, "accuracy": 0.7, "best_f1_thresh": -3.0},
        20: {"f1": 0.6, "f1-Disease": 0.2, "accuracy": 0.9},
    }
    scores = [{"step": step, "dev": values} for step, values in dev.items()]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, [*steps, *scores])))
    curves = read_curves(tmp_path)
    assert curves.dev_names == ("f1", "accuracy")
    rings = []
    plot = Axes.plot

    def record(self, x, y, *args, **style):
        if style.get("markersize") == 12:
            rings.append((x, y))
        return plot(self, x, y, *args, **style)

    monkeypatch.setattr(Axes, "plot", record)
    training_plot(curves, "f1", 20)
    training_plot(curves, None, 20)
    training_plot(curves, "f1-Disease", 10)
    training_plot(curves, "f1")
    training_plot(curves, "f1", 0)
    assert rings == [(20, 0.6), (20, 0.9), (10, 0.3)]


_NER, _LABELS = "precision recall f1", "precision recall f1 macro_f1 example_f1 blue_f1 accuracy"
_QUESTIONS = "exact f1 strict_accuracy lenient_accuracy mrr best_exact best_f1"


@pytest.mark.parametrize(
    ("terms", "scores"),
    [
        *((tuple(preset.weights), _NER) for preset in LOSS_PRESETS.values()),
        ((), _LABELS),
        (("mlm", "nsp"), "mlm nsp accuracy"),
        (("generator", "discriminator"), "generator discriminator"),
        (tuple("abcdefgh"), _QUESTIONS),
        (("t" * 200,), f"{_LABELS} f1-{'L' * 200}"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_legends_fit_above_their_axes(tmp_path, monkeypatch, terms, scores):
    steps = [{"step": 1, "loss": 9.0, **dict.fromkeys(terms, 0.5), "lr": 0.1}]
    dev = {"step": 1, "dev": dict.fromkeys(scores.split(), 0.5)}
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, [*steps, dev])))
    drawn = []
    as_markup = plots._as_markup
    monkeypatch.setattr(plots, "_as_markup", lambda figure: drawn.append(figure) or as_markup(figure))
    training_plot(read_curves(tmp_path), scores.split()[-1])
    drawn[0].draw_without_rendering()
    for axes in drawn[0].axes:
        if (legend := axes.get_legend()) is not None:
            box, title = legend.get_window_extent(), axes._left_title
            assert not box.overlaps(title.get_window_extent())
            assert axes.bbox.x0 - 1 <= box.x0 and box.x1 <= axes.bbox.x1 + 1 and axes.bbox.width > 350
