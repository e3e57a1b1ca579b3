from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import BILOU, IOB1, IOB2, IOBES, Entities

from biosqueeze.tasks.encoding.tag_schemes import (
    LETTERS,
    EntitySpan,
    begins,
    convert,
    detect_scheme,
    inside,
    is_tag,
    labels_of,
    order_error,
    scheme_of,
    spans_of,
    tags_of,
    types_of,
)

SCHEMES = ("BIO", "IO", "BIOUL")
TYPES = ("Disease", "Gene", "cell-line")
BIOES = str.maketrans({"L": "E", "U": "S"})


@st.composite
def spans(draw, types=TYPES) -> tuple[list[EntitySpan], int]:
    """Entities of one to four words that do not overlap and often touch, and the number of words."""
    found, place = [], 0
    for gap, length in draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=8)):
        found.append(EntitySpan(place + gap, place + gap + length, draw(st.sampled_from(types))))
        place += gap + length
    return found, place + draw(st.integers(0, 2))


def any_tags(letters: str = "BILU", types=TYPES) -> st.SearchStrategy[list[str]]:
    """Tags in any order, mostly not allowed by any scheme."""
    tag = st.tuples(st.sampled_from(letters), st.sampled_from(types)).map("-".join)
    return st.lists(st.one_of(st.just("O"), tag), max_size=12)


def spelt(tags: list[str]) -> list[str]:
    """The same with the letters that seqeval knows."""
    return [tag[0].translate(BIOES) + tag[1:] for tag in tags]


def iob1(found: list[EntitySpan], length: int) -> list[str]:
    """Written as the definition says: B only where an entity of the same type ends right before."""
    tags = ["O"] * length
    for start, end, kind in found:
        touches = start > 0 and tags[start - 1][2:] == kind
        tags[start:end] = [f"{'B' if touches else 'I'}-{kind}"] + [f"I-{kind}"] * (end - start - 1)
    return tags


@pytest.mark.parametrize("scheme", ["BIO", "BIOUL"])
@given(made=spans())
def test_spans_to_tags_and_back(scheme, made):
    found, length = made
    tags = tags_of(found, length, scheme)
    assert spans_of(tags) == found
    assert len(tags) == length
    assert set(tags) <= set(labels_of(TYPES, scheme))
    assert [order_error(scheme, a, b) for a, b in zip(["O", *tags], [*tags, "O"], strict=True)] == [""] * (length + 1)


@given(made=spans())
def test_iob1_to_spans_and_back(made):
    found, length = made
    assert spans_of(iob1(found, length)) == found
    assert spans_of(spelt(tags_of(found, length, "BIOUL"))) == found


@given(made=spans())
def test_valid_tags_equal_strict_seqeval(made):
    found, length = made
    for tags, scheme in (
        (tags_of(found, length, "BIO"), IOB2),
        (tags_of(found, length, "BIOUL"), BILOU),
        (spelt(tags_of(found, length, "BIOUL")), IOBES),
        (iob1(found, length), IOB1),
    ):
        (strict,) = Entities([tags], scheme, suffix=False).entities
        assert [(one.start, one.end, one.tag) for one in strict] == found == spans_of(tags)


@pytest.mark.filterwarnings("error")
@given(tags=any_tags("BILUES"))
def test_any_tags_equal_lenient_seqeval(tags):
    expected = [EntitySpan(start, end + 1, kind) for kind, start, end in get_entities(spelt(tags))]
    assert spans_of(tags) == expected


@given(tags=st.lists(st.sampled_from(["O", "B", "I", "E", "S"]), max_size=12))
def test_untyped_tags_equal_seqeval(tags):
    assert spans_of(tags) == [EntitySpan(start, end + 1, "") for _, start, end in get_entities(tags)]
    assert spans_of(convert(tags, "BIO")) == spans_of(tags)


@given(tags=any_tags())
def test_conversion_keeps_entities(tags):
    assert spans_of(convert(tags, "BIO")) == spans_of(convert(tags, "BIOUL")) == spans_of(tags)
    assert all(tag == "O" or tag[0] == "I" for tag in convert(tags, "IO"))
    assert [tag[2:] for tag in convert(tags, "IO")] == [tag[2:] for tag in tags]


@given(made=spans())
def test_io_merges_adjacent_entities_only(made):
    found, length = made
    alone = [
        one
        for one in found
        if not any(one.type == other.type and (one.end == other.start or other.end == one.start) for other in found)
    ]
    read = spans_of(tags_of(found, length, "IO"))
    assert [one for one in found if one in read] == alone
    assert len(read) == len(alone) + _runs(found)


def _runs(found: list[EntitySpan]) -> int:
    """How many runs of two or more touching entities of a type there are."""
    touching = [a.end == b.start and a.type == b.type for a, b in pairwise(found)]
    return sum(now and not before for before, now in zip([False, *touching], touching, strict=False))


@given(made=st.lists(spans(), min_size=1, max_size=4))
def test_the_scheme_of_a_file_is_detected(made):
    for scheme in ("BIO", "BIOUL"):
        tags = [tags_of(found, length, scheme) for found, length in made]
        assert detect_scheme(tags) == (scheme if any(found for found, _ in made) else "IO")
        assert detect_scheme(map(spelt, tags)) == detect_scheme(tags)
    assert detect_scheme(tags_of(found, length, "IO") for found, length in made) == "IO"


@given(made=st.lists(spans(), min_size=1, max_size=4))
def test_detected_iob1_has_the_right_entities(made):
    tags = [iob1(found, length) for found, length in made]
    bs = sum(tag[0] == "B" for sentence in tags for tag in sentence)
    firsts = sum(len(found) for found, _ in made) - bs
    assert detect_scheme(tags) == ("IO" if not bs else "IOB1" if firsts > bs else "BIO")


def test_error_in_bio_is_not_iob1():
    right = ["B-X", "I-X", "O", "B-X"]
    assert detect_scheme([right, ["O", "I-X", "B-X"]]) == "BIO"
    assert detect_scheme([["I-X", "O", "I-X", "B-X", "O", "I-X"]]) == "IOB1"


def test_most_entities_begin_with_i_and_some_with_b():
    """As in SciBERT's BC5CDR, where B begins an entity of several words."""
    tags = ["I-X", "O", "B-X", "I-X", "O", "I-X"]
    assert detect_scheme([tags]) == "IOB1"
    assert convert(tags, "BIO") == ["B-X", "O", "B-X", "I-X", "O", "B-X"]


@pytest.mark.parametrize(
    ("scheme", "before", "tag", "wrong"),
    [
        ("BIO", "O", "I-X", "begin"),
        ("BIO", "B-Y", "I-X", "begin"),
        ("BIO", "B-X", "I-X", ""),
        ("BIO", "B-X", "O", ""),
        ("IO", "O", "I-X", ""),
        ("IOB1", "O", "I-X", ""),
        ("BIOUL", "O", "L-X", "begin"),
        ("BIOUL", "U-X", "I-X", "begin"),
        ("BIOUL", "L-X", "L-X", "begin"),
        ("BIOUL", "B-X", "O", "end"),
        ("BIOUL", "I-X", "U-X", "end"),
        ("BIOUL", "B-X", "L-Y", "end"),
        ("BIOUL", "B-X", "E-X", ""),
        ("BIOUL", "S-X", "B-X", ""),
        ("BIOUL", "L-X", "O", ""),
    ],
)
def test_order_errors(scheme, before, tag, wrong):
    assert order_error(scheme, before, tag) == wrong


@given(tags=any_tags("BILU"))
def test_only_valid_tags_have_no_order_error(tags):
    """Whatever has no fault says the same in strict reading; whatever has one does not survive conversion."""
    faults = [order_error("BIOUL", a, b) for a, b in zip(["O", *tags], [*tags, "O"], strict=True)]
    assert any(faults) == (convert(tags, "BIOUL") != tags)
    bio = [tag.replace("L-", "I-").replace("U-", "B-") for tag in tags]
    assert any(order_error("BIO", a, b) for a, b in zip(["O", *bio], bio, strict=False)) == (convert(bio, "BIO") != bio)


def test_labels_types_and_scheme():
    assert labels_of(("b", "a"), "BIO") == ("O", "B-a", "B-b", "I-a", "I-b")
    assert labels_of(("a",), "BIOUL") == ("O", "B-a", "I-a", "L-a", "U-a")
    assert labels_of(("",), "IO") == ("O", "I")
    for scheme in SCHEMES:
        assert scheme_of(labels_of(TYPES, scheme)) == scheme
        assert types_of(labels_of(TYPES, scheme)) == tuple(sorted(TYPES))
    assert scheme_of(("O", "B-X", "I-X", "E-X", "S-X")) == "BIOUL"


def test_is_tag():
    good = ["O", "B", *(f"{letter}-a-b" for letter in LETTERS)]
    assert all(map(is_tag, good))
    assert not any(map(is_tag, ["", "X-a", "B-", "-a", "a", "Ba", "b-a", "BI-a", "O-a", " "]))


def test_inside():
    assert [inside(tag) for tag in ("O", "B-a-b", "U-X", "L-X", "I-X", "B")] == ["O", "I-a-b", "I-X", "I-X", "I-X", "I"]
    assert begins("B-a", "I-b") and not begins("B-a", "I-a")
