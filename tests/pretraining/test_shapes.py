"""Named shapes, sizes in place of theirs, and the sizes that follow."""

import pytest

from biosqueeze.errors import UsageError
from biosqueeze.models.families import FAMILIES
from biosqueeze.pretraining.shapes import SHAPES, ShapeChanges, find_shape


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
        ("bert-base", {"embedding": 64}, "--embedding: the embeddings of bert are as wide as its layers"),
    ],
)
def test_wrong_shapes_are_explained(name: str, changes: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find_shape(name, ShapeChanges(**changes))
