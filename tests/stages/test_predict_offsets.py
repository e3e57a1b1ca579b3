"""Entities of any text: their offsets, alone and in a batch, and as PubTator."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biosqueeze.annotation.annotator import Annotator
from biosqueeze.data.annotations.pubtator import read_pubtator
from biosqueeze.data.records.input_record import InputRecord
from biosqueeze.errors import SqueezeError
from biosqueeze.stages import predict
from tests import pico
from tests.stages.predicting import options_of, predicted, write_records

WORDS = st.sampled_from(
    [*pico.words()[:30], "p53", "BRCA-1", "caf\u00e9", "\U0001f600", "\u03b1-ci", "(ti)", ".", "No."]
)
TEXTS = st.lists(st.tuples(WORDS, st.sampled_from([" ", "  ", "\n", "\t", "\r", ". "])), max_size=60).map(
    lambda pairs: "".join(map("".join, pairs))
)


@pytest.fixture(scope="module")
def annotator(ner):
    options = options_of(ner, "-", batch_size=4, max_length=12)
    return predict._load(options, predict._resolve(options))


def _entities(annotator, texts):
    chunk = annotator.prepare([InputRecord(f"r:{n}", {"id": n, "text": text}) for n, text in enumerate(texts)])
    annotator.annotate(chunk)
    return [each.annotation["entities"] for each in chunk.records]


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts=st.lists(TEXTS, min_size=1, max_size=6))
def test_offsets_are_characters_of_the_text(annotator, texts):
    for text, entities in zip(texts, _entities(annotator, texts), strict=True):
        assert [entity["text"] for entity in entities] == [text[each["start"] : each["end"]] for each in entities]
        assert all(text[each["start"] : each["end"]].strip() for each in entities)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts=st.lists(TEXTS, min_size=2, max_size=12))
def test_entities_do_not_depend_on_the_batch(annotator, texts):
    together = _entities(annotator, texts)
    for text, entities in zip(texts, together, strict=True):
        (alone,) = _entities(annotator, [text])
        assert [(e["type"], e["start"], e["end"]) for e in alone] == [
            (e["type"], e["start"], e["end"]) for e in entities
        ]
        assert [e["score"] for e in alone] == pytest.approx([e["score"] for e in entities], abs=1e-5)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts=st.lists(TEXTS.filter(str.strip), min_size=1, max_size=4))
def test_pubtator_can_be_read_again(annotator, tmp_path_factory, texts):
    records = [InputRecord("r", {"id": n, "text": text}) for n, text in enumerate(texts)]
    chunk = annotator.prepare(records, as_document=True)
    annotator.annotate(chunk)
    path = tmp_path_factory.mktemp("pubtator") / "made.pubtator"
    path.write_bytes("".join(each.pubtator() for each in chunk.records).encode())
    for document, annotated in zip(read_pubtator(path), chunk.records, strict=True):
        entities = annotated.annotation["entities"]
        assert document.id == str(annotated.record.id)
        assert [(a.start, a.end, a.type) for a in document.annotations] == [
            (each["start"], each["end"], each["type"]) for each in entities
        ]


def test_pubtator_in_and_out(ner, tmp_path):
    title, abstract = "Hepti in fibneu", " ".join(pico.sentences(4, seed=3))
    source = write_records(tmp_path / "in.pubtator", f"7|t|{title}", f"7|a|{abstract}", "", "8|t|Rosci", "8|a|")
    outcome = predict.run(options_of(ner, source, format="pubtator", out=str(tmp_path / "out.pubtator")))
    first, second = read_pubtator(outcome.path)
    assert (first.text, second.text) == (f"{title}\n{abstract}", "Rosci")
    first_predicted, _ = predicted(ner, source)
    assert [(a.start, a.end, a.text) for a in first.annotations] == [
        (e["start"], e["end"], e["text"]) for e in first_predicted["entities"]
    ]
    assert any(annotation.start > len(title) for annotation in first.annotations)


def test_documents_of_pubtator_with_one_id(ner, tmp_path, capsys):
    lines = ("7|t|Hepti", "7|a|", "8|t|Rosci", "8|a|", "7|t|Hepti", "7|a|", "8|t|Car", "8|a|")
    source = write_records(tmp_path / "in.pubtator", *lines)
    predict.run(options_of(ner, source, format="pubtator", batch_size=1, out=str(tmp_path / "out.pubtator")))
    assert "warning: 1 documents have the id of an earlier one" in " ".join(capsys.readouterr().err.split())
    predict.run(options_of(ner, source, out=str(tmp_path / "out.jsonl")))
    assert "id of an earlier one" not in capsys.readouterr().err


def test_record_that_cannot_be_encoded_is_found(annotator):
    class Picky(type(annotator.model.task)):
        def encode(self, examples, *rest):
            if any("hepti" in example.words for example in examples):
                raise SqueezeError("the record holds hepti")
            return super().encode(examples, *rest)

    texts = ["car ci", "hepti", "ma neu"]
    picky = Annotator(replace(annotator.model, task=Picky()))
    chunk = picky.prepare([InputRecord(f"r:{n}", {"text": text}) for n, text in enumerate(texts)])
    assert [each.error for each in chunk.records] == [None, "r:1: holds hepti", None]
    assert {window.example for window in chunk.windows} == {0, 1}
