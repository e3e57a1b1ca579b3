"""How entities are shown, found among the pieces, and kept in a window."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import processors

from biosqueeze.errors import SqueezeError
from biosqueeze.tasks.encoding.entities import FIRST, SECOND, Mention, Relation, segments_of
from biosqueeze.tasks.encoding.entity_truncation import (
    EntityPieces,
    entity_pieces,
    truncate_around_entities,
    unknown_texts,
)
from tests import pico

TOKENIZERS = {name: pico.tokenizer_of(name) for name in ("bert", "roberta")}
TOKENIZERS["spaced"] = pico.tokenizer_of("roberta")  # counts the space before a word as the piece's own
TOKENIZERS["spaced"].backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
TEXT = "Gene carci blocks protein cino."


def text_of(relation, entities):
    return "".join(segment.text for segment in segments_of(relation, entities))


def relation(text, first, second, types=("", "")):
    """The first occurrence of each name is the entity."""
    spans = [(text.index(name), text.index(name) + len(name)) for name in (first, second)]
    head, tail = (Mention(*span, type_) for span, type_ in zip(spans, types, strict=True))
    return Relation(text, (head, tail), "x")


@st.composite
def relations(draw):
    """Words with two entities anywhere, apart, nested or crossing, in words too."""
    words = draw(st.lists(st.sampled_from([*pico.words()[:60], "(R)-2,3", "β-x", "p<0.05"]), min_size=2, max_size=40))
    text = " ".join(words)
    places = st.integers(0, len(text) - 1)
    mentions = []
    for _ in range(2):
        start, end = sorted((draw(places), draw(places)))
        assume(text[start : end + 1].strip())
        mentions.append(Mention(start, end + 1))
    return Relation(text, tuple(mentions), "x")


@pytest.mark.parametrize(
    ("entities", "types", "expected"),
    [
        ("dummy", ("", ""), "@ENTITY1$ carci blocks @ENTITY2$ cino."),
        ("dummy", ("Gene", "drug"), "@GENE$ carci blocks @DRUG$ cino."),
        ("markers", ("Gene", "drug"), "@ Gene @ carci blocks # protein # cino."),
        ("original", ("Gene", "drug"), TEXT),
    ],
)
def test_segments_of_each_way(entities, types, expected):
    assert text_of(relation(TEXT, "Gene", "protein", types), entities) == expected


def test_the_second_entity_may_come_first_in_the_text():
    swapped = relation(TEXT, "protein", "Gene", ("A", "B"))
    assert text_of(swapped, "dummy") == "@B$ carci blocks @A$ cino."
    assert text_of(swapped, "markers") == "# Gene # carci blocks @ protein @ cino."


def test_nested_entities():
    nested = relation("the ethanol dehydrogenase gene", "ethanol", "ethanol dehydrogenase", ("CHEMICAL", "GENE"))
    assert text_of(nested, "dummy") == "the @CHEMICAL-GENE$ gene"
    assert text_of(nested, "markers") == "the # @ ethanol @ dehydrogenase # gene"
    ends_alike = relation("an ethanol dehydrogenase", "dehydrogenase", "ethanol dehydrogenase")
    assert text_of(ends_alike, "markers") == "an # ethanol @ dehydrogenase @ #"
    swapped = relation("an ethanol dehydrogenase", "ethanol dehydrogenase", "dehydrogenase")
    assert text_of(swapped, "markers") == "an @ ethanol # dehydrogenase # @"
    assert text_of(Relation("a drug b", (Mention(2, 6), Mention(2, 6)), "x"), "markers") == "a @ # drug # @ b"
    assert text_of(Relation("a drug b", (Mention(2, 6), Mention(2, 6)), "x"), "dummy") == "a @ENTITY1-ENTITY2$ b"


def test_data_with_dummies_are_unchanged():
    replaced = Relation("@GENE$ in @DISEASE$", (Mention(0, 6, "GENE"), Mention(10, 19, "DISEASE")), "1", replaced=True)
    assert text_of(replaced, "dummy") == replaced.text
    assert [segment.inside for segment in segments_of(replaced, "dummy") if segment.inside] == [FIRST, SECOND]


@given(relations())
def test_text_without_markers_is_the_original(example):
    assert text_of(example, "original") == example.text
    marked = segments_of(example, "markers")
    added = [segment for segment in marked if segment.belongs and not segment.inside]
    assert sorted(segment.text for segment in added) == ["#", "#", "@", "@"]
    for bit, mention in zip((FIRST, SECOND), example.mentions, strict=True):
        stretch = example.text[mention.start : mention.end]
        assert "".join(segment.text for segment in marked if segment.inside & bit) == stretch
        assert [segment.opens for segment in marked if segment.opens & bit] == [bit]


@given(st.sampled_from(sorted(TOKENIZERS)), relations())
@settings(deadline=None, max_examples=150)
def test_mention_pieces_share_a_visible_character(family, example):
    tokenizer = TOKENIZERS[family]
    (pieces,) = entity_pieces([segments_of(example, "original")], "mentions", tokenizer)
    places = tokenizer(example.text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    for bit, mention in zip((FIRST, SECOND), example.mentions, strict=True):
        expected = [
            any(mention.start <= at < mention.end and not example.text[at].isspace() for at in range(start, end))
            for start, end in places
        ]
        assert (pieces.entities & bit != 0).tolist() == expected


@given(st.sampled_from(sorted(TOKENIZERS)), relations())
@settings(deadline=None, max_examples=100)
def test_entity_starts_are_opening_markers(family, example):
    tokenizer = TOKENIZERS[family]
    (pieces,) = entity_pieces([segments_of(example, "markers")], "entity-starts", tokenizer)
    for bit, sign, span in ((FIRST, "@", pieces.first), (SECOND, "#", pieces.second)):
        (place,) = np.flatnonzero(pieces.entities & bit)
        assert tokenizer.decode([pieces.ids[place]]).strip() == sign
        assert span[0] == place


def test_space_inside_a_piece_is_no_marker():
    tokenizer = TOKENIZERS["spaced"]
    places = tokenizer("Gene carci", add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    assert any("Gene carci"[start] == " " for start, _ in places)
    (pieces,) = entity_pieces(
        [segments_of(relation("a carci b cino", "carci ", "cino"), "original")], "mentions", tokenizer
    )
    assert tokenizer.decode(pieces.ids[pieces.entities == FIRST]).strip() == "carci"


def test_cls_marks_no_entity():
    (pieces,) = entity_pieces([segments_of(relation(TEXT, "Gene", "protein"), "dummy")], "cls", TOKENIZERS["bert"])
    assert not pieces.entities.any()
    assert pieces.first is not None


def pieces_at(count, first, second):
    return EntityPieces(np.arange(count) + 100, np.zeros(count, dtype=np.int64), first, second)


SPANS = st.integers(1, 80).flatmap(
    lambda count: st.tuples(
        st.just(count),
        *[st.tuples(st.integers(0, count - 1), st.integers(1, count)).filter(lambda span: span[0] < span[1])] * 2,
    )
)


@given(SPANS, st.integers(2, 80))
@settings(max_examples=500)
def test_a_window_holds_both_entities(spans, room):
    count, first, second = spans
    kept = truncate_around_entities(pieces_at(count, first, second), room)
    places = kept.indices.tolist()
    assert places == sorted(set(places))
    assert set(places) <= set(range(count))
    assert len(places) <= room
    assert {first[0], second[0]} <= set(places)  # each keeps at least its beginning
    hull = set(range(min(first + second), max(first + second)))
    apart = first[1] <= second[0] or second[1] <= first[0]
    if count <= room:
        assert kept.cut == "none"
        assert len(places) == count
    elif len(hull) <= room:
        assert kept.cut == "ends"
        assert hull <= set(places)
        assert places == list(range(places[0], places[0] + room))
    else:
        assert kept.cut == "middle"
        assert set(places) <= hull
        if apart:
            assert len(places) == room
        if apart and (first[1] - first[0]) + (second[1] - second[0]) <= room:
            assert set(range(*first)) | set(range(*second)) <= set(places)


def test_the_entities_are_in_the_middle_of_the_window():
    assert truncate_around_entities(pieces_at(100, (50, 52), (58, 60)), 20).indices.tolist() == list(range(45, 65))
    assert truncate_around_entities(pieces_at(100, (0, 2), (8, 10)), 20).indices.tolist() == list(range(20))
    assert truncate_around_entities(pieces_at(100, (97, 98), (98, 100)), 20).indices.tolist() == list(range(80, 100))


def test_middle_is_cut_between_distant_entities():
    kept = truncate_around_entities(pieces_at(100, (90, 92), (10, 13)), 12)
    assert kept.indices.tolist() == [*range(10, 16), *range(86, 92)]
    assert kept.cut == "middle"


def test_text_without_known_entities_loses_its_end():
    kept = truncate_around_entities(pieces_at(9, None, None), 4)
    assert (kept.indices.tolist(), kept.cut) == ([0, 1, 2, 3], "end")


def test_room_for_one_token_is_refused():
    with pytest.raises(SqueezeError, match="cannot hold two entities"):
        truncate_around_entities(pieces_at(9, (1, 2), (3, 4)), 1)


def test_unknown_texts():
    assert unknown_texts(["@", "@GENE$"], TOKENIZERS["bert"]) == []
    assert unknown_texts(["@", "☂"], TOKENIZERS["bert"]) == ["☂"]
    assert unknown_texts([], TOKENIZERS["bert"]) == []
