"""Guessing the task kind of a data source from its first records."""

import builtins
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from biosqueeze.data.records.sample import take_sample
from biosqueeze.errors import SqueezeError
from biosqueeze.tasks import Dataset, Formulation, open_task
from biosqueeze.tasks.sniffing import Guess, guess, read_available
from tests.tasks.sources import DATA, lines, squad, write_data


@pytest.mark.parametrize("kind", sorted(DATA))
def test_the_kind_is_guessed_and_read(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_data(tmp_path, kind)
    guessed = guess(source, Formulation())
    assert guessed.kind == kind
    assert kind not in guessed.others
    assert capsys.readouterr().err == ""
    assert list(read_available(open_task(kind), source).splits) == ["train", "dev", "test"]


def bioasq(kind: str, answer: object) -> str:
    question = {"id": "5a", "body": "Does it bind?", "type": kind, "exact_answer": answer}
    return json.dumps({"questions": [{**question, "snippets": [{"text": "It binds to DNA."}]}]})


BIOC = {"documents": [{"id": "1", "passages": [{"offset": 0, "text": "Zinc.", "annotations": []}]}]}
PUBTATOR = "1|t|Zinc in gout\n1|a|Rest.\n1\t0\t4\tZinc\tChemical\tD1\n"
COLUMNS = "Trial\tO\nof\tO\naspirin\tB-Drug\n"
HOC = "labels\tsentence\tindex\n" + "".join(f"0_0,1_1\tA text.\t11_s{n}\n" for n in range(9))
TWO_TEXTS = {"sentence1": "A study.", "sentence2": "Another one."}


@pytest.mark.parametrize(
    ("name", "text", "kinds"),
    [
        ("train.tsv", COLUMNS, ["ner", "pico"]),
        ("train.conll", COLUMNS, ["ner", "pico"]),
        ("Train.TSV", COLUMNS, ["ner", "pico"]),
        ("train.tsv", f"-DOCSTART- (7)\n\n{COLUMNS}", ["ner", "pico"]),
        ("train.txt", "aspirin NN B-Drug\nhelps VB O\n", ["ner", "pico"]),
        ("train.tsv", COLUMNS.replace("Drug", "INT"), ["pico", "ner"]),
        ("NCBItrainset_corpus.txt", PUBTATOR, ["ner", "pico"]),
        ("CDR_TrainingSet.PubTator.txt", PUBTATOR, ["ner", "pico"]),
        ("train.pubtator", PUBTATOR.replace("Chemical\tD1", "INT"), ["pico", "ner"]),
        ("train.pubtator", PUBTATOR.replace("Chemical", "INT") + "1\tBind\tD1\tD2\tNovel\n", ["pico", "ner"]),
        ("train.json", json.dumps(BIOC, indent=1), ["ner", "pico"]),
        ("train.jsonl", lines({"tokens": ["p53", "binds"], "tags": ["B-Gene", "O"]}), ["ner", "pico"]),
        ("train.jsonl", lines({"text": "p53", "entities": [{"start": 0, "end": 3, "label": "PAR"}]}), ["pico", "ner"]),
        ("dev-v1.1.json", squad(1), ["qa"]),
        ("dev.json", squad(1), ["qa"]),
        ("BioASQ-training7b.json", bioasq("factoid", ["DNA"]), ["qa"]),
        ("7B1_golden.json", bioasq("factoid", ["DNA"]), ["qa"]),
        ("7B1_golden.json", bioasq("yesno", "yes"), ["nli"]),
        ("ori_pqal.json", '{"1": {"QUESTION": "?", "CONTEXTS": [], "final_decision": "yes"}}', ["nli"]),
        ("mli_train_v1.jsonl", lines({**TWO_TEXTS, "gold_label": "entailment"}), ["nli"]),
        ("train.jsonl", lines({**TWO_TEXTS, "label": 1}, {**TWO_TEXTS, "label": 0}), ["nli", "similarity"]),
        ("train.jsonl", lines({**TWO_TEXTS, "score": 1}, {**TWO_TEXTS, "score": 0}), ["similarity"]),
        ("train.json", json.dumps([{"text": "A.", "label": "x"}, {"text": "B.", "label": "y"}]), ["classification"]),
        ("train.tsv", "@GENE$ causes @DISEASE$ here.\t1\nNo @GENE$ or @DISEASE$.\t0\n", ["relation", "classification"]),
        ("train.csv", 'text,label\n"One, two",x\n', ["classification"]),
        ("test.tsv", HOC, ["classification"]),
    ],
)
def test_the_kinds_of_one_file(name: str, text: str, kinds: list[str], tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert guess(str(tmp_path), Formulation()) == Guess(kinds[0], tuple(kinds[1:]))


@pytest.mark.parametrize(("kind", "answer", "task"), [("yesno", "yes", "nli"), ("factoid", ["DNA"], "qa")])
def test_bioasq_with_its_documents_is_no_bioc(kind: str, answer: object, task: str, tmp_path: Path) -> None:
    questions = json.loads(bioasq(kind, answer))["questions"]
    (tmp_path / "training11b.json").write_text(json.dumps({"questions": [{**questions[0], "documents": ["http://x"]}]}))
    assert guess(str(tmp_path), Formulation()) == Guess(task, ())


def test_records_with_documents_are_no_bioc(tmp_path: Path) -> None:
    rows = [{"text": "<< A >> binds [[ B ]].", "label": label, "documents": ["1"]} for label in "xy"]
    (tmp_path / "train.json").write_text(json.dumps(rows))
    assert len(open_task("relation").read(str(tmp_path), ("train",)).splits["train"]) == 2
    (tmp_path / "train.json").write_text(
        json.dumps([{"tokens": ["p53"], "tags": ["B-Gene"], "documents": [{"id": 1}]}])
    )
    assert len(open_task("ner").read(str(tmp_path), ("train",)).splits["train"]) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [("train.bin", "?"), ("README.md", "text\tlabel\n"), ("pmids.txt", "123\n"), ("train.txt", "A sentence.\n")],
)
def test_other_sources_are_refused(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SqueezeError, match=r"no kind of task reads .* --task ner"):
        guess(str(tmp_path), Formulation())


def test_a_missing_directory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SqueezeError, match="there is no directory"):
        guess(str(tmp_path / "none"), Formulation())


def test_generated_text_is_ner() -> None:
    assert guess("demo:ner", Formulation()) == Guess("ner", ("pico",))


def test_a_saved_data_set(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([{"text": f"Text {n}.", "label": "ab"[n % 2]} for n in range(30)])
    datasets.DatasetDict({"train": rows, "validation": rows}).save_to_disk(tmp_path / "saved")
    source = str(tmp_path / "saved")
    assert len(take_sample(source).records()) == 20
    assert guess(source, Formulation()).kind == "classification"
    assert list(read_available(open_task("classification"), source).splits) == ["train", "dev"]


def test_options_that_a_kind_does_not_use_exclude_it(tmp_path: Path) -> None:
    with pytest.raises(SqueezeError, match="no kind"):
        guess(write_data(tmp_path, "ner"), Formulation(negative="none"))


def test_named_columns_are_used(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("abstract\tkind\nA study.\tx\n")
    assert guess(str(tmp_path), Formulation(column=("text=abstract", "label=kind"))).kind == "classification"


def test_one_file_is_opened_and_only_its_beginning_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_data(tmp_path, "classification")
    with (tmp_path / "train.tsv").open("a") as file:
        file.writelines(f"Text {n}.\ta\n" for n in range(30))
        file.write("malformed\n")
    opened: list[Path] = []
    open_path: Callable[..., object] = Path.open
    monkeypatch.setattr(Path, "open", lambda path, *args, **kw: opened.append(path) or open_path(path, *args, **kw))
    monkeypatch.setattr(builtins, "open", lambda *_args, **_kw: pytest.fail("opened without Path"))
    assert guess(source, Formulation()).kind == "classification"
    assert opened == [tmp_path / "train.tsv"]


def test_a_long_first_record_is_cut(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(
        lines({"text": "A.", "label": "x"}, {"text": "long " * 300_000, "label": "y"})
    )
    sample = take_sample(str(tmp_path))
    assert [record.values["text"] for record in sample.records()] == ["A."]


@pytest.mark.parametrize("text", ["", "\n", "[", "[]", "{", '{"a"', '[{"a": 1}, {"b', "5", "nonsense"])
def test_incomplete_json_has_no_more_records(text: str, tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text(text)
    sample = take_sample(str(tmp_path))
    assert [dict(record.values) for record in sample.records()] == ([{"a": 1}] if '"b' in text else [])


def test_existing_splits_are_read(tmp_path: Path) -> None:
    write_data(tmp_path, "ner")
    (tmp_path / "dev.tsv").unlink()
    assert list(read_available(open_task("ner"), str(tmp_path)).splits) == ["train", "test"]


def test_a_damaged_split_is_an_error(tmp_path: Path) -> None:
    write_data(tmp_path, "ner")
    (tmp_path / "dev.tsv").write_text("a\tO\nb\n")
    with pytest.raises(SqueezeError, match=r"dev\.tsv:2"):
        read_available(open_task("ner"), str(tmp_path))


def test_a_test_split_without_labels_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_data(tmp_path, "classification")
    (tmp_path / "test.tsv").unlink(missing_ok=True)
    (tmp_path / "test.jsonl").write_text('{"text": "A drug was given."}\n')
    assert list(read_available(open_task("classification"), str(tmp_path)).splits) == ["train", "dev"]
    assert "warning: " in (said := capsys.readouterr().err)
    assert "test is left out, because it cannot be scored: " in said
    assert "test.jsonl:1: no column for 'label'" in said


def test_all_splits_are_tried_if_no_name_shows_any(tmp_path: Path) -> None:
    assert list(read_available(open_task("ner"), "demo:ner").splits) == ["train", "dev", "test"]
    with pytest.raises(SqueezeError, match="no train split"):
        read_available(open_task("ner"), str(tmp_path))


def test_a_kind_may_know_splits_that_no_file_is_named_after(tmp_path: Path) -> None:
    """PubMedQA's files are ori_pqal.json and test_ground_truth.json, and have all splits."""
    (tmp_path / "ori_pqal.json").write_text("{}")
    (tmp_path / "test_ground_truth.json").write_text("{}")
    assert open_task("nli").splits(str(tmp_path)) == ("train", "dev", "test")
    assert open_task("qa").splits(str(tmp_path)) == ("test",)


def test_the_data_are_read_once(tmp_path: Path) -> None:
    calls = []

    class Counting:
        def splits(self, source: str) -> tuple[str, ...]:
            return ("train", "test")

        def read(self, source: str, splits: tuple[str, ...]) -> Dataset:
            calls.append(splits)
            return Dataset(dict.fromkeys(splits, ()), (), "single")

    assert list(read_available(Counting(), str(tmp_path)).splits) == ["train", "test"]
    assert calls == [("train", "test")]


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "notes.docx").write_text("?")
    (tmp_path / "samples.tsv").write_text("text\tlabel\n")
    with pytest.raises(SqueezeError, match=r"notes\.docx has none of the suffixes.*samples\.tsv has none of train"):
        guess(str(tmp_path), Formulation())


def test_the_reasons_of_every_kind_are_named(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"body": "A text."}\n')
    with pytest.raises(SqueezeError, match=r"train\.jsonl was tried\): as classification: .*no column for 'text'"):
        guess(str(tmp_path), Formulation())


def test_every_damaged_split_is_named(tmp_path: Path) -> None:
    write_data(tmp_path, "ner")
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("a\tO\nb\n")
    with pytest.raises(SqueezeError, match=r"train\.tsv:2.* \| .*dev\.tsv:2"):
        read_available(open_task("ner"), str(tmp_path))
