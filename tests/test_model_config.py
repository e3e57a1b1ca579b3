"""Types and sizes in config.json are checked, and compared with the weights, before a model is built."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.model_config import check_sizes, read_config
from biosqueeze.model_facts import tensor_shapes
from tests.layouts import edit_json

SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")


@pytest.mark.parametrize("key", [*SIZES, "max_position_embeddings", "num_labels", "n_layers", "embedding_size"])
@pytest.mark.parametrize("size", [-1, 10**9, 10**4000, True, "4", 1.5, [4], {}, float("nan")])
def test_sizes_that_no_model_has(key: str, size: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({key: size}))
    with pytest.raises(SqueezeError, match=rf"config\.json: {key} (is|of)") as caught:
        read_config(tmp_path / "config.json")
    assert len(str(caught.value)) < 300 + len(str(tmp_path))


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"hidden_size": 0}, "hidden_size is 0, 1 to 65,536 was expected; correct that value"),
        (
            {"hidden_size": 32, "num_attention_heads": 5},
            "hidden_size (32) is not a multiple of num_attention_heads (5)",
        ),
        ({"id2label": 3}, "id2label is an integer, an object was expected"),
        ({"id2label": ["O"]}, "id2label is a list, an object was expected"),
        ({"id2label": {"a": "O"}}, "id2label has the key 'a', numbers of labels were expected"),
        ({"id2label": {"-1": "O"}}, "id2label has the key '-1', numbers of labels were expected"),
        ({"id2label": {"9" * 5000: "O"}}, "numbers of labels were expected"),
        ({"id2label": {"0": ["O"]}}, "id2label.0 is not a name, a string was expected"),
        ({"id2label": {"0": "\ud800"}}, "id2label.0 is not valid text"),
        (
            {"id2label": {str(i): "x" for i in range(70_000)}},
            "id2label has 70,000 labels, at most 65,536 were expected",
        ),
        ({"label2id": 3}, "label2id is an integer, an object was expected"),
        ({"architectures": "BertModel"}, "architectures is a string, a list was expected"),
        ({"architectures": [1]}, "architectures[0] is an integer, a string was expected"),
        ({"model_type": []}, "model_type is a list, a string was expected"),
        ({"is_decoder": "no"}, "is_decoder is a string, true or false was expected"),
        (
            {"pad_token_id": 10**9, "vocab_size": 9},
            "pad_token_id is 1,000,000,000, an id below vocab_size was expected",
        ),
        ({"pad_token_id": -1}, "pad_token_id is -1, an id below vocab_size was expected"),
        ({"hidden_dropout_prob": 2}, "hidden_dropout_prob is 2, 0 to 1 was expected"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps is nan, a finite number, at least 0, was expected"),
    ],
)
def test_values_that_no_model_has(config: dict[str, Any], says: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(SqueezeError) as caught:
        read_config(tmp_path / "config.json")
    assert says in str(caught.value)


def test_a_config_of_many_megabytes(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"a": "' + "x" * (1 << 22) + '"}')
    with pytest.raises(SqueezeError, match=r"config\.json has 4,194,313 bytes, at most 4,194,304 were expected"):
        read_config(tmp_path / "config.json")


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"vocab_size": 500}, "vocab_size is 500, but bert.embeddings.word_embeddings.weight has 413 rows"),
        ({"hidden_size": 64}, "hidden_size is 64, but bert.encoder.layer.0.output.LayerNorm.bias has 32 rows"),
        (
            {"intermediate_size": 65},
            "intermediate_size is 65, but bert.encoder.layer.0.intermediate.dense.weight has 64",
        ),
        ({"max_position_embeddings": 9}, "max_position_embeddings is 9, but bert.embeddings.position_embeddings"),
        ({"type_vocab_size": 3}, "type_vocab_size is 3, but bert.embeddings.token_type_embeddings.weight has 2 rows"),
        ({"num_hidden_layers": 500}, "there are 500 layers, but the weights have 4; the two are not of the same model"),
    ],
)
def test_sizes_of_other_weights(
    changes: dict[str, int], says: str, weights: bool, pico_bert: Path, copy_of: Callable[[Path], Path]
) -> None:
    path = copy_of(pico_bert)
    edit_json(path / "config.json", **changes)
    with pytest.raises(SqueezeError) as caught:
        open_checkpoint(str(path), weights=weights)
    assert says in str(caught.value)


def test_sizes_are_compared_in_all_families(pico_any: Path) -> None:
    config, shapes = read_config(pico_any / "config.json"), tensor_shapes(pico_any / "model.safetensors")
    check_sizes("it", config, shapes)
    compared = [key for key in (*SIZES, "dim", "hidden_dim", "max_position_embeddings") if key in config]
    for key in compared:
        wrong = {**config, key: config[key] + 1}
        shares = key == "num_hidden_layers" and config["model_type"] == "albert"
        # Rotary positions have no tensor, and ModernBERT's FFN has two rows for a neuron.
        unknown = (key, config["model_type"]) == ("intermediate_size", "modernbert")
        without_table = not any("position_embeddings" in name for name in shapes)
        unknown = unknown or (key == "max_position_embeddings" and without_table)
        if shares or unknown or key == "num_attention_heads":
            continue
        with pytest.raises(SqueezeError, match="the two are not of the same model"):
            check_sizes("it", wrong, shapes)
