"""`shrink --embedding`: alone, with other cuts, and with options that it excludes."""

import json
from pathlib import Path

import pytest
from transformers import AutoModel

from tests import pico
from tests.cli.run import Shell
from tests.manifests import write_manifest


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


@pytest.mark.parametrize("family", ["electra", "albert"])
def test_tokens_of_a_text_count_most(family: str, shell: Shell, tmp_path: Path) -> None:
    source, text = pico.save(family, tmp_path / family, "token-classification"), tmp_path / "text.txt"
    text.write_text("\n".join(pico.sentences(20, seed=1)))
    words = ("shrink", source, "--embedding", 8)
    alike = json.loads(shell(*words, "--out", tmp_path / "alike", "--json").out)
    counted = shell(*words, "--calibration", text, "--out", tmp_path / "counted", "--json")
    assert counted.code == 0, counted.err
    assert f"embedding dimensions; the tokens of {text} count most" in counted.err
    assert json.loads(counted.out)["embedding_data"] == str(text)
    assert "embedding_data" not in alike
    assert alike["embedding_variance"] != json.loads(counted.out)["embedding_variance"]


def test_a_text_is_read_once_for_all_cuts(shell: Shell, electra: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(pico.sentences(20, seed=1)))
    cuts = ("--embedding", 8, "--ffn", 32, "--calibration", text)
    result = shell("shrink", electra, *cuts, "--out", tmp_path / "out", "--json")
    assert result.code == 0, result.err
    assert result.err.count("tokens to calibrate on") == 1
    written = json.loads(result.out)
    assert written["embedding_data"] == written["calibration"] == str(text)


@pytest.mark.parametrize(
    ("family", "cuts"), [("albert", ("--layers", 2)), ("electra", ("--layers", "0,2", "--repair", "none"))]
)
def test_a_text_may_serve_the_embedding_alone(family: str, cuts: tuple[str, ...], shell: Shell, tmp_path: Path) -> None:
    source, text = pico.save(family, tmp_path / family, "token-classification"), tmp_path / "text.txt"
    text.write_text("\n".join(pico.sentences(20, seed=1)))
    cut = ("shrink", source, "--embedding", 8, *cuts, "--calibration", text)
    planned = shell(*cut, "--dry-run")
    assert planned.code == 0 and f"the tokens of {text} count most" in planned.err, planned.err
    result = shell(*cut, "--out", tmp_path / "out", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["embedding_data"] == str(text)


@pytest.mark.parametrize(
    ("family", "cuts", "message"),
    [
        ("albert", ("--layers", 2), "all layers of an ALBERT share their weights"),
        ("electra", (), "--repair least-squares has no effect where neither layers nor neurons"),
    ],
)
def test_a_repair_that_fits_nothing(
    family: str, cuts: tuple[str, ...], message: str, shell: Shell, tmp_path: Path
) -> None:
    source = pico.save(family, tmp_path / family, "token-classification")
    said = shell("shrink", source, "--embedding", 8, *cuts, "--repair", "least-squares", "--out", tmp_path / "out")
    assert said.code == 2 and message in said.err, said.err


def test_data_of_the_fine_tuning_are_the_default(shell: Shell, tmp_path: Path) -> None:
    source, data = pico.save("electra", tmp_path / "electra", "token-classification"), tmp_path / "data"
    data.mkdir()
    (data / "train.tsv").write_text("Hepti\tB-Disease\nin\tO\n\nfibneu\tB-Disease\n")
    write_manifest(source, stage="finetune", task={"name": "ner", "data": str(data)})
    for more in ((), ("--layers", 2, "--calibration-tokens", 9)):
        planned = shell("shrink", source, "--embedding", 8, *more, "--dry-run")
        assert planned.code == 0, planned.err
        assert f"the tokens of {data} count most" in planned.err
    source.rename(tmp_path / "moved")
    (data / "train.tsv").unlink()
    planned = shell("shrink", tmp_path / "moved", "--embedding", 8, "--dry-run")
    assert "every token counts alike" in planned.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--embedding", "8", "--params", "1M"), "--params"),
        (("--embedding", "8", "--student", "tiny"), "--student"),
        (("--embedding", "8", "--layers", "2", "--steps-of", "2"), "--steps-of"),
        (("--embedding", "9999"), "cannot be cut from"),
        (("--embedding", "8", "--calibration-tokens", "9"), "--calibration-tokens has no effect"),
        (("--embedding", "8", "--calibration", "absent.txt"), "absent.txt"),
        (("--embedding", "8", "--importance", "magnitude"), "has nothing to choose"),
    ],
)
def test_requests_that_are_refused(shell: Shell, electra: Path, options: tuple[str, ...], message: str) -> None:
    result = shell("shrink", str(electra), *options)
    assert result.code in (1, 2) and message in result.err
    assert [path.name for path in electra.parent.iterdir()] == ["electra"]
