"""Heads that a checkpoint has, lacks, or has in another form than config.json says."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from biosqueeze.errors import SqueezeError
from biosqueeze.models.loading.load import load_model
from tests import pico
from tests.layouts import edit_json, opened


def test_classifier_for_other_labels_is_dropped(pico_ner):
    same = load_model(opened(pico_ner), "token-classification", labels=pico.LABELS)
    other = load_model(opened(pico_ner), "token-classification", labels=("O", "B-Gene", "I-Gene"))
    assert same.has_head and not other.has_head
    assert other.model.config.id2label == {0: "O", 1: "B-Gene", 2: "I-Gene"}
    more = load_model(opened(pico_ner), "token-classification", labels=("O", "B-A", "I-A", "B-B", "I-B"))
    assert more.model.classifier.out_features == 5


@pytest.mark.parametrize("name", ["classifier.weight", "classifier.bias"])
def test_a_number_in_place_of_the_classifier_is_an_error(pico_ner, copy_of, name):
    path = copy_of(pico_ner)
    tensors = load_file(path / "model.safetensors") | {name: torch.tensor(1.0)}
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    with pytest.raises(SqueezeError, match=f"{name} is a single number in the weights"):
        load_model(opened(path), "token-classification", labels=pico.LABELS[::-1])


def test_missing_head_gives_a_warning(tmp_path, capsys):
    path = pico.save("bert", tmp_path / "model", head="base")
    edit_json(path / "config.json", architectures=["BertForMaskedLM"])
    assert type(load_model(opened(path)).model).__name__ == "BertModel"
    assert "no such head" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("named", "head", "found"),
    [
        ("BertForTokenClassification", "mlm", "BertForMaskedLM"),
        ("BertForMaskedLM", "token-classification", "BertForTokenClassification"),
    ],
)
def test_head_of_another_sort_than_that_in_the_config(tmp_path, capsys, named, head, found):
    path = pico.save("bert", tmp_path / "model", head=head)
    edit_json(path / "config.json", architectures=[named])
    loaded = load_model(opened(path))
    assert type(loaded.model).__name__ == found and loaded.has_head
    assert f"says {named}, but its weights have no such head; using {found}" in capsys.readouterr().err


def test_untied_decoder_stays_untied(tmp_path):
    path = pico.save("bert", tmp_path / "model")
    tensors = load_file(path / "model.safetensors")
    tensors["cls.predictions.decoder.weight"] = torch.randn_like(tensors["bert.embeddings.word_embeddings.weight"])
    tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()
    save_file(tensors, path / "model.safetensors")
    edit_json(path / "config.json", tie_word_embeddings=False)
    model = load_model(opened(path)).model
    assert torch.equal(model.get_output_embeddings().weight, tensors["cls.predictions.decoder.weight"])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("family", "decoder"),
    [
        ("bert", "cls.predictions.decoder.weight"),
        ("roberta", "lm_head.decoder.weight"),
        ("electra", "generator_lm_head.weight"),
    ],
)
def test_decoder_that_differs_from_the_embedding_is_kept(tmp_path, family, decoder, capsys):
    path = pico.save(family, tmp_path / "model", head="mlm")
    tensors = load_file(path / "model.safetensors")
    tensors[decoder] = torch.randn_like(tensors[f"{family}.embeddings.word_embeddings.weight"])
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    loaded = load_model(opened(path))
    assert loaded.has_head and torch.equal(loaded.model.get_output_embeddings().weight, tensors[decoder])
    assert loaded.model.config.tie_word_embeddings is False
    assert "its decoder differs from its embedding" in capsys.readouterr().err
    stock = type(loaded.model).from_pretrained(path).eval()
    batch = pico.padded_batch(stock)
    assert torch.equal(loaded.model(**batch).logits, stock(**batch).logits)


@pytest.mark.parametrize(("family", "head"), [("bert", "cls.predictions"), ("roberta", "lm_head")])
def test_bias_of_an_untied_decoder_is_that_of_transformers_4(tmp_path, family, head):
    path = pico.save(family, tmp_path / "model")
    tensors = load_file(path / "model.safetensors")
    tensors[f"{head}.decoder.weight"] = torch.randn_like(tensors[f"{family}.embeddings.word_embeddings.weight"])
    bias = tensors[f"{head}.bias"]
    assert f"{head}.decoder.bias" not in tensors
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    edit_json(path / "config.json", tie_word_embeddings=False)
    loaded = load_model(opened(path))
    assert loaded.has_head and torch.equal(loaded.model.get_output_embeddings().bias, bias)
