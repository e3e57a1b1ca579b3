"""The stage distill with BioBERT as the Hub holds it: weights as .bin, a bare config, and no MLM head."""

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from tests.cli.run import Shell
from tests.metrics_log import read_log
from tests.stages.distilling import QUICK


@pytest.fixture
def biobert(biobert_v11: Path) -> str:
    """The name of an encoder without an MLM head, laid out as it is on the Hub."""
    return "dmis-lab/biobert-v1.1"


def test_biobert_with_pytorch_weights(biobert: str, text: Path, shell: Shell) -> None:
    result = shell("distill --teacher", biobert, "--student", "tiny", "--corpus", text, "--steps", 2, *QUICK)
    assert result.code == 0, result.err
    assert result.path == "biobert-v1.1-tiny"
    assert "has no masked-language-model head" in result.err
    assert "v1.2" in result.err
    assert "cased" in result.err
    assert "fitting a head to dmis-lab/biobert-v1.1, the encoder frozen" in result.err
    assert "2 steps; the decoder is" in result.err  # no more than the distillation takes
    assert set(read_log(Path(result.path))[-1]) >= {"embedding", "hidden", "soft"}
    tokenizer = AutoTokenizer.from_pretrained(result.path)
    assert tokenizer.tokenize("BRCA") == ["BRCA"]


def test_dry_run_prints_the_losses_without_a_head(biobert: str, text: Path, shell: Shell) -> None:
    result = shell("distill --dry-run --json --student compact --teacher", biobert, "--corpus", text)
    assert result.code == 0, result.err
    fitting, losses, _ = json.loads(result.out)["steps"]
    assert "lacks: at most 2,000 steps" in fitting
    assert "(mlm: 1 mlm + 3 hidden-cosine + 3 attention-kl-mean + 5 kl," in losses
    assert "--fit-head sets their number; without kl: --loss mlm=1 --loss hidden-cosine=3" in result.err
    other = shell("distill --dry-run --json --student bert-mini --teacher", biobert, "--corpus", text)
    assert "(mlm: 2 mlm + 1 cosine," in json.loads(other.out)["steps"][0]
    assert "--fit-head 2000, or a teacher with the head (for BioBERT: dmis-lab/biobert-base-cased-v1.2)" in other.err
    words = ("distill --dry-run --json --student tiny --teacher", biobert, "--corpus", text, "--fit-head", 9)
    fitted = shell(*words)
    assert "1 embedding + 1 hidden + 1 soft" in json.loads(fitted.out)["steps"][1]


def test_kl_from_a_headless_teacher_raises(biobert: str, text: Path, shell: Shell) -> None:
    result = shell("distill --teacher", biobert, "--student", "tiny", "--corpus", text, "--loss", "kl=1", "--out", "x")
    assert result.code == 1
    assert "would give random distributions" in result.err
    assert not Path("x.partial").exists()
