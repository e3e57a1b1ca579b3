"""Tables and pictures of importances."""

import errno
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from biosqueeze.importance.store import SavedScores
from biosqueeze.models.cuts.unit_scores import UnitScores
from biosqueeze.reporting.importance import CutScores, cut_scores, importance_tables
from biosqueeze.reporting.importance_picture import save_picture


def scores_of(**kinds: list[Any]) -> CutScores:
    scores = UnitScores(**{kind: torch.tensor(values, dtype=torch.float64) for kind, values in kinds.items()})
    rows = next(iter(kinds.values()))
    saved = SavedScores(
        importance="fisher",
        layers_by="fisher",
        calibration=None,
        tokens=0,
        layers=tuple(range(len(rows))),
        scores=scores,
    )
    return CutScores(saved)


def axes_of(scores: CutScores, path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the axes of a picture."""
    found: list[Any] = []
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, _file, **_options: found.append(figure))
    save_picture(scores, path / "scores.png")
    return list(found[0].axes)


def test_a_picture_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_figure: Any, file: Any, **_options: Any) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "no space left on device")

    path = tmp_path / "scores.png"
    path.write_bytes(b"before")
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", fail)
    with pytest.raises(OSError, match="no space left"):
        save_picture(scores_of(heads=[[1, 1]]), path)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_heads_are_shares_of_the_highest_of_their_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = scores_of(heads=[[1e-3, 5e-4], [20, 40]])
    (table,) = importance_tables(scores)
    assert table.rows == (("0", "100", "50"), ("1", "50", "100"))
    assert "of the model before the cut: 2 layers x 2 heads" in table.title
    (axes,) = axes_of(scores, tmp_path, monkeypatch)
    assert axes.images[0].get_array().tolist() == [[100, 50], [50, 100]]
    assert [text.get_text() for text in axes.texts] == ["100", "50", "50", "100"]


def test_bars_of_neurons_halve_from_step_to_step() -> None:
    (table,) = importance_tables(scores_of(neurons=[[8, 4, 2, 1], [1e-6, 0, 1e-6, 0]]))
    assert [row[1] for row in table.rows] == ["█▇▆▅", "██▁▁"]


def test_colours_of_neurons_are_logarithmic_in_a_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = replace(scores_of(neurons=[[1e-4, 1e-6, 1e-5], [4, 40, 0]]), neurons=2)
    axes, bar = axes_of(scores, tmp_path, monkeypatch)
    image = axes.images[0]
    assert image.get_array()[0].tolist() == pytest.approx([100, 10, 1]) and type(image.norm).__name__ == "LogNorm"
    assert "logarithmic" in bar.get_ylabel() and "2 were kept" in axes.get_xlabel()
    assert [text.get_text() for text in axes.texts] == ["99%", "100%"]


def test_a_score_just_below_zero_is_0() -> None:
    (table,) = importance_tables(scores_of(layers=[1, -1e-4]))
    assert [row[1] for row in table.rows] == ["100", "0"]


@pytest.mark.parametrize(("values", "scale"), [([1, 3], "linear"), ([1, 300], "log"), ([-1, 300], "linear")])
def test_layers_of_far_scores_have_a_logarithmic_axis(
    values: list[float], scale: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (axes,) = axes_of(scores_of(layers=values), tmp_path, monkeypatch)
    assert axes.get_xscale() == scale and ("logarithmic" in axes.get_xlabel()) == (scale == "log")
    low, high = axes.get_xlim()
    assert low <= min(values) / max(values) * 100 and high > 100


def test_kept_query_heads_are_found_in_their_groups() -> None:
    saved = scores_of(heads=[[3, 2, 1]]).saved
    config = {"num_attention_heads": 4, "num_key_value_heads": 2}
    entry = SimpleNamespace(stage="shrink", layers=None, heads=((0, 1, 4, 5),))
    checkpoint = SimpleNamespace(config=config, manifest=SimpleNamespace(history=(entry,)))
    assert cut_scores(checkpoint, saved).heads == ({0, 2},)  # type: ignore[arg-type]
    checkpoint.manifest = None
    assert cut_scores(checkpoint, saved) == CutScores(saved)  # type: ignore[arg-type]
