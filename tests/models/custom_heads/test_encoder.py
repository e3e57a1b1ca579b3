"""Encoders with custom heads: saved, loaded, counted, and compared with plain PyTorch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModel, AutoModelForTokenClassification

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.model_facts import HEAD_FILE, HEAD_MARK
from biosqueeze.models.custom_heads.crf import LEARNING_RATE_FACTOR
from biosqueeze.models.custom_heads.encoder import HeadedEncoder
from biosqueeze.models.custom_heads.files import check_custom_head, saved_decoding_parameters, task_head_in
from biosqueeze.models.custom_heads.load import (
    build_headed_encoder,
    count_headed_parameters,
    custom_head_of,
    decoding_parameters,
    load_headed_encoder,
)
from biosqueeze.models.custom_heads.specs import HEAD_SPECS
from biosqueeze.models.loading.load import load_config
from biosqueeze.tasks import Formulation
from tests import pico
from tests.manifests import write_manifest

LABELS = ("O", "B-Disease", "I-Disease")
RELATIONS = ("none", "inhibits")
TAGGERS, RELATION_HEADS = ("crf", "bilstm"), ("mentions", "entity-starts")
ALL = (*TAGGERS, *RELATION_HEADS)


def build(source: Path, name: str, seed: int = 0) -> HeadedEncoder:
    labels = LABELS if name in TAGGERS else RELATIONS
    return build_headed_encoder(Checkpoint(source, source.name), name, labels, seed)


def shifted(model: HeadedEncoder) -> HeadedEncoder:
    """Add random numbers to all parameters of the head, so that a lost one shows."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.head.parameters():
            parameter += torch.randn_like(parameter)
    return model


def batch_of(model: HeadedEncoder) -> dict[str, Tensor]:
    batch = pico.padded_batch(model.encoder)
    if model.extra_inputs:
        entities = torch.zeros_like(batch["input_ids"])
        entities[:, 2:4], entities[:, 4], entities[:, 6:8] = 1, 3, 2
        batch["entities"] = entities * batch["attention_mask"]
    return batch


@pytest.mark.parametrize("name", ALL)
def test_saved_head_loads_unchanged(name: str, pico_any: Path, tmp_path: Path) -> None:
    model = shifted(build(pico_any, name))
    model.save_pretrained(tmp_path)
    saved = Checkpoint(tmp_path, "saved")
    loaded = load_headed_encoder(saved)
    assert saved.custom_head == name
    assert task_head_in(saved) == HEAD_SPECS[name].task_head
    batch = batch_of(model)
    assert torch.equal(loaded(**batch).logits, model(**batch).logits)
    state, again = model.state_dict(), loaded.state_dict()
    assert list(state) == list(again) and all(torch.equal(state[key], again[key]) for key in state)


@pytest.mark.parametrize("name", ALL)
def test_encoder_beside_a_head_is_a_stock_model(name: str, pico_any: Path, tmp_path: Path) -> None:
    model = build(pico_any, name)
    model.save_pretrained(tmp_path)
    stock = AutoModelForTokenClassification if name == "crf" else AutoModel
    loaded, report = stock.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    assert type(loaded) is type(model.encoder)
    batch = pico.padded_batch(model.encoder)
    assert torch.equal(loaded.eval()(**batch)[0], model.encoder(**batch)[0])
    assert tuple(loaded.config.id2label.values()) == (LABELS if name in TAGGERS else RELATIONS)


@pytest.mark.parametrize("name", ALL)
def test_padding_changes_no_logits(name: str, pico_bert: Path) -> None:
    model = shifted(build(pico_bert, name))
    batch = batch_of(model)
    together = model(**batch).logits
    for row, length in enumerate(batch["attention_mask"].sum(dim=1).tolist()):
        alone = model(**{key: values[row : row + 1, :length] for key, values in batch.items()}).logits[0]
        actual = together[row, :length] if name in TAGGERS else together[row]
        assert torch.allclose(actual, alone, atol=1e-5)


@pytest.mark.parametrize("name", ["bilstm", *RELATION_HEADS])
def test_hidden_states_of_padding_are_not_used(name: str, pico_bert: Path) -> None:
    model = shifted(build(pico_bert, name))
    batch = batch_of(model)
    mask, entities = batch["attention_mask"], batch.get("entities")
    hidden = torch.randn(*mask.shape, pico.HIDDEN)
    changed = torch.where(mask.bool().unsqueeze(-1), hidden, 1e6)
    outputs = [model.head(states, mask, entities) for states in (hidden, changed)]
    if name in TAGGERS:
        outputs = [logits[mask.bool()] for logits in outputs]
    assert torch.equal(*outputs)


def test_bilstm_equals_torch_on_each_sentence_alone(pico_bert: Path) -> None:
    model = shifted(build(pico_bert, "bilstm"))
    head, batch = model.head, batch_of(model)
    assert (head.lstm.hidden_size, head.lstm.bidirectional, head.lstm.num_layers) == (pico.HIDDEN // 2, True, 1)
    plain = torch.nn.LSTM(pico.HIDDEN, pico.HIDDEN // 2, batch_first=True, bidirectional=True)
    plain.load_state_dict(head.lstm.state_dict())
    hidden = model.encoder(**batch)[0]
    logits = model(**batch).logits
    for row, length in enumerate(batch["attention_mask"].sum(dim=1).tolist()):
        states = plain(hidden[row, :length])[0]
        assert torch.allclose(logits[row, :length], head.classifier(states), atol=1e-6)


@pytest.mark.parametrize("name", RELATION_HEADS)
def test_relation_logits_from_its_two_mentions(name: str, pico_bert: Path) -> None:
    model = shifted(build(pico_bert, name))
    batch = batch_of(model)
    hidden, logits = model.encoder(batch["input_ids"], batch["attention_mask"])[0], model(**batch).logits
    for row, entities in enumerate(batch["entities"]):
        pair = []
        for bit in (1, 2):
            places = [place for place, bits in enumerate(entities.tolist()) if bits & bit]
            chosen = places if name == "mentions" else places[:1]
            pair.append(torch.stack([hidden[row, place] for place in chosen]).max(dim=0).values)
        assert torch.allclose(logits[row], model.head.classifier(torch.cat(pair)), atol=1e-5)


@pytest.mark.parametrize("name", ["bilstm", *RELATION_HEADS])
def test_dropout_comes_from_the_config(name: str, pico_any: Path) -> None:
    config = load_config(Checkpoint(pico_any, "source"))
    make = HEAD_SPECS[name].build
    if config.model_type == "distilbert":
        config.dropout, config.seq_classif_dropout = 0.21, 0.43
        assert make(config, 2).dropout.p == (0.21 if name == "bilstm" else 0.43)
        return
    if config.model_type in ("albert", "modernbert"):  # whose own keys have a default
        setattr(config, {"albert": "classifier_dropout_prob"}.get(config.model_type, "classifier_dropout"), 0.32)
        assert make(config, 2).dropout.p == 0.32
        return
    config.hidden_dropout_prob = 0.21
    assert make(config, 2).dropout.p == 0.21
    config.classifier_dropout = 0.0
    assert make(config, 2).dropout.p == 0.0


@pytest.mark.parametrize("name", ["bilstm", *RELATION_HEADS])
def test_new_head_depends_on_the_seed_alone(name: str, pico_bert: Path) -> None:
    state = torch.get_rng_state()
    first, same, second = (build(pico_bert, name, seed).head.state_dict() for seed in (1, 1, 2))
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(first[key], same[key]) for key in first)
    assert not torch.equal(first["classifier.weight"], second["classifier.weight"])


@pytest.mark.parametrize("name", ALL)
def test_head_is_kept_for_the_same_labels_only(name: str, pico_bert: Path, tmp_path: Path) -> None:
    model = shifted(build(pico_bert, name))
    model.save_pretrained(tmp_path)
    labels = LABELS if name in TAGGERS else RELATIONS
    kept, fresh = (build_headed_encoder(Checkpoint(tmp_path, "x"), name, ids, 0) for ids in (labels, labels[::-1]))
    assert all(torch.equal(value, kept.head.state_dict()[key]) for key, value in model.head.state_dict().items())
    assert any(not torch.equal(value, fresh.head.state_dict()[key]) for key, value in model.head.state_dict().items())


@pytest.mark.parametrize("name", ["bilstm", *RELATION_HEADS])
def test_every_trainable_weight_gets_a_gradient(name: str, pico_any: Path) -> None:
    model = build(pico_any, name).train()
    batch = batch_of(model)
    if model.config.model_type in ("bert", "electra"):
        batch["token_type_ids"] = torch.zeros_like(batch["input_ids"])
    model(**batch).logits.sum().backward()
    unused = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    if model.config.model_type == "longformer" and name == "bilstm":  # a tagger has no tokens with global attention
        unused = [n for n in unused if "_global." not in n]
    assert unused == []


@pytest.mark.parametrize("name", ALL)
def test_parameters_are_counted_without_weights(name: str, pico_any: Path) -> None:
    model = build(pico_any, name)
    counted = count_headed_parameters(Checkpoint(pico_any, "x"), name, model.config.num_labels)
    assert counted == sum(parameter.numel() for parameter in model.parameters())


def test_decoding_parameters_of_model_and_file(pico_bert: Path, tmp_path: Path) -> None:
    model = shifted(build(pico_bert, "crf"))
    model.save_pretrained(tmp_path)
    in_memory, stored = decoding_parameters(model), saved_decoding_parameters(Checkpoint(tmp_path, "x"))
    assert {n: v.shape for n, v in in_memory.items()} == {"transitions": (3, 3), "start": (3,), "end": (3,)}
    assert all(np.array_equal(in_memory[name], stored[name]) for name in in_memory)
    assert np.array_equal(in_memory["start"], model.head.start.detach().numpy() * LEARNING_RATE_FACTOR)
    assert decoding_parameters(build(pico_bert, "bilstm")) == decoding_parameters(model.encoder) == {}
    assert saved_decoding_parameters(Checkpoint(pico_bert, "stock")) == {}


@pytest.mark.parametrize(
    ("form", "name"),
    [
        (Formulation(), None),
        (Formulation(tagger="crf"), "crf"),
        (Formulation(tagger="bilstm", label_all_pieces=True), "bilstm"),
        (Formulation(representation="entity-starts"), "entity-starts"),
    ],
)
def test_custom_head_of_a_formulation(form: Formulation, name: str | None) -> None:
    assert custom_head_of(form) == name


def test_crf_over_sub_words_is_an_error() -> None:
    with pytest.raises(UsageError, match="--label-all-pieces cannot go with it"):
        custom_head_of(Formulation(tagger="crf", label_all_pieces=True))


@pytest.mark.parametrize(("name", "flag"), [("bilstm", "--tagger linear"), ("mentions", "--representation cls")])
def test_stage_without_support_for_the_head_fails(name: str, flag: str, pico_bert: Path, tmp_path: Path) -> None:
    build(pico_bert, name).save_pretrained(tmp_path)
    with pytest.raises(SqueezeError, match=f"{name} head.*export does not support.*biosqueeze finetune x {flag}"):
        check_custom_head(Checkpoint(tmp_path, "x"), "export", allowed=("crf",))
    check_custom_head(Checkpoint(pico_bert, "stock"), "export")


def test_head_file_damaged_or_of_another_model(pico_bert: Path, tmp_path: Path) -> None:
    build(pico_bert, "crf").save_pretrained(tmp_path)
    file, saved = tmp_path / HEAD_FILE, Checkpoint(tmp_path, "x")
    tensors, whole = load_file(file), file.read_bytes()
    save_file({**tensors, "start": torch.zeros(7)}, file, {HEAD_MARK: "crf"})
    with pytest.raises(SqueezeError, match="does not fit the encoder and its 3 labels"):
        load_headed_encoder(saved)
    with pytest.raises(SqueezeError, match="not a CRF of 3 labels"):
        saved_decoding_parameters(saved)
    save_file(tensors, file, {HEAD_MARK: "quantum"})
    with pytest.raises(SqueezeError, match="'quantum', which this version does not know"):
        load_headed_encoder(Checkpoint(tmp_path, "x"))
    file.write_bytes(whole[:-8])
    with pytest.raises(SqueezeError, match="damaged or cut short"):
        _ = Checkpoint(tmp_path, "x").custom_head
    with pytest.raises(SqueezeError, match="damaged or cut short"):
        load_headed_encoder(saved)


def test_missing_crf_is_an_error(pico_ner: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((pico_ner / "config.json").read_text())
    write_manifest(tmp_path, task={"name": "ner", "formulation": {"tagger": "crf"}})
    with pytest.raises(SqueezeError, match=r"fine-tuned with a CRF, which should be in head\.safetensors"):
        saved_decoding_parameters(Checkpoint(tmp_path, "x"))


def test_head_is_known_without_the_float_weights(pico_bert: Path, tmp_path: Path) -> None:
    """As in an output of quantize --slim: the head's own file holds no names of the encoder's tensors."""
    build(pico_bert, "crf").save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert task_head_in(Checkpoint(tmp_path, "x")) == "token-classification"


def test_head_file_of_another_program_is_ignored(pico_bert: Path, tmp_path: Path) -> None:
    build(pico_bert, "bilstm").save_pretrained(tmp_path)
    save_file({"something": torch.zeros(2)}, tmp_path / HEAD_FILE)
    saved = Checkpoint(tmp_path, "x")
    assert saved.custom_head is None
    assert [path.name for path in saved.weights] == ["model.safetensors"]
    assert task_head_in(saved) == "base"
    with pytest.raises(SqueezeError, match=r"has no head\.safetensors"):
        load_headed_encoder(saved)


def test_weights_hash_includes_the_head(pico_bert: Path, tmp_path: Path) -> None:
    hashes = []
    for move in (False, True):
        model = build(pico_bert, "bilstm")
        (shifted(model) if move else model).save_pretrained(tmp_path)
        hashes.append(Checkpoint(tmp_path, "x").weights_sha256())
    assert hashes[0] != hashes[1]
