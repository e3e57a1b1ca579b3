import gzip
import io
import json
import os
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biosqueeze.annotation.annotator import Annotator
from biosqueeze.annotation.stream import LARGEST_CHUNK, chunk_records
from biosqueeze.cli.streams import write_lines
from biosqueeze.data.annotations.documents import read_pubtator
from biosqueeze.data.records.input_record import InputRecord
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.stages import predict
from tests import pico
from tests.manifests import write_manifest

WORDS = st.sampled_from(
    [*pico.words()[:30], "p53", "BRCA-1", "caf\u00e9", "\U0001f600", "\u03b1-ci", "(ti)", ".", "No."]
)
TEXTS = st.lists(st.tuples(WORDS, st.sampled_from([" ", "  ", "\n", "\t", "\r", ". "])), max_size=60).map(
    lambda pairs: "".join(map("".join, pairs))
)


@pytest.fixture(scope="module")
def ner(shallow):
    return str(shallow("bert", "token-classification"))


@pytest.fixture(scope="module")
def classifier(pico_root, shallow):
    from unittest import mock

    with mock.patch.object(pico, "LAYERS", 1):
        path = pico.save("bert", pico_root / "three", head="sequence-classification", labels=("a", "b", "c"))
    return str(path)


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "records.jsonl"
    texts = [" ".join(pico.sentences(1 + n % 5, seed=n)) for n in range(70)]
    path.write_text("".join(json.dumps({"id": f"d{n}", "text": text}) + "\n" for n, text in enumerate(texts)))
    return path


def _options(checkpoint, source, **changes):
    return predict.Options(checkpoint=str(checkpoint), input=str(source), **changes)


def _predict(checkpoint, source, **changes):
    """The predictions of a run that streams."""
    return [
        json.loads(line) for line in "".join(predict.run(_options(checkpoint, source, **changes)).lines).splitlines()
    ]


def _write(path, *records):
    path.write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in records))
    return path


def _pipe(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))


@pytest.fixture(scope="module")
def annotator(ner):
    options = _options(ner, "-", batch_size=4, max_length=12)
    return predict._load(options, predict._resolve(options))


def _entities(annotator, texts):
    chunk = annotator.prepare([InputRecord(f"r:{n}", {"id": n, "text": text}) for n, text in enumerate(texts)])
    annotator.annotate(chunk)
    return [each.annotation["entities"] for each in chunk.records]


def test_one_line_per_record_in_order(ner, records):
    predictions = _predict(ner, records, batch_size=8)
    given_ = [json.loads(line) for line in records.read_text().splitlines()]
    assert [each["id"] for each in predictions] == [each["id"] for each in given_]
    assert sum(len(each["entities"]) for each in predictions) > 50
    for each, record in zip(predictions, given_, strict=True):
        for entity in each["entities"]:
            assert entity["text"] == record["text"][entity["start"] : entity["end"]]
            assert 0 <= entity["score"] <= 1


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


def test_class_does_not_depend_on_the_batch(classifier, records, tmp_path):
    together = _predict(classifier, records, task="classification", batch_size=7)
    for number in (0, 33, 69):
        single = tmp_path / f"{number}.jsonl"
        single.write_text(records.read_text().splitlines()[number])
        (alone,) = _predict(classifier, single, task="classification")
        assert alone["label"] == together[number]["label"]
        assert alone["scores"] == pytest.approx(together[number]["scores"], abs=1e-5)


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
    source = _write(tmp_path / "in.pubtator", f"7|t|{title}", f"7|a|{abstract}", "", "8|t|Rosci", "8|a|")
    outcome = predict.run(_options(ner, source, format="pubtator", out=str(tmp_path / "out.pubtator")))
    first, second = read_pubtator(outcome.path)
    assert (first.text, second.text) == (f"{title}\n{abstract}", "Rosci")
    first_predicted, _ = _predict(ner, source)
    assert [(a.start, a.end, a.text) for a in first.annotations] == [
        (e["start"], e["end"], e["text"]) for e in first_predicted["entities"]
    ]
    assert any(annotation.start > len(title) for annotation in first.annotations)


def test_long_texts_are_not_cut(ner, tmp_path):
    text = " ".join(pico.sentences(60))
    source = _write(tmp_path / "long.jsonl", {"text": text})
    (predictions,) = _predict(ner, source, max_length=16)
    assert max(entity["end"] for entity in predictions["entities"]) > len(text) * 0.9


def test_first_predictions_before_the_input_ends(ner, records, monkeypatch):
    read, write = os.pipe()
    seen = threading.Event()
    lines = records.read_bytes().splitlines(keepends=True)

    def feed():
        with open(write, "wb", buffering=0) as stream:  # noqa: PTH123
            stream.write(b"".join(lines[:4]))
            outcome.append(seen.wait(60))
            stream.write(b"".join(lines[4:]))

    outcome: list[bool] = []
    feeder = threading.Thread(target=feed)
    feeder.start()
    with open(read) as stdin:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdin", stdin)
        predictions = predict.run(_options(ner, "-", batch_size=4)).lines
        assert next(predictions).count("\n") == 4
        seen.set()
        rest = "".join(predictions)
    feeder.join()
    assert outcome == [True]
    assert rest.count("\n") == len(lines) - 4


def test_only_one_chunk_is_in_memory():
    taken = []
    source = (taken.append(n) or n for n in range(10_000))
    sizes = []
    for chunk in chunk_records(source, 100):
        sizes.append(len(chunk))
        assert len(taken) == sum(sizes)
    assert sizes[:5] == [100, 200, 400, 800, 1024]
    assert max(sizes) == LARGEST_CHUNK and sum(sizes) == 10_000


def test_chunks_do_not_grow_while_records_arrive_slowly(monkeypatch):
    clock = count(step=0.4)  # seconds from one reading of the clock to the next
    monkeypatch.setattr("biosqueeze.annotation.stream.time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert [len(chunk) for chunk in chunk_records(iter(range(7)), 1)] == [1, 2, 4]
    clock = count(step=0.6)
    assert [len(chunk) for chunk in chunk_records(iter(range(3)), 1)] == [1, 1, 1]


def test_closed_output_pipe_stops_the_generator():
    ended = []

    def lines():
        try:
            while True:
                yield "x" * 100_000
        finally:
            ended.append(True)

    read, write = os.pipe()
    os.close(read)
    with pytest.raises(BrokenPipeError):
        write_lines(lines(), write)
    os.close(write)
    assert ended == [True]


@pytest.mark.slow
def test_in_a_shell_pipe(ner, records):
    code = f"cat {records} | {sys.executable} -m biosqueeze predict {ner} - --batch-size 2 | head -n 1"
    done = subprocess.run(code, shell=True, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["id"] == "d0"
    assert "Traceback" not in done.stderr and "bug" not in done.stderr and "Exception" not in done.stderr


def test_standard_output_has_predictions_only(ner, records, shell, monkeypatch):
    _pipe(monkeypatch, gzip.compress(records.read_bytes()))
    result = shell("predict", ner, "-")
    assert result.code == 0
    assert [json.loads(line)["id"] for line in result.out.splitlines()] == [f"d{n}" for n in range(70)]
    assert "standard input is read as JSON lines" in result.err
    assert "70 records, " in result.err and "records/s" in result.err


def test_output_file_is_complete_or_absent(ner, records, shell, tmp_path):
    result = shell("predict", ner, records, "--out", "made/all.jsonl.gz")
    assert result.path == "made/all.jsonl.gz"
    packed = (tmp_path / result.path).read_bytes()
    assert len(gzip.decompress(packed).splitlines()) == 70
    assert list((tmp_path / "made").iterdir()) == [tmp_path / result.path]
    again = shell("predict", ner, records, "--out", result.path)
    assert again.code == 1 and "--force" in again.err
    facts = json.loads(shell("predict", ner, records, "--out", result.path, "--force", "--json").out)
    assert (facts["path"], facts["records"], facts["bad"], facts["task"]) == (result.path, 70, 0, "ner")
    assert (tmp_path / result.path).read_bytes() == packed


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's devices")
def test_output_to_a_device(ner, records, shell, tmp_path):
    assert len(shell("predict", ner, records, "--out", "/dev/stdout").out.splitlines()) == 70
    assert shell("predict", ner, records, "--out", "/dev/null").path == "/dev/null"
    full = shell("predict", ner, records, "--out", "/dev/full", "--force")
    assert full.code == 1 and "error: the disk that holds /dev/full is full" in full.err
    assert Path("/dev/full").is_char_device() and list(tmp_path.glob("*.partial")) == []


BAD = ({"id": 1, "text": "car ci"}, "foo", {"id": 3, "body": "no text"}, {"id": 4, "text": "hepti. Neu ma"})


def test_bad_record_stops_after_the_records_before_it(ner, tmp_path):
    source = _write(tmp_path / "bad.jsonl", *BAD)
    predictions = predict.run(_options(ner, source)).lines
    with closing(predictions):
        assert json.loads(next(predictions))["id"] == 1
        with pytest.raises(SqueezeError, match=r"bad\.jsonl:2: invalid JSON.*--skip-bad"):
            next(predictions)
    out = tmp_path / "out.jsonl"
    with pytest.raises(SqueezeError, match=r"out\.jsonl\.partial holds the predictions of the first 1 records"):
        predict.run(_options(ner, source, out=str(out)))
    assert not out.exists()
    assert json.loads((tmp_path / "out.jsonl.partial").read_text())["id"] == 1


def test_skip_bad_writes_the_error_in_place(ner, tmp_path, capsys):
    source = _write(tmp_path / "bad.jsonl", *BAD)
    predictions = _predict(ner, source, skip_bad=True)
    assert [each["id"] for each in predictions] == [1, None, 3, 4]
    assert ["error" in each for each in predictions] == [False, True, True, False]
    assert f"{source}:3: " in predictions[2]["error"]
    assert "4 records, 2 of them bad" in capsys.readouterr().err
    outcome = predict.run(_options(ner, source, skip_bad=True, out=str(tmp_path / "out")))
    assert (outcome.facts["records"], outcome.facts["bad"]) == (4, 2)


def test_line_that_is_not_utf_8_is_a_bad_record(ner, tmp_path):
    source = tmp_path / "bad.jsonl"
    source.write_bytes(b'{"id": 1, "text": "car ci"}\n{"id": 2, "text": "caf\xe9"}\n{"id": 3, "text": "hepti"}\n')
    predictions = _predict(ner, source, skip_bad=True)
    assert ["error" in each for each in predictions] == [False, True, False]
    assert predictions[1]["error"].startswith(f"{source}:2: not UTF-8 text")
    lines = predict.run(_options(ner, source)).lines
    assert json.loads(next(lines))["id"] == 1
    with pytest.raises(SqueezeError, match=r"bad\.jsonl:2: not UTF-8 text.*--skip-bad"):
        next(lines)


def test_records_before_damaged_input_are_predicted(ner, tmp_path):
    source = tmp_path / "cut.jsonl.gz"
    lines = b"".join(b'{"id": %d, "text": "car ci"}\n' % number for number in range(3))
    packed = gzip.compress(lines)
    source.write_bytes(packed[:-8])  # without the checksum at the end
    predictions = predict.run(_options(ner, source, skip_bad=True)).lines
    assert [json.loads(line)["id"] for line in next(predictions).splitlines()] == [0, 1, 2]
    with pytest.raises(SqueezeError, match="gzip data is damaged"):
        next(predictions)


def test_all_records_bad_is_a_failure(ner, tmp_path):
    source = _write(tmp_path / "bad.jsonl", {"a": 1}, {"b": 1})
    with pytest.raises(SqueezeError, match="every record is bad"):
        _predict(ner, source, skip_bad=True)


def test_only_the_unencodable_record_is_bad(classifier, tmp_path):
    texts = ["@CHEMICAL$ ci @GENE$", "car @ hepti @ ma # ci #", "carci"]
    source = _write(tmp_path / "r.jsonl", *({"id": n, "text": text} for n, text in enumerate(texts)))
    predictions = _predict(classifier, source, task="relation", skip_bad=True)
    assert [each["id"] for each in predictions] == [0, 1, 2]
    assert predictions[0]["label"] in "abc" and "error" in predictions[2]


def test_keep_fields_adds_the_whole_record(classifier, tmp_path):
    record = {"id": 5, "text": "car ci", "label": "gold", "more": [1, None]}
    (predictions,) = _predict(classifier, _write(tmp_path / "r.jsonl", record), task="classification", keep_fields=True)
    assert predictions["record"] == record
    assert predictions["label"] in "abc"


def test_columns(classifier, tmp_path):
    source = _write(tmp_path / "r.jsonl", {"body": "car ci"})
    (predictions,) = _predict(classifier, source, task="classification", column=("text=body",))
    assert predictions["label"] in "abc"
    text = _write(tmp_path / "r.txt", "car ci")
    with pytest.raises(UsageError, match="no fields"):
        predict.run(_options(classifier, text, task="classification", column=("text=body",)))


def test_typed_texts(ner, classifier, shell):
    result = shell("predict", ner, "--text", "Hepti in fibneu", "--text", "ci")
    assert [json.loads(line)["id"] for line in result.out.splitlines()] == [1, 2]
    assert "--text is read as one text a line" not in result.err
    assert "label" in shell("predict", classifier, "--task", "classification", "--text", "Hepti").out
    assert "for every record of --text" in shell("predict", ner, "--text", "ci", "--dry-run").err
    for words, state in ((("--text", "ci", "r.txt"), "both were given"), ((), "neither was given")):
        result = shell("predict", ner, *words)
        assert (result.code, result.out) == (2, "")
        assert f"give either INPUT (or - in a pipe) or --text, and not both; {state}" in result.err


def test_tables_and_tagged_words(ner, classifier, tmp_path):
    (only,) = _predict(ner, _write(tmp_path / "r.jsonl", {"id": "7", "text": "Hepti in fibneu"}))
    for name, content in (("r.csv", "id,text\n7,Hepti in fibneu"), ("r.tsv", "text\tid\nHepti in fibneu\t7")):
        assert _predict(ner, _write(tmp_path / name, content)) == [only]
    table = _write(tmp_path / "n.tsv", "7\tHepti in fibneu")
    assert _predict(ner, table, column=("text=2",)) == [{**only, "id": 1}]
    words = _write(tmp_path / "r.conll", "Hepti B-Disease", "in O", "fibneu O")
    (tagged,) = _predict(ner, words)
    assert [e["words"] for e in tagged["entities"]] == [e["words"] for e in only["entities"]]
    assert _predict(ner, words, column=("word=1",)) == [tagged]
    with pytest.raises(UsageError, match=r"tagged words, which has no fields; write --column word=1"):
        _predict(ner, words, column=("text=1",))
    with pytest.raises(UsageError, match="tagged words, and classification needs texts"):
        _predict(classifier, words, task="classification")


def test_header_alone_is_no_record(ner, tmp_path):
    with pytest.raises(SqueezeError, match="has no record"):
        _predict(ner, _write(tmp_path / "r.csv", "id,text"))


def test_no_tokens_and_empty_text_have_no_entities(ner, tmp_path):
    predictions = _predict(ner, _write(tmp_path / "r.jsonl", {"id": 1, "tokens": []}, {"id": 2, "text": ""}))
    assert predictions == [{"id": 1, "entities": []}, {"id": 2, "entities": []}]


def test_tokens_have_no_offsets_and_no_pubtator(ner, tmp_path):
    source = _write(tmp_path / "r.jsonl", {"id": 1, "tokens": ["car", "ci", "hepti", "ma"]})
    (predictions,) = _predict(ner, source)
    assert predictions["entities"] and all("start" not in entity for entity in predictions["entities"])
    with pytest.raises(SqueezeError, match=r'r\.jsonl:1: PubTator needs a "text" that is not empty; .* --format jsonl'):
        list(predict.run(_options(ner, source, format="pubtator")).lines)


def test_counted_warnings_are_added_up(classifier, tmp_path, capsys):
    texts = ["car ci hepti ma neu ro pa thy hep ti"] * 20 + ["ci"] * 20
    source = _write(tmp_path / "r.jsonl", *({"text": text} for text in texts))
    predictions = _predict(classifier, source, task="classification", max_length=8, batch_size=4)
    err = capsys.readouterr().err
    assert len(predictions) == 40
    assert err.count("warning:") == 1
    assert "warning: 4 of 4 examples are longer than 8 tokens" in err
    assert "in all, 20 of 40 examples are longer than 8 tokens\n" in err


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


def test_plain_text_ignores_columns_of_the_fine_tuning(classifier, copy_of, tmp_path):
    path = copy_of(Path(classifier))
    task = {"name": "classification", "scheme": "single", "formulation": {"column": ["text=body"]}}
    write_manifest(path, task=task)
    (predictions,) = _predict(path, _write(tmp_path / "r.txt", "car ci"))
    (same,) = _predict(path, _write(tmp_path / "r.jsonl", {"body": "car ci"}))
    assert predictions["scores"] == pytest.approx(same["scores"])


def test_crf_is_decoded_with_its_scores(ner, copy_of, records):
    import torch
    from safetensors.torch import save_file

    path = copy_of(Path(ner))
    never = torch.tensor([0.0, -50.0, -50.0])  # into B-Disease and I-Disease
    scores = {"transitions": never.repeat(3, 1), "start": never.clone(), "end": torch.zeros(3)}
    save_file(scores, path / "head.safetensors", {"biosqueeze_head": "crf"})
    assert any(each["entities"] for each in _predict(ner, records))
    assert not any(each["entities"] for each in _predict(path, records))


def test_multi_label_by_the_config(copy_of, classifier, tmp_path):
    path = copy_of(Path(classifier))
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "problem_type": "multi_label_classification"}))
    (predictions,) = _predict(path, _write(tmp_path / "r.jsonl", {"text": "car ci"}), task="classification")
    assert predictions["labels"] == sorted(
        (k for k, v in predictions["scores"].items() if v >= 0.5), key=lambda k: -predictions["scores"][k]
    )
    assert sum(predictions["scores"].values()) != pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--task", "nar"), 2, "Did you mean 'ner'?"),
        (("--task", "classification"), 1, "no trained sequence-classification head"),
        (("--backend", "onnxruntime"), 1, "biosqueeze export"),
        (("--backend", "onxruntime"), 2, "Did you mean 'onnxruntime'?"),
        (("--json",), 2, "add --out"),
        (("--force",), 2, "--force needs --out"),
        (("--batch-size", "0"), 2, "at least 1, not 0"),
        (("--max-length", "2"), 2, "at least 3, not 2"),
        (("--out", "."), 1, "is a directory"),
        (("--format", "pubtator", "--skip-bad"), 2, "--skip-bad is only for --format jsonl"),
        (("--format", "pubtator", "--keep-fields"), 2, "--keep-fields is only for --format jsonl"),
    ],
)
def test_invalid_options_give_one_error_line(ner, records, shell, words, code, message):
    result = shell("predict", ner, records, *words)
    assert (result.code, result.out) == (code, "")
    assert message in result.err
    assert len([line for line in result.err.splitlines() if line.startswith("error: ")]) == 1


def test_checkpoint_without_a_task(pico_bert, classifier, ner, records, shell):
    result = shell("predict", pico_bert, records)
    assert result.code == 1 and "biosqueeze finetune" in result.err
    result = shell("predict", classifier, records)
    assert result.code == 2 and "--task classification, relation" in result.err
    result = shell("predict", classifier, records, "--task", "classification", "--format", "pubtator")
    assert result.code == 2 and "finds none" in result.err


def test_checkpoint_and_input_both_from_stdin(shell, monkeypatch):
    _pipe(monkeypatch, b"x\n")
    result = shell("predict - -")
    assert result.code == 2 and "the checkpoint cannot be - too" in result.err


def test_checkpoint_from_stdin(ner, records, shell):
    assert len(shell("predict -", records, stdin=f"{ner}\n").out.splitlines()) == 70


def test_plan_reads_no_record(ner, shell, monkeypatch):
    _pipe(monkeypatch, b"x\n")
    result = shell("predict", ner, "-", "--dry-run", "--out", "there.jsonl")
    assert (result.code, result.out) == (0, "")
    assert "there.jsonl" in result.err and "predict ner" in result.err
    assert sys.stdin.read() == "x\n"


def test_recipe_skips_a_finished_step(ner, records, shell, tmp_path):
    (tmp_path / "r.toml").write_text(f'[predict]\ncheckpoint = "{ner}"\ninput = "{records}"\n')
    first = shell("run r.toml")
    assert first.code == 0 and first.path == "r-run/predict"
    assert len((tmp_path / first.path).read_text().splitlines()) == 70
    assert "unchanged, skipped" in shell("run r.toml").err
    changed = shell("run r.toml --set predict.max-length=20")
    assert changed.code == 0 and "unchanged" not in changed.err
