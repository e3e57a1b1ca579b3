"""Linear layers with outliers in their input are divided without a change of outputs; static int8 profits from it."""

import copy

import numpy as np
import onnxruntime as ort
import pytest
import torch
import transformers

from biosqueeze.backends.parity import random_batches
from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.quantizers import QuantizationJob, inc_static
from biosqueeze.quantizers.divided_linears import DividedLinear, divide_linears
from tests import pico

OUTLIER = 5  # a channel


@pytest.fixture
def model(exported):
    """A tagger, one channel of the states that the feed-forward network reads 50 times as large."""
    made = transformers.AutoModelForTokenClassification.from_pretrained(exported("bert", "token-classification"))
    layer = made.bert.encoder.layer[0]
    with torch.no_grad():
        layer.attention.output.LayerNorm.weight[OUTLIER] *= 50
    return made.eval()


def batches(model, count=3):
    return [batch for seed in range(count) for batch in random_batches(model.config.vocab_size, 32, 0, seed=seed)]


def test_outputs_stay_and_shared_inputs_too(model) -> None:
    divided = copy.deepcopy(model)
    count = divide_linears(divided, batches(model), ("classifier",))
    replaced = [name for name, module in divided.named_modules() if isinstance(module, DividedLinear)]
    assert count == len(replaced)
    assert "bert.encoder.layer.0.intermediate.dense" in replaced
    assert not any(name.endswith(("query", "key", "value", "classifier")) for name in replaced)
    batch = pico.padded_batch(model)
    with torch.no_grad():
        torch.testing.assert_close(divided(**batch).logits, model(**batch).logits, atol=1e-4, rtol=1e-4)
        assert divided(**batch).logits.ne(model(**batch).logits).any()


def test_a_layer_that_is_left_out_stays(model) -> None:
    names = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    assert divide_linears(model, batches(model), names) == 0
    assert not any(isinstance(module, DividedLinear) for module in model.modules())


@pytest.mark.slow
def test_static_int8_is_nearer_to_float(model, exported, tmp_path, monkeypatch) -> None:
    source = exported("bert", "token-classification")
    model.save_pretrained(tmp_path / "model")
    transformers.AutoTokenizer.from_pretrained(source).save_pretrained(tmp_path / "model")
    checkpoint = open_checkpoint(str(tmp_path / "model"))
    batch = pico.padded_batch(model, 8, 40, seed=3)
    with torch.no_grad():
        expected = model(**batch).logits.numpy()
    feed = {name: tensor.numpy() for name, tensor in batch.items()}
    feed["token_type_ids"] = np.zeros_like(feed["input_ids"])
    errors, divided = [], []
    for looked_at in (8, 0):
        monkeypatch.setattr(inc_static, "_MEASURED_BATCHES", looked_at)
        target = tmp_path / f"{looked_at}.onnx"
        notes = inc_static.quantize(
            QuantizationJob(checkpoint=checkpoint, source=target, target=target, batches=batches(model, 8))
        )
        session = ort.InferenceSession(target, providers=["CPUExecutionProvider"])
        actual = session.run(None, {item.name: feed[item.name] for item in session.get_inputs()})[0]
        real = feed["attention_mask"] == 1
        errors.append(np.abs(actual - expected)[real].mean())
        divided.append(notes["inputs_divided_by_channel"])
    assert divided[0] >= 1
    assert divided[1] == 0
    assert errors[0] < 0.7 * errors[1]
