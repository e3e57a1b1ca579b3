"""Which layer learns from which."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.errors import UsageError
from biosqueeze.models.layer_maps import NAMES, layer_map


@pytest.mark.parametrize(
    ("text", "student", "teacher", "wanted"),
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
def test_named_maps(text: str, student: int, teacher: int, wanted: tuple) -> None:
    assert layer_map(text, student, teacher) == wanted


@pytest.mark.parametrize(
    ("text", "student", "teacher", "says"),
    [
        ("top", 6, 4, "layer 1 of the student would learn from layer -1"),
        ("every-other", 4, 6, "layer 4 of the student would learn from layer 7"),
        ("1:13", 4, 12, "the student has 4 and the teacher 12"),
        ("5:12", 4, 12, "layer 5 of the student"),
        ("0:1", 4, 12, "layer 0 of the student"),
        ("sideways", 4, 12, "is no layer map"),
        ("1:two", 4, 12, "does not read STUDENT:TEACHER"),
        ("1:2:3", 4, 12, "does not read STUDENT:TEACHER"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_does(text: str, student: int, teacher: int, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        layer_map(text, student, teacher)
    listed = str(caught.value).partition("possible for")[2]
    assert "last" in listed
    for name in NAMES:
        if name in listed:
            assert layer_map(name, student, teacher)


def test_layers_are_compared_with_what_they_were_and_the_last_with_the_last() -> None:
    assert layer_map("origin", 3, 6, origin=(0, 2, 5)) == ((1, 1), (2, 3), (3, 6))
    assert layer_map("origin", 2, 6, origin=(0, 1)) == ((1, 1), (2, 6))
    assert layer_map("origin", 1, 6, origin=(0,)) == ((1, 6),)


def test_an_origin_is_possible_only_where_it_is_known() -> None:
    with pytest.raises(UsageError, match="nothing says that the student was cut from the teacher; possible"):
        layer_map("origin", 2, 4)
    with pytest.raises(UsageError, match="possible for 2 and 4 layers: origin, uniform"):
        layer_map("sideways", 2, 4, origin=(0, 1))


@given(st.integers(1, 30), st.integers(1, 30))
def test_uniform_maps_rise_and_end_at_the_top(student: int, teacher: int) -> None:
    pairs = layer_map("uniform", student, teacher)
    assert [mine for mine, _ in pairs] == list(range(1, student + 1))
    assert [its for _, its in pairs] == sorted(its for _, its in pairs)
    assert pairs[-1] == (student, teacher)
