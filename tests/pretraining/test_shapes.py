"""Named shapes, sizes in place of theirs, and the sizes that follow."""

import pytest

from biosqueeze.errors import UsageError
from biosqueeze.models.families import FAMILIES
from biosqueeze.models.named.shapes import SHAPES
from biosqueeze.pretraining.models import shape_config
from biosqueeze.pretraining.shapes import ShapeChanges, find_shape
from tests import pico


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_divides_and_has_a_source(name: str) -> None:
    shape = SHAPES[name]
    assert shape.hidden % shape.heads == 0
    assert shape.family in FAMILIES
    assert shape.source


def test_another_hidden_size_changes_what_follows_from_it() -> None:
    shape = find_shape("electra-base", ShapeChanges(hidden=256, layers=4))
    assert (shape.layers, shape.hidden, shape.heads, shape.ffn, shape.embedding) == (4, 256, 4, 1024, 256)


def test_given_sizes_replace_those_that_follow() -> None:
    shape = find_shape("albert-base", ShapeChanges(hidden=256, heads=8, ffn=300, embedding=64, positions=40))
    assert (shape.heads, shape.ffn, shape.embedding, shape.positions) == (8, 300, 64, 40)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("bert-bse", {}, "Did you mean"),
        ("bert-base", {"hidden": 250, "heads": 12}, "--hidden 250 cannot be divided into 12 heads.*such as 240"),
        ("mobile", {"hidden": 64}, "--hidden 64 is narrower than the embeddings, 128.* give --embedding 64 too"),
        ("mobile", {"hidden": 384}, "384 with 3 heads: mobilebert also divides its bottleneck of 128.* such as 2"),
        ("modernbert-base", {"hidden": 27, "heads": 3}, "makes heads of 9 dimensions.* even number; give --hidden 30"),
        ("bert-base", {"embedding": 64}, "--embedding: the embeddings of bert are as wide as its layers"),
    ],
)
def test_wrong_shapes_are_explained(name: str, changes: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find_shape(name, ShapeChanges(**changes))


# Values in config.json of the published models, but for sizes and ids.
PUBLISHED = {
    "roberta-base": {"type_vocab_size": 1, "layer_norm_eps": 1e-5, "max_position_embeddings": 514},
    "xlm-roberta-base": {"type_vocab_size": 1, "layer_norm_eps": 1e-5, "max_position_embeddings": 514},
    "deberta-v3-base": {
        "relative_attention": True,
        "position_buckets": 256,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "max_relative_positions": -1,
        "type_vocab_size": 0,
        "layer_norm_eps": 1e-7,
    },
    "modernbert-base": {"local_attention": 128, "norm_eps": 1e-5, "max_position_embeddings": 8192},
    "modernbert-large": {"num_hidden_layers": 28, "intermediate_size": 2624, "num_attention_heads": 16},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_configs_are_those_of_the_published_models(name: str) -> None:
    shape = SHAPES[name]
    tokenizer = pico.tokenizer_of(shape.family)
    config = shape_config(shape, tokenizer).to_dict()
    assert config | PUBLISHED[name] == config
    ids = {config[key] for key in config if key.endswith("_token_id") and config[key] is not None}
    assert ids <= set(tokenizer.all_special_ids)
    if shape.family == "modernbert":
        assert (config["cls_token_id"], config["sep_token_id"]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
        assert config["layer_types"].count("full_attention") == -(-shape.layers // 3)
