"""Training curves are read from metrics.jsonl, smoothed and thinned."""

import json
from pathlib import Path

import numpy as np
import pytest

from biosqueeze.reporting import curves
from biosqueeze.reporting.curves import read_curves, smoothed, speed, thinned
from biosqueeze.reporting.plots import training_plot
from tests.stages.test_report import write_metrics


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


def test_resumed_run_keeps_its_speed(tmp_path):
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


def test_hostile_lines_are_skipped_or_empty(tmp_path):
    lines = ["[" * 100_000, "9" * 5_000, '{"step": 1' + "0" * 400 + "}", '{"step": 1, "kl": 1' + "0" * 400 + "}"]
    lines += ['{"step": 2, "kl": 0.5}', '{"step": 2, "dev": {"f1": 0.5, "note": "text", "recall": null}}']
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    curves = read_curves(tmp_path)
    assert curves.steps.tolist() == [1, 2]
    assert np.isnan(curves.terms["kl"][0]) and curves.terms["kl"][1] == 0.5
    assert curves.dev == ((2, {"f1": 0.5}),)


def test_a_giant_log_is_not_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(curves, "_MOST_LINES", 3)
    monkeypatch.setattr(curves, "_LINE_BYTES", 1000)
    lines = [json.dumps({"step": step, "loss": 1.0}) for step in range(5)]
    (tmp_path / curves.FILE_NAME).write_text("\n".join([lines[0], "x" * 5000, *lines[1:]]))
    assert read_curves(tmp_path).steps.tolist() == [0, 1, 2]


def test_held_out_losses_and_probes_are_no_dev_scores(tmp_path: Path) -> None:
    step = {"step": 1, "loss": 3.0, "mlm": 3.0, "lr": 0.1, "tokens": 5, "seconds": 1.0}
    scores = {"mlm": 2.5, "perplexity": 12.2, "word_accuracy": 0.4}
    lines = [step, {"step": 1, "dev": scores}, {"step": 1, "probe": {"ner": 0.5}}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    read = read_curves(tmp_path)
    assert read is not None
    assert len(read.steps) == 1
    assert (read.dev_losses, read.dev_names) == (("mlm",), ("word_accuracy",))
    assert read.probes == ((1, {"ner": 0.5}),)
    assert "mlm, held out" in training_plot(read)
    assert "probe ner" in training_plot(read)


def test_scores_that_the_first_evaluation_lacks_count(tmp_path):
    lines = [{"step": 1, "loss": 1.0}, {"step": 1, "dev": {"f1": 0.5}}, {"step": 2, "dev": {"loss": 0.9, "mrr": 0.7}}]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    curves = read_curves(tmp_path)
    assert (curves.dev_names, curves.dev_losses) == (("f1", "mrr"), ("loss",))
