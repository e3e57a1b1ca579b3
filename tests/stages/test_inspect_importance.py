"""inspect --importance, through the command line."""

import json
from pathlib import Path

import pytest

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.importance.store import load_scores
from tests import pico

LABELS = ("O", "B-Disease", "B-Drug", "B-Gene", "I-Disease", "I-Drug", "I-Gene")
NER = ("--calibration", "demo:ner", "--calibration-tokens", "400")


@pytest.fixture(scope="module")
def ner(tmp_path_factory):
    return pico.save("bert", tmp_path_factory.mktemp("tagger") / "ner", "token-classification", labels=LABELS)


def test_scores_are_drawn(shell, ner):
    shell("shrink", ner, "--layers", "3", "--ffn", "32", *NER, "--out", "small")
    shown = shell("inspect", "small", "--importance", "--plot", "scores.png")
    assert shown.code == 0, shown.err
    assert all(word in shown.out for word in ("heads", "neurons", "layers", "█", "100"))
    assert "heads, neurons, hidden by fisher; layers by loss-after-repair; on 41" in shown.out
    assert Path("scores.png").read_bytes().startswith(b"\x89PNG")
    facts = json.loads(shell("inspect", "small", "--importance", "--json").out)
    assert len(facts["importance"]["heads"]) == 3 and len(facts["importance"]["layers"]) == 4
    assert shell("inspect", ner, "--importance").code == 1
    assert "let it end in" in shell("inspect", "small", "--importance", "--plot", "scores.txt").err
    assert json.loads(shell("inspect", "small", "--json").out)["megabytes"]["weights"] > 0


def test_drawn_scores_show_what_was_cut(shell, ner):
    shell("shrink", ner, "--layers", "0,2,3", "--heads", "2", "--ffn", "48", *NER, "--out", "small")
    shown = shell("inspect", "small", "--importance").out
    rows = [line.split() for line in shown.splitlines()]
    kept = open_checkpoint("small").manifest.history[-1].heads
    for layer, heads in zip("023", kept, strict=True):
        cells = next(row for row in rows if row[:1] == [layer])[1:5]
        assert [head for head, cell in enumerate(cells) if not cell.startswith("x")] == list(heads)
    words = " ".join(shown.split())
    assert "of the layers that were kept, before they were narrowed: 3 layers x 4 heads" in words
    assert "48 kept 16 cut importance kept" in words


def test_drawn_layers_show_which_were_cut(shell, ner):
    shell("shrink", ner, "--layers", "2", *NER, "--importance", "block-influence", "--out", "small")
    kept = open_checkpoint("small").manifest.history[-1].layers
    shown = shell("inspect", "small", "--importance").out
    assert "  layers by block-influence; on 41" in shown
    names = {line.split()[0] for line in shown.splitlines() if line.startswith("  ")}
    assert {str(layer) if layer in kept else f"x{layer}" for layer in range(4)} <= names


def test_scores_of_layers_have_their_numbers(shell, ner):
    shell("shrink", ner, "--layers", "0,2,3", "--ffn", "32", *NER, "--out", "small")
    assert load_scores(open_checkpoint("small")).layers == (0, 2, 3)
    shown = shell("inspect", "small", "--importance").out
    rows = [line.split()[0] for line in shown[shown.index("neurons") :].splitlines() if line.split()]
    assert "heads, neurons, hidden by fisher; on" in shown and [row for row in rows if row.isdecimal()] == [
        "0",
        "2",
        "3",
    ]


def test_layers_that_were_not_tried_have_no_score(shell, ner):
    facts = json.loads(shell("shrink", ner, "--layers", "3", *NER, "--out", "small", "--json").out)
    (removed,) = {0, 1, 2, 3} - set(facts["layers"])
    shown = shell("inspect", "small", "--importance", "--plot", "scores.png")
    assert shown.code == 0, shown.err
    rows = {row[0]: row[1] for line in shown.out.splitlines() if len(row := line.split()) > 1}
    assert rows["0"] == "-" and rows[f"x{removed}"].isdecimal() and "- was not tried" in shown.out
    assert "layers by loss-after-repair" in shown.out and Path("scores.png").stat().st_size > 1000


def test_inspect_says_how_a_cut_was_chosen(shell, ner):
    cuts = {
        ("--layers", "3"): "chosen by loss-after-repair (layers), repaired",
        ("--layers", "3", "--ffn", "32"): "chosen by fisher and loss-after-repair (layers), repaired",
        ("--ffn", "32", "--importance", "wanda", "--repair", "none"): "chosen by wanda, not repaired",
    }
    for cut, said in cuts.items():
        shell("shrink", ner, *cut, *NER, "--out", "small", "--force")
        cell = json.loads(shell("inspect", "small", "--json").out)["cut"]
        assert cell.startswith(f"{said}, on 41") and cell.endswith(" tokens of demo:ner")
        assert cell in " ".join(shell("inspect", "small").out.split())
    shell("shrink", ner, "--layers", "3", "--out", "plain")
    assert json.loads(shell("inspect", "plain", "--json").out)["cut"] is None
