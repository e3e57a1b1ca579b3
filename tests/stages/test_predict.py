import gzip
import io
import json
import os
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biosqueeze.cli.streams import write_lines
from biosqueeze.data.documents import read_pubtator
from biosqueeze.data.incoming import Incoming
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.stages import predict
from tests import pico

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
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in records))
    return path


def _pipe(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))


@pytest.fixture(scope="module")
def answerer(ner):
    options = _options(ner, "-", batch_size=4, max_length=12)
    return predict._load(options, predict._settle(options))


def _answers(answerer, texts):
    posed = answerer.pose([Incoming(f"r:{n}", {"id": n, "text": text}) for n, text in enumerate(texts)])
    answerer.answer(posed)
    return [item.answer["entities"] for item in posed.items]


def test_one_line_for_each_record_in_order(ner, records):
    made = _predict(ner, records, batch_size=8)
    given_ = [json.loads(line) for line in records.read_text().splitlines()]
    assert [one["id"] for one in made] == [one["id"] for one in given_]
    assert sum(len(one["entities"]) for one in made) > 50
    for one, record in zip(made, given_, strict=True):
        for entity in one["entities"]:
            assert entity["text"] == record["text"][entity["start"] : entity["end"]]
            assert 0 <= entity["score"] <= 1


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts=st.lists(TEXTS, min_size=1, max_size=6))
def test_offsets_are_those_of_the_text(answerer, texts):
    for text, entities in zip(texts, _answers(answerer, texts), strict=True):
        assert [entity["text"] for entity in entities] == [text[one["start"] : one["end"]] for one in entities]
        assert all(text[one["start"] : one["end"]].strip() for one in entities)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts=st.lists(TEXTS, min_size=2, max_size=12))
def test_company_does_not_change_an_answer(answerer, texts):
    together = _answers(answerer, texts)
    for text, entities in zip(texts, together, strict=True):
        (alone,) = _answers(answerer, [text])
        assert [(e["type"], e["start"], e["end"]) for e in alone] == [
            (e["type"], e["start"], e["end"]) for e in entities
        ]
        assert [e["score"] for e in alone] == pytest.approx([e["score"] for e in entities], abs=1e-5)


def test_company_does_not_change_a_class(classifier, records, tmp_path):
    together = _predict(classifier, records, task="classification", batch_size=7)
    for number in (0, 33, 69):
        one = tmp_path / f"{number}.jsonl"
        one.write_text(records.read_text().splitlines()[number])
        (alone,) = _predict(classifier, one, task="classification")
        assert alone["label"] == together[number]["label"]
        assert alone["scores"] == pytest.approx(together[number]["scores"], abs=1e-5)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts=st.lists(TEXTS.filter(str.strip), min_size=1, max_size=4))
def test_pubtator_can_be_read_again(answerer, tmp_path_factory, texts):
    posed = answerer.pose([Incoming("r", {"id": n, "text": text}) for n, text in enumerate(texts)], as_document=True)
    answerer.answer(posed)
    path = tmp_path_factory.mktemp("pubtator") / "made.pubtator"
    path.write_bytes("".join(item.pubtator() for item in posed.items).encode())
    for document, item in zip(read_pubtator(path), posed.items, strict=True):
        entities = item.answer["entities"]
        assert document.id == str(item.incoming.id)
        assert [(a.start, a.end, a.type) for a in document.annotations] == [
            (one["start"], one["end"], one["type"]) for one in entities
        ]


def test_pubtator_in_and_out(ner, tmp_path):
    title, abstract = "Hepti in fibneu", " ".join(pico.sentences(4, seed=3))
    source = _write(tmp_path / "in.pubtator", f"7|t|{title}", f"7|a|{abstract}", "", "8|t|Rosci", "8|a|")
    outcome = predict.run(_options(ner, source, format="pubtator", out=str(tmp_path / "out.pubtator")))
    first, second = read_pubtator(outcome.path)
    assert (first.text, second.text) == (f"{title}\n{abstract}", "Rosci")
    (one, _) = _predict(ner, source)
    assert [(a.start, a.end, a.text) for a in first.annotations] == [
        (e["start"], e["end"], e["text"]) for e in one["entities"]
    ]
    assert any(annotation.start > len(title) for annotation in first.annotations)


def test_long_texts_are_not_cut(ner, tmp_path):
    text = " ".join(pico.sentences(60))
    source = _write(tmp_path / "long.jsonl", {"text": text})
    (made,) = _predict(ner, source, max_length=16)
    assert max(entity["end"] for entity in made["entities"]) > len(text) * 0.9


def test_first_answers_come_before_the_input_ends(ner, records, monkeypatch):
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
        made = predict.run(_options(ner, "-", batch_size=4)).lines
        assert next(made).count("\n") == 4
        seen.set()
        rest = "".join(made)
    feeder.join()
    assert outcome == [True]
    assert rest.count("\n") == len(lines) - 4


def test_only_a_chunk_is_held():
    taken = []
    source = (taken.append(n) or n for n in range(10_000))
    sizes = []
    for chunk in predict._chunks(source, 100):
        sizes.append(len(chunk))
        assert len(taken) == sum(sizes)
    assert sizes[:5] == [100, 200, 400, 800, 1024]
    assert max(sizes) == predict.AT_ONCE and sum(sizes) == 10_000


def test_a_pipe_that_is_closed_ends_the_work():
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


def test_standard_output_holds_nothing_but_predictions(ner, records, shell, monkeypatch):
    _pipe(monkeypatch, gzip.compress(records.read_bytes()))
    said = shell("predict", ner, "-")
    assert said.code == 0
    assert [json.loads(line)["id"] for line in said.out.splitlines()] == [f"d{n}" for n in range(70)]
    assert "standard input is read as JSON lines" in said.err
    assert "70 records, " in said.err and "records/s" in said.err


def test_a_file_is_written_whole(ner, records, shell, tmp_path):
    said = shell("predict", ner, records, "--out", "made/all.jsonl.gz")
    assert said.path == "made/all.jsonl.gz"
    packed = (tmp_path / said.path).read_bytes()
    assert len(gzip.decompress(packed).splitlines()) == 70
    assert list((tmp_path / "made").iterdir()) == [tmp_path / said.path]
    again = shell("predict", ner, records, "--out", said.path)
    assert again.code == 1 and "--force" in again.err
    facts = json.loads(shell("predict", ner, records, "--out", said.path, "--force", "--json").out)
    assert (facts["path"], facts["records"], facts["bad"], facts["task"]) == (said.path, 70, 0, "ner")
    assert (tmp_path / said.path).read_bytes() == packed


BAD = ({"id": 1, "text": "car ci"}, "foo", {"id": 3, "body": "no text"}, {"id": 4, "text": "hepti. Neu ma"})


def test_a_bad_record_stops_the_work_where_it_stands(ner, tmp_path):
    source = _write(tmp_path / "bad.jsonl", *BAD)
    made = predict.run(_options(ner, source)).lines
    with closing(made):
        assert json.loads(next(made))["id"] == 1
        with pytest.raises(SqueezeError, match=r"bad\.jsonl:2: no JSON.*--skip-bad"):
            next(made)
    out = tmp_path / "out.jsonl"
    with pytest.raises(SqueezeError, match=r"out\.jsonl\.partial holds the answers to the first 1"):
        predict.run(_options(ner, source, out=str(out)))
    assert not out.exists()
    assert json.loads((tmp_path / "out.jsonl.partial").read_text())["id"] == 1


def test_bad_records_answer_with_their_error(ner, tmp_path, capsys):
    source = _write(tmp_path / "bad.jsonl", *BAD)
    made = _predict(ner, source, skip_bad=True)
    assert [one["id"] for one in made] == [1, None, 3, 4]
    assert ["error" in one for one in made] == [False, True, True, False]
    assert f"{source}:3: " in made[2]["error"]
    assert "4 records, 2 of them bad" in capsys.readouterr().err
    outcome = predict.run(_options(ner, source, skip_bad=True, out=str(tmp_path / "out")))
    assert (outcome.facts["records"], outcome.facts["bad"]) == (4, 2)


def test_a_line_that_is_no_utf_8_is_a_bad_record(ner, tmp_path):
    source = tmp_path / "bad.jsonl"
    source.write_bytes(b'{"id": 1, "text": "car ci"}\n{"id": 2, "text": "caf\xe9"}\n{"id": 3, "text": "hepti"}\n')
    made = _predict(ner, source, skip_bad=True)
    assert ["error" in one for one in made] == [False, True, False]
    assert made[1]["error"].startswith(f"{source}:2: not UTF-8 text")
    lines = predict.run(_options(ner, source)).lines
    assert json.loads(next(lines))["id"] == 1
    with pytest.raises(SqueezeError, match=r"bad\.jsonl:2: not UTF-8 text.*--skip-bad"):
        next(lines)


def test_what_stands_before_the_damage_is_answered(ner, tmp_path):
    source = tmp_path / "cut.jsonl.gz"
    lines = b"".join(b'{"id": %d, "text": "car ci"}\n' % number for number in range(3))
    packed = gzip.compress(lines)
    source.write_bytes(packed[:-8])  # the lines, without the sum that ends them
    made = predict.run(_options(ner, source, skip_bad=True)).lines
    assert [json.loads(line)["id"] for line in next(made).splitlines()] == [0, 1, 2]
    with pytest.raises(SqueezeError, match="gzip data is damaged"):
        next(made)


def test_when_all_are_bad_the_work_has_failed(ner, tmp_path):
    source = _write(tmp_path / "bad.jsonl", {"a": 1}, {"b": 1})
    with pytest.raises(SqueezeError, match="every record is bad"):
        _predict(ner, source, skip_bad=True)


def test_a_record_that_cannot_be_encoded_is_the_only_bad_one(classifier, tmp_path):
    texts = ["@CHEMICAL$ ci @GENE$", "car @ hepti @ ma # ci #", "carci"]
    source = _write(tmp_path / "r.jsonl", *({"id": n, "text": text} for n, text in enumerate(texts)))
    made = _predict(classifier, source, task="relation", skip_bad=True)
    assert [one["id"] for one in made] == [0, 1, 2]
    assert made[0]["label"] in "abc" and "error" in made[2]


def test_whole_records_are_kept_beside_their_predictions(classifier, tmp_path):
    record = {"id": 5, "text": "car ci", "label": "gold", "more": [1, None]}
    (made,) = _predict(classifier, _write(tmp_path / "r.jsonl", record), task="classification", keep_fields=True)
    assert made["record"] == record
    assert made["label"] in "abc"


def test_columns(classifier, tmp_path):
    source = _write(tmp_path / "r.jsonl", {"body": "car ci"})
    (made,) = _predict(classifier, source, task="classification", column=("text=body",))
    assert made["label"] in "abc"
    text = _write(tmp_path / "r.txt", "car ci")
    with pytest.raises(UsageError, match="no fields"):
        predict.run(_options(classifier, text, task="classification", column=("text=body",)))


def test_no_tokens_are_answered_as_an_empty_text_is(ner, tmp_path):
    made = _predict(ner, _write(tmp_path / "r.jsonl", {"id": 1, "tokens": []}, {"id": 2, "text": ""}))
    assert made == [{"id": 1, "entities": []}, {"id": 2, "entities": []}]


def test_tokens_have_no_offsets_and_no_pubtator(ner, tmp_path):
    source = _write(tmp_path / "r.jsonl", {"id": 1, "tokens": ["car", "ci", "hepti", "ma"]})
    (made,) = _predict(ner, source)
    assert made["entities"] and all("start" not in entity for entity in made["entities"])
    with pytest.raises(SqueezeError, match=r'r\.jsonl:1: PubTator wants an "id" and a "text"'):
        list(predict.run(_options(ner, source, format="pubtator")).lines)


def test_a_warning_is_said_once(classifier, tmp_path, capsys):
    texts = ["car ci hepti ma neu ro pa thy hep ti"] * 20 + ["ci"] * 20
    source = _write(tmp_path / "r.jsonl", *({"text": text} for text in texts))
    made = _predict(classifier, source, task="classification", max_length=8, batch_size=4)
    err = capsys.readouterr().err
    assert len(made) == 40
    assert err.count("warning:") == 1
    assert "warning: 4 of 4 examples are longer than 8 tokens" in err
    assert "in all, 20 of 40 examples are longer than 8 tokens\n" in err


def test_the_one_that_cannot_be_encoded_is_found(answerer):
    class Picky(type(answerer.task)):
        def encode(self, examples, *rest):
            if any("hepti" in example.words for example in examples):
                raise SqueezeError("the record holds hepti")
            return super().encode(examples, *rest)

    texts = ["car ci", "hepti", "ma neu"]
    posed = replace(answerer, task=Picky()).pose([Incoming(f"r:{n}", {"text": text}) for n, text in enumerate(texts)])
    assert [item.fault for item in posed.items] == [None, "r:1: holds hepti", None]
    assert {window.example for window in posed.windows} == {0, 1}


def test_the_columns_of_the_training_mean_nothing_to_plain_text(classifier, copy_of, tmp_path):
    path = copy_of(Path(classifier))
    task = {"name": "classification", "scheme": "single", "formulation": {"column": ["text=body"]}}
    (path / "biosqueeze.json").write_text(json.dumps({"format": 1, "task": task}))
    (made,) = _predict(path, _write(tmp_path / "r.txt", "car ci"))
    (same,) = _predict(path, _write(tmp_path / "r.jsonl", {"body": "car ci"}))
    assert made["scores"] == pytest.approx(same["scores"])


def test_a_crf_is_decoded_with_its_scores(ner, copy_of, records):
    import torch
    from safetensors.torch import save_file

    path = copy_of(Path(ner))
    never = torch.tensor([0.0, -50.0, -50.0])  # into B-Disease and I-Disease
    scores = {"transitions": never.repeat(3, 1), "start": never.clone(), "end": torch.zeros(3)}
    save_file(scores, path / "head.safetensors", {"biosqueeze_head": "crf"})
    assert any(one["entities"] for one in _predict(ner, records))
    assert not any(one["entities"] for one in _predict(path, records))


def test_many_labels_by_the_config(copy_of, classifier, tmp_path):
    path = copy_of(Path(classifier))
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "problem_type": "multi_label_classification"}))
    (made,) = _predict(path, _write(tmp_path / "r.jsonl", {"text": "car ci"}), task="classification")
    assert made["labels"] == sorted(
        (k for k, v in made["scores"].items() if v >= 0.5), key=lambda k: -made["scores"][k]
    )
    assert sum(made["scores"].values()) != pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--task", "nar"), 2, "Did you mean 'ner'?"),
        (("--task", "classification"), 1, "no trained sequence-classification head"),
        (("--backend", "onnxruntime"), 1, "biosqueeze export"),
        (("--backend", "onxruntime"), 2, "Did you mean 'onnxruntime'?"),
        (("--json",), 2, "add --out"),
        (("--force",), 2, "--force means nothing without --out"),
        (("--batch-size", "0"), 2, "give 1 or more"),
        (("--max-length", "2"), 2, "give 3 or more"),
        (("--out", "."), 1, "is a directory"),
        (("--format", "pubtator", "--skip-bad"), 2, "no place for them"),
        (("--format", "pubtator", "--keep-fields"), 2, "no place for them"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(ner, records, shell, words, code, says):
    said = shell("predict", ner, records, *words)
    assert (said.code, said.out) == (code, "")
    assert says in said.err
    assert len([line for line in said.err.splitlines() if line.startswith("error: ")]) == 1


def test_checkpoints_without_a_task_say_what_to_do(pico_bert, classifier, ner, records, shell):
    said = shell("predict", pico_bert, records)
    assert said.code == 1 and "biosqueeze finetune" in said.err
    said = shell("predict", classifier, records)
    assert said.code == 2 and "--task classification, relation" in said.err
    said = shell("predict", classifier, records, "--task", "classification", "--format", "pubtator")
    assert said.code == 2 and "finds none" in said.err


def test_two_dashes(shell, monkeypatch):
    _pipe(monkeypatch, b"x\n")
    said = shell("predict", "-", "-")
    assert said.code == 2 and "the checkpoint cannot be - too" in said.err


def test_a_checkpoint_can_come_through_the_pipe(ner, records, shell):
    assert len(shell("predict", "-", records, stdin=f"{ner}\n").out.splitlines()) == 70


def test_a_plan_reads_no_record(ner, shell, monkeypatch):
    _pipe(monkeypatch, b"x\n")
    said = shell("predict", ner, "-", "--dry-run", "--out", "there.jsonl")
    assert (said.code, said.out) == (0, "")
    assert "there.jsonl" in said.err and "predict ner" in said.err
    assert sys.stdin.read() == "x\n"


def test_in_a_recipe_it_is_skipped_when_nothing_changed(ner, records, shell, tmp_path):
    (tmp_path / "r.toml").write_text(f'[predict]\ncheckpoint = "{ner}"\ninput = "{records}"\n')
    first = shell("run", "r.toml")
    assert first.code == 0 and first.path == "r-run/predict"
    assert len((tmp_path / first.path).read_text().splitlines()) == 70
    assert "unchanged, skipped" in shell("run", "r.toml").err
    changed = shell("run", "r.toml", "--set", "predict.max-length=20")
    assert changed.code == 0 and "unchanged" not in changed.err
