"""`shrink --embedding`: alone, with other cuts, and with options that it excludes."""

import json
from pathlib import Path

import pytest
from transformers import AutoModel

from tests import pico
from tests.cli.run import Shell


@pytest.fixture
def electra(tmp_path: Path) -> Path:
    return pico.save("electra", tmp_path / "electra", "mlm")


def test_smaller_embeddings_are_planned_and_written(shell: Shell, electra: Path) -> None:
    size = json.loads((electra / "config.json").read_text())["embedding_size"]
    planned = shell("shrink", str(electra), "--embedding", str(size - 2), "--dry-run", "--json")
    result = shell("shrink", str(electra), "--embedding", str(size - 2), "--json")
    assert result.code == 0, result.err
    assert f"keep {size - 2} of {size} embedding dimensions" in result.err
    assert "of the variance of the projected embeddings is kept" in result.err
    written = json.loads(result.out)
    assert json.loads(planned.out)["parameters_after"] == written["parameters_after"] < written["parameters_before"]
    out = Path(written["path"])
    assert out.name == f"electra-e{size - 2}"
    assert AutoModel.from_pretrained(out).config.embedding_size == size - 2


def test_embeddings_and_layers_and_vocabulary(shell: Shell, electra: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("TP53 binds DNA.\n")
    cuts = ("--embedding", "8", "--layers", "2", "--ffn", "32", "--vocab-keep", str(text))
    result = shell("shrink", str(electra), *cuts, "-o", str(tmp_path / "out"))
    assert result.code == 0, result.err
    config = AutoModel.from_pretrained(tmp_path / "out").config
    assert (config.embedding_size, config.num_hidden_layers, config.intermediate_size) == (8, 2, 32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--embedding", "8", "--params", "1M"), "--params"),
        (("--embedding", "8", "--student", "tiny"), "--student"),
        (("--embedding", "8", "--layers", "2", "--steps-of", "2"), "--steps-of"),
        (("--embedding", "9999"), "cannot be cut from"),
    ],
)
def test_requests_that_are_refused(shell: Shell, electra: Path, options: tuple[str, ...], message: str) -> None:
    result = shell("shrink", str(electra), *options)
    assert result.code in (1, 2) and message in result.err
    assert [path.name for path in electra.parent.iterdir()] == ["electra"]
