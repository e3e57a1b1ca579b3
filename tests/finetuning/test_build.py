"""The learner of a fine-tuning has what its options say."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.data.output_types import TOKENS
from biosqueeze.finetuning.build import build_fine_tuner
from biosqueeze.finetuning.layer_decay import layered_groups
from biosqueeze.finetuning.options import FineTuningOptions
from biosqueeze.models.custom_heads.load import build_headed_encoder
from tests import pico
from tests.training import runs


@pytest.mark.parametrize("name", ["bilstm", "crf"])
def test_custom_heads_have_the_whole_rate(name: str, pico_bert: Path) -> None:
    model = build_headed_encoder(open_checkpoint(str(pico_bert)), name, pico.LABELS, seed=0)
    groups = layered_groups(model, model, 0.01, 1e-3, 0.5)
    rate = {id(p): group["lr"] for group in groups for p in group["params"]}
    assert {rate[id(p)] for p in model.head.parameters()} == {1e-3}
    assert rate[id(model.base_model.embeddings.word_embeddings.weight)] == 1e-3 * 0.5 ** (pico.LAYERS + 1)


def test_head_loss_and_reinit_reach_the_learner(pico_bert: Path) -> None:
    model = build_headed_encoder(open_checkpoint(str(pico_bert)), "bilstm", pico.LABELS, seed=0)
    before = model.base_model.encoder.layer[3].output.dense.weight.clone()
    loss: Callable[..., Tensor] = lambda logits, batch: torch.tensor(7.0)  # noqa: E731
    learner = build_fine_tuner(FineTuningOptions(reinit_layers=1), model, TOKENS, runs.windows(), loss)
    assert not torch.equal(model.base_model.encoder.layer[3].output.dense.weight, before)
    batch = pico.padded_batch(model)
    assert float(learner(**batch, labels=torch.zeros_like(batch["input_ids"]))["labels"]) == 7.0
