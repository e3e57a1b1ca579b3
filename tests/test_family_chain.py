"""Fine-tune, shrink and distil: every step of a family writes a model that stock transformers loads completely."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForTokenClassification

from tests import pico
from tests.cli.run import Shell

# Families with a vocabulary of another kind than BERT's.
FAMILIES = ("modernbert", "eurobert", "longformer")
QUICK = ("--precision", "fp32", "--batch-size", "8", "--max-length", "48", "--steps", "3")


@pytest.fixture(scope="module")
def tags(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write sentences in which words ending in `ma` are diseases."""
    folder = tmp_path_factory.mktemp("tags")
    for split, seed in (("train", 1), ("dev", 2), ("test", 3)):
        rows = []
        for sentence in pico.sentences(16, seed=seed):
            words = sentence.rstrip(".").split()
            rows += [f"{word}\t{'B-Disease' if word.lower().endswith('ma') else 'O'}" for word in words] + [""]
        (folder / f"{split}.tsv").write_text("\n".join(rows))
    return folder


@pytest.fixture
def step(shell: Shell, tags: Path) -> Callable[..., Path]:
    """`step("finetune", MODEL, out="tuned")` runs a stage; stock transformers must load the result."""

    def run(*words: Any, out: str) -> Path:
        trains = words[0] in ("finetune", "distill")
        result = shell(*words, *(("--data", tags, *QUICK) if trains else ()), "--out", out)
        assert result.code == 0, result.err
        _, info = AutoModelForTokenClassification.from_pretrained(result.path, output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
        return Path(result.path)

    return run


@pytest.mark.parametrize("family", FAMILIES)
def test_task_model_through_all_steps(family, step, shell, pico_bert, tmp_path):
    source = pico.save(family, tmp_path / "source")
    tuned = step("finetune", source, out="tuned")
    cut = step("shrink", tuned, "--layers", "0,1,3", "--ffn", 40, "--heads", 2, out="cut")
    distilled = step("distill", cut, "--teacher", tuned, out="distilled")
    across = step("distill", pico_bert, "--teacher", tuned, out="across")
    step("distill", source, "--teacher", across, out="back")
    result = shell("evaluate", distilled, "--json")
    assert result.code == 0, result.err
