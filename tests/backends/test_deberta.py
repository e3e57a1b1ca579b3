"""The exported graph of a DeBERTa computes its relative positions for every length."""

import numpy as np
import pytest

from biosqueeze.backends import open_predictor
from biosqueeze.checkpoint import open_checkpoint
from tests import pico


@pytest.mark.slow
def test_graph_equals_torch_at_every_length(exported):
    checkpoint = open_checkpoint(str(exported("deberta-v2", pico.ROWS["deberta-v2"].exported)))
    torch, graph = (open_predictor(checkpoint, spec) for spec in ("torch", "onnxruntime"))
    assert checkpoint.config["position_buckets"] < 10 and checkpoint.config["max_position_embeddings"] < 300
    for length in (1, 7, 24, 60, 300):  # the traced batch has 24
        ids = np.random.default_rng(length).integers(5, checkpoint.config["vocab_size"], (2, length))
        mask = np.ones_like(ids)
        mask[1, length // 2 + 1 :] = 0
        batch = {"input_ids": np.where(mask, ids, 0), "attention_mask": mask}
        expected, actual = (predictor.predict(batch)[mask == 1] for predictor in (torch, graph))
        assert np.allclose(actual, expected, atol=1e-5), length
