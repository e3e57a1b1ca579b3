"""From the command line: trained in another scheme than the data have, scored on the data as they are."""

import json
from pathlib import Path

import pytest

from tests import pico
from tests.cli.run import Shell


@pytest.fixture
def tagged(tmp_path: Path) -> Path:
    """Sentences in which words that end in -tis are diseases, and often stand side by side; tagged as BIOES."""
    folder = tmp_path / "data"
    folder.mkdir()
    for seed, split in enumerate(("train", "dev", "test")):
        rows = []
        for sentence in pico.sentences(60, seed=seed):
            words = sentence.rstrip(".").split()
            rows += [f"{w}\t{'S-Disease' if w.lower().endswith('tis') else 'O'}" for w in words]
            rows += ["hepatitis\tS-Disease", "fibrosis\tB-Disease", "syndrome\tE-Disease", "BRCA1\tS-Gene", ""]
        (folder / f"{split}.tsv").write_text("\n".join(rows))
    return folder


@pytest.mark.parametrize("scheme", [None, "BIO", "IO"])
def test_train_score_and_score_again(pico_bert: Path, tagged: Path, shell: Shell, scheme: str | None) -> None:
    form = ["--types", "Disease", *(["--scheme", scheme, "--label-all-pieces"] if scheme else [])]
    said = shell(
        "finetune",
        pico_bert,
        "--data",
        tagged,
        *form,
        "--epochs",
        8,
        "--lr",
        "5e-3",
        "--precision",
        "fp32",
        "--out",
        "o",
    )
    assert said.code == 0, said.err
    manifest = json.loads(Path("o/biosqueeze.json").read_text())
    letters = {"BIO": "BI", "IO": "I", None: "BILU"}[scheme]
    assert manifest["task"]["labels"] == ["O", *(f"{letter}-Disease" for letter in letters)]
    assert manifest["task"]["scheme"] == (scheme or "BIOUL")
    scored = shell("evaluate o --split dev --json")
    metrics = json.loads(scored.out)["metrics"]
    assert metrics["f1"] == pytest.approx(manifest["metrics"]["f1"])
    assert set(metrics) == {"precision", "recall", "f1", "support", "f1-Disease", "support-Disease"}
    assert metrics["support"] == (tagged / "dev.tsv").read_text().count("Disease") - 60  # one in each is of two words
    assert metrics["f1"] < 0.6 if scheme == "IO" else metrics["f1"] > 0.7  # in every sentence two entities touch
