"""Maps from the student's layers to the teacher's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.errors import UsageError
from biosqueeze.models.layer_maps import MAP_NAMES, layer_map


@pytest.mark.parametrize(
    ("text", "student", "teacher", "expected"),
    [
        ("uniform", 4, 12, ((1, 3), (2, 6), (3, 9), (4, 12))),
        ("uniform", 3, 6, ((1, 2), (2, 4), (3, 6))),
        ("uniform", 4, 6, ((1, 2), (2, 3), (3, 5), (4, 6))),
        ("uniform", 2, 2, ((1, 1), (2, 2))),
        ("every-other", 3, 6, ((1, 1), (2, 3), (3, 5))),
        ("2i+1", 3, 6, ((1, 2), (2, 4), (3, 6))),
        ("top", 2, 6, ((1, 5), (2, 6))),
        ("last", 3, 12, ((3, 12),)),
        ("2:9,1:3", 2, 12, ((2, 9), (1, 3))),
    ],
)
def test_named_maps(text: str, student: int, teacher: int, expected: tuple) -> None:
    assert layer_map(text, student, teacher) == expected


@pytest.mark.parametrize(
    ("text", "student", "teacher", "message"),
    [
        ("top", 6, 4, "layer 1 of the student with layer -1"),
        ("every-other", 4, 6, "layer 4 of the student with layer 7"),
        ("1:13", 4, 12, "the student has 4 layers and the teacher 12"),
        ("5:12", 4, 12, "layer 5 of the student"),
        ("0:1", 4, 12, "layer 0 of the student"),
        ("sideways", 4, 12, "is not a layer map"),
        ("1:two", 4, 12, "does not have the form STUDENT:TEACHER"),
        ("1:2:3", 4, 12, "does not have the form STUDENT:TEACHER"),
        ("1_1:2", 12, 12, "does not have the form STUDENT:TEACHER"),
    ],
)
def test_error_lists_the_maps_that_fit(text: str, student: int, teacher: int, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        layer_map(text, student, teacher)
    listed = str(caught.value).partition("possible for")[2]
    assert "last" in listed
    for name in MAP_NAMES:
        if name in listed:
            assert layer_map(name, student, teacher)


def test_source_pairs_copied_layers_and_the_last_ones() -> None:
    assert layer_map("source", 3, 6, source_layers=(0, 2, 5)) == ((1, 1), (2, 3), (3, 6))
    assert layer_map("source", 2, 6, source_layers=(0, 1)) == ((1, 1), (2, 6))
    assert layer_map("source", 1, 6, source_layers=(0,)) == ((1, 6),)


def test_source_needs_known_source_layers() -> None:
    with pytest.raises(UsageError, match="not known to be made of the teacher's layers; possible"):
        layer_map("source", 2, 4)
    with pytest.raises(UsageError, match="possible for 2 and 4 layers: source, uniform"):
        layer_map("sideways", 2, 4, source_layers=(0, 1))


@given(st.integers(1, 30), st.integers(1, 30))
def test_uniform_maps_ascend_to_the_last_layer(student: int, teacher: int) -> None:
    pairs = layer_map("uniform", student, teacher)
    assert [layer for layer, _ in pairs] == list(range(1, student + 1))
    assert [layer for _, layer in pairs] == sorted(layer for _, layer in pairs)
    assert pairs[-1] == (student, teacher)


def test_a_pair_that_is_named_twice_is_refused() -> None:
    assert layer_map("1:3,1:4", 4, 4) == ((1, 3), (1, 4))
    with pytest.raises(UsageError, match=r"has the pair 1:3 twice; .* --layer-weights"):
        layer_map("1:3,2:4,1:3", 4, 4)
