"""DeBERTa-v2 and -v3: heads as published, attention with relative positions, cuts of its projections."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, DebertaV2ForMaskedLM

from biosqueeze.errors import SqueezeError
from biosqueeze.models.cuts.depth import keep_layers
from biosqueeze.models.cuts.width import Widths, narrow
from biosqueeze.models.families import NO_LIMIT, longest_input, takes_token_types
from biosqueeze.models.heads import mlm_logits
from biosqueeze.models.hooks import PARTS, HiddenStateHooks
from biosqueeze.models.loading.load import load_model
from biosqueeze.models.verify import TOLERANCE
from tests import pico
from tests.layouts import edit_json, opened


def save_older(path, head="mlm", **changes):
    """A pico model with the config of DeBERTa-v2 instead of -v3's."""
    tokenizer = pico.tokenizer_of("deberta-v2")
    config = pico.config_of("deberta-v2", len(tokenizer))
    for key, value in (pico.DEBERTA_V2 | changes).items():
        setattr(config, key, value)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = DebertaV2ForMaskedLM(config) if head == "mlm" else AutoModel.from_config(config)
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def logits(model):
    with torch.no_grad():
        return model.eval()(**pico.padded_batch(model))[0]


def as_published(path, *, discriminator):
    """Rewrite a checkpoint as Microsoft's: the head `lm_predictions`, no class, no key of transformers."""
    edit_json(path / "config.json", drop=("architectures", "legacy"), attention_head_size=8)
    if discriminator:
        tensors = load_file(path / "model.safetensors")
        tensors |= {f"mask_predictions.{name}": torch.zeros(2, 3) for name in ("dense.weight", "classifier.weight")}
        save_file(tensors, path / "model.safetensors")
    return opened(path)


def test_published_language_model_head_is_used(tmp_path, capsys):
    path = save_older(tmp_path / "v2")
    expected = logits(DebertaV2ForMaskedLM.from_pretrained(path))
    loaded = load_model(as_published(path, discriminator=False))
    assert loaded.has_head and torch.equal(logits(loaded.model), expected)
    loaded.model.save_pretrained(tmp_path / "again")
    again, info = DebertaV2ForMaskedLM.from_pretrained(tmp_path / "again", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and torch.equal(logits(again), expected)
    states = again.deberta(**pico.padded_batch(again)).last_hidden_state
    assert torch.allclose(mlm_logits(again, states.flatten(0, 1)).unflatten(0, states.shape[:2]), expected, atol=1e-5)
    assert capsys.readouterr().err == ""


def test_head_of_a_discriminator_is_not_taken_for_real(tmp_path, capsys):
    checkpoint = as_published(save_older(tmp_path / "v3"), discriminator=True)
    assert type(load_model(checkpoint).model).__name__ == "DebertaV2Model"
    loaded = load_model(checkpoint, "mlm")
    assert not loaded.has_head and {name.split(".")[0] for name in loaded.missing} == {"cls"}
    assert capsys.readouterr().err == ""


def test_heads_of_another_size_are_refused(tmp_path):
    path = save_older(tmp_path / "v2")
    edit_json(path / "config.json", attention_head_size=16)
    with pytest.raises(SqueezeError, match=r"attention_head_size is 16.*\(32 / 4\) was expected"):
        load_model(opened(path))


def test_lengths_and_token_types_follow_the_config(tmp_path):
    paths = (pico.save("deberta-v2", tmp_path / "v3"), save_older(tmp_path / "v2"))
    newer, older = (load_model(opened(path)).model.config for path in paths)
    assert (longest_input(newer), longest_input(older)) == (NO_LIMIT, pico.POSITIONS)
    assert (takes_token_types(newer), takes_token_types(older)) == (False, True)


@torch.no_grad()
def test_older_model_has_captured_states(tmp_path):
    model = load_model(opened(save_older(tmp_path / "v2", "base"))).model
    hooks = HiddenStateHooks(model, {depth: frozenset(PARTS) for depth in (1, pico.LAYERS)})
    batch = pico.padded_batch(model)
    with hooks.capture() as states:
        outputs = model(**batch, output_hidden_states=True, output_attentions=True)
    real = batch["attention_mask"].bool()
    for depth, parts in states.items():
        assert torch.equal(parts["hidden"], outputs.hidden_states[depth])
        scores = parts["query"] @ parts["key"].mT / 8**0.5 + parts["bias"]
        maps = scores.masked_fill(~real[:, None, None], float("-inf")).softmax(-1).transpose(1, 2)[real]
        assert torch.allclose(maps, outputs.attentions[depth - 1].transpose(1, 2)[real], atol=1e-5)


@pytest.mark.parametrize("widths", [Widths(ffn=40, heads=3), Widths(heads=3, head_size=6), Widths()])
def test_older_model_is_cut(tmp_path, widths):
    model = load_model(opened(save_older(tmp_path / "v2"))).model
    cut = narrow(model, widths)
    assert max(cut.differences.values()) < TOLERANCE
    cut.model.save_pretrained(tmp_path / "cut")
    again, info = DebertaV2ForMaskedLM.from_pretrained(tmp_path / "cut", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    assert torch.equal(logits(again), logits(cut.model))
    assert widths.empty == torch.equal(logits(again), logits(model))
    assert again.config.pooler_hidden_size == again.config.hidden_size


def test_older_model_loses_layers_behind_its_convolution(tmp_path):
    model = load_model(opened(save_older(tmp_path / "v2"))).model
    shallow, difference = keep_layers(model, (1, 3))
    assert difference == 0 and shallow.deberta.encoder.conv is not None
