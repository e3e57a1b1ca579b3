"""Facts read from a model's files without torch."""

import json
import struct
from pathlib import Path

import pytest
import transformers

from biosqueeze import model_facts
from biosqueeze.errors import SqueezeError
from tests import pico


def test_parameters_by_part_agree_with_torch(pico_any: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForMaskedLM, AutoModelForPreTraining

    shapes = model_facts.tensor_shapes(pico_any / "model.safetensors")
    counts = model_facts.count_by_part(shapes, json.loads((pico_any / "config.json").read_text()))
    auto = AutoModelForPreTraining if "electra" in pico_any.name else AutoModelForMaskedLM
    model = auto.from_pretrained(pico_any)
    assert counts["total"] == sum(p.numel() for p in model.parameters())
    assert all(counts[part] > 0 for part in model_facts.PARTS)
    base = model.base_model
    assert counts["embeddings"] == sum(
        p.numel()
        for name, p in base.named_parameters()
        if name.removeprefix("encoder.").startswith(("embed", "rel_embeddings", "LayerNorm"))  # DeBERTa's relative
    )


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_saved_copies_of_tied_parameters_do_not_count(family: str) -> None:
    config = pico.config_of(family, 100)
    config.tie_word_embeddings = True
    model = getattr(transformers, pico.class_of(family, "mlm"))(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}  # with the tied ones
    counts = model_facts.count_by_part(shapes, {"model_type": family})
    assert counts["total"] == sum(p.numel() for p in model.parameters())
    more = model_facts.count_by_part(shapes, {"model_type": family, "tie_word_embeddings": False})
    assert more["head"] - counts["head"] >= model.get_output_embeddings().weight.numel()


def test_truncated_safetensors_are_refused(pico_bert: Path, tmp_path: Path) -> None:
    whole = (pico_bert / "model.safetensors").read_bytes()
    for size in (4, 100, len(whole) - 10):
        (tmp_path / "cut.safetensors").write_bytes(whole[:size])
        with pytest.raises(SqueezeError, match="damaged or cut short"):
            model_facts.tensor_shapes(tmp_path / "cut.safetensors")


@pytest.mark.parametrize("header", [b"[]", b"{", b'{"a": 1}', b"\xff\xfe"])
def test_damaged_safetensors_headers_are_refused(header: bytes, tmp_path: Path) -> None:
    file = tmp_path / "damaged.safetensors"
    file.write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(SqueezeError, match="damaged or cut short"):
        model_facts.tensor_shapes(file)
