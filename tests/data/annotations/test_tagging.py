import pytest
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.data.annotations.annotated import Annotation, Document
from biosqueeze.data.annotations.documents import read_documents
from biosqueeze.data.annotations.tagging import tag_document, tag_documents, without_overlaps


def _document(text, *spans):
    rows = [Annotation(a, b, kind, text[a:b]) for a, b, kind in spans]
    return Document("1", text, tuple(rows))


def _entities(sentences):
    """Spans and types as the tags have them, read by the rule of BIO alone."""
    found = []
    for sentence in sentences:
        for tag, (a, b) in zip(sentence.tags, sentence.offsets, strict=True):
            if tag[0] == "B":
                found.append([a, b, tag[2:]])
            elif tag[0] == "I":
                assert found[-1][2] == tag[2:]
                found[-1][1] = b
    return [tuple(one) for one in found]


def test_words_tags_and_offsets_of_each_sentence():
    text = "Low zinc eased gout. Lung cancer did not."
    first, second = tag_document(_document(text, (4, 8, "Chemical"), (15, 19, "Disease"), (21, 32, "Disease")))
    assert first.words == ("Low", "zinc", "eased", "gout", ".")
    assert first.tags == ("O", "B-Chemical", "O", "B-Disease", "O")
    assert second.tags == ("B-Disease", "I-Disease", "O", "O", "O")
    assert [text[a:b] for a, b in second.offsets] == list(second.words)


def test_a_word_is_split_where_an_annotation_begins_or_ends():
    (one,) = tag_document(_document("antigout TNFalpha2", (4, 8, "Disease"), (9, 12, "Gene"), (12, 17, "Gene")))
    assert one.words == ("anti", "gout", "TNF", "alpha", "2")
    assert one.tags == ("O", "B-Disease", "B-Gene", "B-Gene", "O")


def test_a_sentence_border_inside_an_entity_joins_the_two():
    text = "It is Smith. The disease. Yes."
    assert len(tag_document(_document(text))) == 3
    joined = tag_document(_document(text, (6, 24, "Disease")))
    assert len(joined) == 2
    assert joined[0].tags == ("O", "O", "B-Disease", "I-Disease", "I-Disease", "I-Disease", "O")


def test_an_entity_over_three_sentences():
    (one,) = tag_document(_document("A cat.\nA dog.\nA cow.", (2, 17, "X")))
    assert one.tags[1:7] == ("B-X", "I-X", "I-X", "I-X", "I-X", "I-X")


def test_the_longest_of_overlapping_annotations_is_kept():
    long, inner, across, twin = (
        Annotation(0, 10, "X", ""),
        Annotation(2, 5, "Y", ""),
        Annotation(8, 12, "Y", ""),
        Annotation(0, 10, "Z", ""),
    )
    after = Annotation(10, 12, "Y", "")
    assert without_overlaps([inner, after, long, across, twin]) == [long, after]


def test_only_requested_types_are_kept():
    document = _document("zinc gout", (0, 9, "Group"), (0, 4, "Chemical"), (5, 9, "Disease"))
    assert [one.tags for one in tag_document(document)] == [("B-Group", "I-Group")]
    assert [one.tags for one in tag_document(document, ("Chemical",))] == [("B-Chemical", "O")]


def test_dropped_annotations_are_logged_once(capsys):
    document = _document("zinc gout", (0, 9, "Group"), (0, 4, "Chemical"), (5, 9, "Disease"))
    assert tag_documents([document, document])[1] == tag_document(document)
    assert "4 of 6 annotations" in " ".join(capsys.readouterr().err.split())
    tag_documents([document], ("Disease", "Chemical"))
    assert capsys.readouterr().err == ""


TEXT = st.text(st.sampled_from("ab1 -.\nAT\u0301"), min_size=1, max_size=60)


@st.composite
def _annotated(draw):
    text = draw(TEXT)
    places = st.integers(0, len(text))
    spans = [sorted(span) for span in draw(st.lists(st.tuples(places, places), max_size=8))]
    whole = [(a, b) for a, b in spans if text[a:b].strip() and text[a:b] == text[a:b].strip()]
    return _document(text, *((a, b, draw(st.sampled_from("XY"))) for a, b in whole))


@given(_annotated())
def test_no_entity_and_no_character_is_lost(document):
    sentences = tag_document(document)
    kept = without_overlaps(document.annotations)
    assert _entities(sentences) == [(one.start, one.end, one.type) for one in kept]
    held = [place for one in sentences for a, b in one.offsets for place in range(a, b)]
    assert held == [place for place, sign in enumerate(document.text) if not sign.isspace()]
    assert all(one.words for one in sentences)


@given(_annotated())
def test_dropped_annotations_overlap_longer_ones(document):
    kept = without_overlaps(document.annotations)
    for one in document.annotations:
        rivals = [other for other in kept if one.start < other.end and other.start < one.end]
        assert one in kept or any(rival.end - rival.start >= one.end - one.start for rival in rivals)


@pytest.mark.real
@pytest.mark.parametrize(("split", "entities"), [("train", 5134), ("develop", 787), ("test", 960)])
def test_ncbi_disease_keeps_every_entity(real_data, split, entities):
    path = real_data / "ncbi-disease" / "original-pubtator" / f"NCBI{split}set_corpus.txt"
    made = tag_documents(read_documents(path))
    assert sum(len(_entities(sentences)) for sentences in made) == entities
