"""Checkpoints load in all layouts of the Hub, or fail with a one-line message."""

import json
import os
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AlbertForPreTraining,
    AutoModel,
    AutoTokenizer,
    ErnieConfig,
    ErnieForMaskedLM,
    NystromformerConfig,
    NystromformerForMaskedLM,
)

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.models.families import FAMILIES, family_of
from biosqueeze.models.loading.family_signs import infer_family
from biosqueeze.models.loading.load import load_config, load_model, load_tokenizer, new_model
from tests import pico
from tests.layouts import edit_json, opened, to_bin


def hidden(model):
    return pico.last_hidden(model, pico.padded_batch(model))


def add_tokenizer_file(path, family):
    """Add the old tokenizer file by which families with the same tensors are told apart."""
    name = {"roberta": "merges.txt", "xlm-roberta": "sentencepiece.bpe.model"}.get(family)
    if name:
        (path / name).touch()


@pytest.mark.parametrize(("family", "head"), [(f, h) for f in pico.FAMILIES for h in pico.HEADS_OF[f]])
def test_every_head_loads(tmp_path, family, head):
    checkpoint = opened(pico.save(family, tmp_path / "model", head=head))
    loaded = load_model(checkpoint)
    reference = AutoModel.from_pretrained(checkpoint.path)
    assert type(loaded.model).__name__ == checkpoint.config["architectures"][0]
    assert loaded.has_head and not loaded.missing
    assert not loaded.model.training and loaded.model.dtype == torch.float32
    whole = type(loaded.model).from_pretrained(checkpoint.path).state_dict()
    assert loaded.model.state_dict().keys() == whole.keys()
    assert all(torch.equal(tensor, whole[name]) for name, tensor in loaded.model.state_dict().items())
    tied = loaded.model.all_tied_weights_keys.items()
    assert all(loaded.model.get_parameter(name) is loaded.model.get_parameter(other) for name, other in tied)
    if (family, head) != ("longformer", "sequence-classification"):  # which gives the first token global attention
        assert torch.equal(hidden(loaded.model), hidden(reference))


# The classifiers of ModernBERT have the same names, whatever they classify.
_ONE_NAME = [("modernbert", head) for head in ("sequence-classification", "question-answering")]


@pytest.mark.parametrize(
    ("family", "head"), [(f, h) for f in pico.FAMILIES for h in pico.HEADS_OF[f] if (f, h) not in _ONE_NAME]
)
def test_family_and_head_are_inferred_from_names(tmp_path, family, head):
    labels = pico.LABELS if head == "token-classification" else ("no", "yes", "maybe")
    path = pico.save(family, tmp_path / "model", head=head, labels=labels)
    loaded = load_model(opened(path))
    add_tokenizer_file(path, family)
    edit_json(path / "config.json", drop=("model_type", "architectures"))
    again = load_model(opened(path))
    assert type(again.model) is type(loaded.model)
    assert again.has_head
    assert torch.equal(hidden(again.model), hidden(loaded.model))


def test_modernbert_config_of_transformers_4(tmp_path):
    path = pico.save("modernbert", tmp_path / "model")
    model = load_model(opened(path)).model
    old = {"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
    edit_json(path / "config.json", drop=("layer_types", "rope_parameters"), **old, reference_compile=True)
    again = load_model(opened(path)).model
    assert again.config.layer_types == model.config.layer_types
    assert torch.equal(hidden(again), hidden(model))
    again.save_pretrained(tmp_path / "saved")
    assert "reference_compile" not in (tmp_path / "saved" / "config.json").read_text()


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_family_of_names_without_prefix(tmp_path, family):
    path = pico.save(family, tmp_path / "model", head="base")
    add_tokenizer_file(path, family)
    edit_json(path / "config.json", drop=("model_type", "architectures", "type_vocab_size"))
    assert load_config(opened(path)).model_type == family


@pytest.mark.parametrize(("family", "key"), [("albert", "num_hidden_groups"), ("mobilebert", "intra_bottleneck_size")])
def test_family_by_the_config_alone(family, key):
    assert infer_family((), {key: 1, "embedding_size": 16}, ()) == family


def test_pretrained_albert_with_both_heads(tmp_path, capsys):
    model = AlbertForPreTraining(pico.config_of("albert", 200)).eval()
    model.save_pretrained(tmp_path)
    checkpoint = opened(tmp_path)
    assert type(load_model(checkpoint).model).__name__ == "AlbertForPreTraining"
    loaded = load_model(checkpoint, "mlm")
    batch = pico.padded_batch(model)
    assert loaded.has_head and torch.equal(loaded.model(**batch)[0], model(**batch)[0])
    edit_json(tmp_path / "config.json", drop=("architectures",))
    assert type(load_model(checkpoint).model).__name__ == "AlbertForPreTraining"
    assert capsys.readouterr().err == ""


def test_biobert_v11_in_the_hub_layout(biobert_v11, capsys):
    checkpoint = open_checkpoint("dmis-lab/biobert-v1.1")
    loaded = load_model(checkpoint)
    assert type(loaded.model).__name__ == "BertModel"
    assert torch.equal(hidden(loaded.model), hidden(AutoModel.from_pretrained(biobert_v11)))
    tokenizer = load_tokenizer(checkpoint)
    assert tokenizer.tokenize("BRCA1") == ["BRCA", "##1"]
    output = capsys.readouterr().err
    assert "capitals" in output and "bert" in output


def test_biobert_v11_has_no_mlm_head(biobert_v11):
    loaded = load_model(open_checkpoint("dmis-lab/biobert-v1.1"), "mlm")
    assert not loaded.has_head
    assert all(name.startswith("cls.predictions.") for name in loaded.missing)


def test_mlm_head_is_detected(pico_bert):
    loaded = load_model(opened(pico_bert), "mlm")
    assert loaded.has_head
    tied = loaded.model.get_output_embeddings().weight
    assert tied is loaded.model.get_input_embeddings().weight


def test_electra_discriminator_has_no_mlm_head(pico_electra):
    assert not load_model(opened(pico_electra), "mlm").has_head


def test_new_head_depends_on_the_seed(pico_bert):
    def classifier(seed):
        return load_model(opened(pico_bert), "token-classification", labels=pico.LABELS, seed=seed).model.classifier

    state = torch.get_rng_state()
    assert torch.equal(classifier(1).weight, classifier(1).weight)
    assert not torch.equal(classifier(1).weight, classifier(2).weight)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("zipped", [True, False])
def test_bin_files_old_and_new(pico_bert, copy_of, zipped):
    path = copy_of(pico_bert)
    to_bin(path, load_file(path / "model.safetensors"), zipped=zipped)
    assert torch.equal(hidden(load_model(opened(path)).model), hidden(load_model(opened(pico_bert)).model))


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_shards(pico_bert, copy_of, suffix):
    path = copy_of(pico_bert)
    tensors = sorted(load_file(path / "model.safetensors").items())
    (path / "model.safetensors").unlink()
    stem = "model" if suffix == "safetensors" else "pytorch_model"
    files = [f"{stem}-0000{i}-of-00002.{suffix}" for i in (1, 2)]
    save = save_file if suffix == "safetensors" else torch.save
    for file, part in zip(files, (tensors[::2], tensors[1::2]), strict=True):
        save(dict(part), path / file)
    index = {"weight_map": {name: files[i % 2] for i, (name, _) in enumerate(tensors)}}
    (path / f"{stem}.{suffix}.index.json").write_text(json.dumps(index))
    assert torch.equal(hidden(load_model(opened(path)).model), hidden(load_model(opened(pico_bert)).model))
    (path / files[1]).unlink()
    with pytest.raises(SqueezeError, match=f"lists {files[1]}, which is missing"):
        load_model(opened(path))


class _Code:
    def __reduce__(self):
        return os.system, ("touch pwned",)


@pytest.mark.parametrize("zipped", [True, False])
def test_bin_with_code_is_not_opened(pico_bert, copy_of, tmp_path, monkeypatch, zipped):
    monkeypatch.chdir(tmp_path)
    path = copy_of(pico_bert)
    to_bin(path, {"bert.weight": _Code()}, zipped=zipped)
    with pytest.raises(SqueezeError, match=r"would run code when opened \(it imports \w+\.system\)"):
        load_model(opened(path))
    assert not (tmp_path / "pwned").exists()


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize(
    "content", [b"", b"\x80", b"version https://git-lfs.github.com/spec/v1\n", b"<html>", "pickle"]
)
def test_invalid_bin_files(pico_bert, copy_of, content):
    path = copy_of(pico_bert)
    to_bin(path, {})
    (path / "pytorch_model.bin").write_bytes(pickle.dumps([_Code()]) if content == "pickle" else content)
    with pytest.raises(SqueezeError) as caught:
        load_model(opened(path))
    assert "\n" not in str(caught.value) and "pytorch_model.bin" in str(caught.value)


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9, 0.9999])
@pytest.mark.parametrize("layout", ["safetensors", "zip", "old"])
def test_weights_cut_short(pico_bert, copy_of, layout, kept):
    path = copy_of(pico_bert)
    if layout != "safetensors":
        to_bin(path, load_file(path / "model.safetensors"), zipped=layout == "zip")
    file = next(f for f in path.iterdir() if f.suffix in (".safetensors", ".bin"))
    raw = file.read_bytes()
    file.write_bytes(raw[: int(kept * len(raw))])
    with pytest.raises(SqueezeError, match="damaged or cut short; fetch or copy it again"):
        load_model(opened(path))


def test_bin_without_tensors(pico_bert, copy_of):
    path = copy_of(pico_bert)
    to_bin(path, {"state_dict": {"a": torch.zeros(1)}})
    with pytest.raises(SqueezeError, match="not a state dict"):
        load_model(opened(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 64}, r"by config.json hidden_size is 64, but .* has 32 rows"),
        ({"num_hidden_layers": 5}, "there are 5 layers, but the weights have 4"),
        ({"hidden_size": "wide"}, "hidden_size is a string, an integer was expected"),
        ({"num_attention_heads": 5}, "multiple"),
        ({"hidden_act": "nope"}, "nope"),
        ({"model_type": "deberta"}, "'deberta' are not supported.*bert, roberta, .*mobilebert"),
        ({"architectures": ["BertCrfTagger"]}, "BertCrfTagger.*BertForMaskedLM"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"is_decoder": True}, "decoder"),
    ],
)
def test_invalid_configs(pico_bert, copy_of, changes, message):
    path = copy_of(pico_bert)
    edit_json(path / "config.json", **changes)
    with pytest.raises(SqueezeError, match=message) as caught:
        load_model(opened(path))
    assert "\n" not in str(caught.value)


def test_labels_that_config_json_lacks_are_named(pico_ner, copy_of):
    path = copy_of(pico_ner)
    edit_json(path / "config.json", drop=("id2label", "label2id"))
    with pytest.raises(SqueezeError, match=r"name all its labels, 0 to 2, in id2label of config\.json"):
        load_model(opened(path))


@pytest.mark.parametrize(("kind", "said"), [(torch.int8, "integers"), (torch.float8_e4m3fn, "8-bit floats")])
def test_quantized_weights_are_refused(kind, said, pico_bert, copy_of):
    path, name = copy_of(pico_bert), "bert.encoder.layer.1.output.dense.weight"
    tensors = load_file(path / "model.safetensors")
    save_file(tensors | {name: tensors[name].mul(9).to(kind)}, path / "model.safetensors")
    with pytest.raises(SqueezeError, match=f"{name} holds {said}, so another tool has quantized"):
        load_model(opened(path))


def test_outputs_are_named_whatever_the_config_says(tmp_path):
    path = pico.save("modernbert", tmp_path / "model")
    expected = hidden(load_model(opened(path)).model)
    edit_json(path / "config.json", return_dict=False, use_return_dict=False, output_attentions=True)
    model = load_model(opened(path)).model
    assert model.config.return_dict and torch.equal(hidden(model), expected)
    model.save_pretrained(tmp_path / "saved")


def test_float_weights_are_not_quantized_on_loading(pico_bert, copy_of, tmp_path):
    path = copy_of(pico_bert)
    edit_json(path / "config.json", quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True})
    load_model(opened(path)).model.save_pretrained(tmp_path / "saved")
    assert "quantization_config" not in json.loads((tmp_path / "saved/config.json").read_text())
    AutoModel.from_pretrained(tmp_path / "saved")


def test_pruned_heads_are_named(pico_bert, copy_of):
    path = copy_of(pico_bert)
    tensors = load_file(path / "model.safetensors")
    layer = "bert.encoder.layer.1.attention."
    for name in ("self.query.weight", "self.key.weight", "self.value.weight"):
        tensors[layer + name] = tensors[layer + name][8:].clone()
    tensors[layer + "output.dense.weight"] = tensors[layer + "output.dense.weight"][:, 8:].clone()
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    edit_json(path / "config.json", pruned_heads={"1": [0]})
    with pytest.raises(SqueezeError, match=r"pruned_heads in config\.json"):
        load_model(opened(path))
    edit_json(path / "config.json", pruned_heads={})
    with pytest.raises(SqueezeError, match="fetch both again"):
        load_model(opened(path))


@pytest.mark.parametrize("prefix", ["deberta.attention.self.in_proj.", "mystery."])
def test_unknown_families_list_the_supported_ones(pico_bert, copy_of, prefix):
    path = copy_of(pico_bert)
    tensors = load_file(path / "model.safetensors")
    renamed = {f"{prefix}block.{i}": tensor for i, tensor in enumerate(tensors.values())}
    save_file(renamed, path / "model.safetensors")
    edit_json(path / "config.json", drop=("model_type",))
    with pytest.raises(SqueezeError, match=", ".join(FAMILIES)):
        load_model(opened(path))


def test_unused_tensors_give_a_warning(pico_bert, copy_of, capsys):
    path = copy_of(pico_bert)
    tensors = load_file(path / "model.safetensors")
    save_file(tensors | {"crf.transitions": torch.zeros(3, 3)}, path / "model.safetensors")
    load_model(opened(path))
    assert "crf.transitions" in capsys.readouterr().err


def test_saved_models_load_in_stock_transformers(pico_bert, tmp_path):
    checkpoint = opened(pico_bert)
    load_model(checkpoint).model.save_pretrained(tmp_path / "out")
    load_tokenizer(checkpoint).save_pretrained(tmp_path / "out")
    _, info = AutoModel.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert set(info["missing_keys"]) <= {"pooler.dense.weight", "pooler.dense.bias"}
    text = "BRCA1 mutation of Hepatitis"
    assert AutoTokenizer.from_pretrained(tmp_path / "out")(text) == load_tokenizer(checkpoint)(text)


def test_heads_that_transformers_lacks():
    with pytest.raises(SqueezeError, match="transformers has no EuroBertForQuestionAnswering"):
        new_model(pico.config_of("eurobert", 60), "EuroBertForQuestionAnswering", seed=0)


def test_config_keys_of_the_first_eurobert(tmp_path):
    path = pico.save("eurobert", tmp_path / "model", "sequence-classification")
    config = json.loads((path / "config.json").read_text())
    for key in ("classifier_pooling", "rope_parameters", "model_type", "num_key_value_heads"):
        del config[key]
    (path / "config.json").write_text(json.dumps(config | {"clf_pooling": "bos", "rope_theta": 250000}))
    with pytest.raises(SqueezeError, match=r"k_proj.weight is 16 x 32 in the weights and 32 x 32 by config"):
        load_model(opened(path))
    (path / "config.json").write_text(
        json.dumps(config | {"clf_pooling": "bos", "rope_theta": 250000, "num_key_value_heads": 2})
    )
    config = load_model(opened(path)).model.config
    assert (config.classifier_pooling, config.rope_parameters["rope_theta"]) == ("bos", 250000)


@pytest.mark.parametrize(
    ("name", "nearest"), [("xlm", "xlm-roberta"), ("deberta", "deberta-v2"), ("Roberta", "roberta"), ("llama", "bert")]
)
def test_nearest_family_of_an_unsupported_one(name, nearest):
    with pytest.raises(SqueezeError, match=rf"'{name}' are not supported.*the nearest is {nearest}\. .*inspect"):
        family_of({"model_type": name})


def test_unsupported_families_are_inspected(tmp_path, shell):
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    longer = NystromformerConfig(vocab_size=60, **size)  # two more positions than max_position_embeddings
    for model in (ErnieForMaskedLM(ErnieConfig(vocab_size=60, **size)), NystromformerForMaskedLM(longer)):
        model.save_pretrained(tmp_path / model.config.model_type)
        inspected = shell("inspect", tmp_path / model.config.model_type, "--json")
        assert inspected.code == 0, inspected.err
        assert json.loads(inspected.out)["family"] == model.config.model_type
    refused = shell("bench", tmp_path / "ernie")
    assert refused.code == 1 and "the nearest is bert. Of another family, only" in refused.err
