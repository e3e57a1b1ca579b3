"""Layouts of published data that look like another one: each is read as what it is, or the error names the way out."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from biosqueeze.data.records.incoming import open_input
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.tasks import Formulation, open_task
from biosqueeze.tasks.readers.tag_columns import unlabelled_sentence
from biosqueeze.tasks.sniffing import guess

WORDS = ("In", "TP53", "cells", "of", "mice")
TAGS = ("O", "B-Gene", "O", "O", "O")


def lay_out(folder: Path, files: Mapping[str, str | Sequence[Any]]) -> Path:
    """Write files; a list is written as JSON lines."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else "\n".join(map(json.dumps, content)))
    return folder


def both(suffix: str, content: str | Sequence[Any]) -> dict[str, str | Sequence[Any]]:
    """Return the content as train and dev."""
    return {f"{split}{suffix}": content for split in ("train", "dev")}


def read(kind: str, folder: Path, *column: str) -> Any:
    return open_task(kind, Formulation(column=column)).read(str(folder), ("train", "dev"))


def guess_of(folder: Path) -> str:
    return guess(str(folder), Formulation()).kind


def columns(*rows: str, sentences: int = 3) -> str:
    return "\n\n".join(["\n".join(rows)] * sentences) + "\n"


@pytest.mark.parametrize(
    ("suffix", "rows", "named"),
    [
        (".csv", ["text,treatment,diagnosis,other", *['"in study 1 mice",1,0,1'] * 9], "'text', 'treatment'"),
        (".csv", ["Sentence #,Word,POS,Tag", *["1,mice,NN,O", "1,TP53,NN,B-Gene"] * 9], "'Word', 'POS'"),
        (".tsv", ["text\tsad\tmad", *["in study\t0\t1", "of mice\t1\t0"] * 9], "'text', 'sad'"),
    ],
)
def test_a_header_of_another_kind_is_no_pair(tmp_path: Path, suffix: str, rows: list[str], named: str) -> None:
    lay_out(tmp_path, both(suffix, "\n".join(rows)))
    with pytest.raises(SqueezeError, match=f"{named}.* looks like a header with unknown names"):
        read("nli", tmp_path)
    with pytest.raises(SqueezeError, match="no kind of task reads"):
        guess_of(tmp_path)


@pytest.mark.parametrize("label", ["pos", "question"])
def test_a_label_with_a_common_name_is_no_header(tmp_path: Path, label: str) -> None:
    lay_out(tmp_path, both(".tsv", "".join(f"study {n} of mice\t{name}\n" for n, name in enumerate((label, "other")))))
    assert [example.gold for example in read("classification", tmp_path).splits["train"]] == [label, "other"]


def test_one_column_cannot_have_words_and_tags(tmp_path: Path) -> None:
    rows = [f"{tag}\t{word}\tNN" for word, tag in zip(WORDS, TAGS, strict=True)]
    lay_out(tmp_path, both(".tsv", columns(*rows)))
    with pytest.raises(UsageError, match=r"column 1 of .* both the words and the tags; name the other one too"):
        read("ner", tmp_path, "tag=1")
    assert read("ner", tmp_path, "tag=1", "word=2").splits["train"][0].words == WORDS


def test_a_header_of_words_and_tags_is_named(tmp_path: Path) -> None:
    rows = [f"{word}\t{tag}" for word, tag in zip(WORDS, TAGS, strict=True)]
    lay_out(tmp_path, both(".tsv", "Word\tTag\n" + columns(*rows)))
    assert guess_of(tmp_path) == "ner"
    with pytest.raises(SqueezeError, match="if this row is a header: --column word=Word --column tag=Tag"):
        read("ner", tmp_path)
    assert read("ner", tmp_path, "word=Word", "tag=Tag").labels == ("O", "B-Gene")


def test_tags_of_words_are_a_warning_as_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay_out(tmp_path, both(".tsv", "Wort\tEtikett\n" + "mice\tO\nTP53\tB-Gene\n" * 9))
    read("classification", tmp_path)
    assert "give --task ner" in capsys.readouterr().err


def test_numbers_of_words_are_no_words(tmp_path: Path) -> None:
    rows = [f"{number}\t{word}\t{tag}" for number, (word, tag) in enumerate(zip(WORDS, TAGS, strict=True), 1)]
    lay_out(tmp_path, both(".tsv", columns(*rows)))
    with pytest.raises(SqueezeError, match=r"tsv:1: the column of the words counts from 1 to 5; .* --column word=2"):
        guess_of(tmp_path)
    assert read("ner", tmp_path, "word=2").splits["train"][0].words == WORDS


@pytest.mark.parametrize("before", ["TP53\tNN\tB-Gene\n\n", ""])
def test_a_list_of_numbers_in_a_text_is_read(tmp_path: Path, before: str) -> None:
    """As in LINNAEUS, whose words have no column beside the tags."""
    numbers = "\n".join(f"{number}\tCD\tO" for number in range(1, 8)) + "\n\nmice\tNN\tO\nTP53\tNN\tB-Gene\n"
    lay_out(tmp_path, both(".tsv", before + numbers if before else numbers.replace("\tCD", "").replace("\tNN", "")))
    sentences = read("ner", tmp_path).splits["train"]
    assert ("1", "2", "3", "4", "5", "6", "7") in [sentence.words for sentence in sentences]


def texts(*labels: Any) -> list[dict[str, Any]]:
    return [{"text": f"study {number} of mice", "labels": label} for number, label in enumerate(labels)]


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ([[0, 1, 1], [1, 0, 0]], "lists of 0 and 1, a place for each label; write the names"),
        ([[0, 0], [1, 0]], "lists of 0 and 1"),
        ([[{"start": 0, "end": 4, "labels": ["Drug"]}]], "the labels are objects"),
        ([[[0, 5, "Study"]], []], "or lists, and names were expected; spans of a text are read with --task ner"),
    ],
)
def test_lists_without_the_names_of_labels(tmp_path: Path, labels: list[Any], problem: str) -> None:
    lay_out(tmp_path, both(".jsonl", texts(*labels)))
    with pytest.raises(SqueezeError, match=problem):
        read("classification", tmp_path)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (([0], [1], [0, 1]), ("0", "1")),
        (("['care', 'cause']", "['care']", "[]"), ("care", "cause")),
        (('["care", "cause"]', '["care"]', "[]"), ("care", "cause")),
    ],
)
def test_lists_of_labels(tmp_path: Path, labels: tuple[Any, ...], expected: tuple[str, ...]) -> None:
    lay_out(tmp_path, both(".jsonl", texts(*labels)))
    data = read("classification", tmp_path)
    assert (data.scheme, data.labels) == ("multi", expected)


@pytest.mark.parametrize(("first", "warned"), [("care, cause", True), ("care, harm", False)])
def test_commas_between_labels(tmp_path: Path, first: str, warned: bool, capsys: pytest.CaptureFixture[str]) -> None:
    lay_out(tmp_path, both(".jsonl", texts(first, "care", "cause")))
    assert read("classification", tmp_path).scheme == "single"
    assert ("'care, cause' is one label, although each part is a label too" in capsys.readouterr().err) == warned


def test_numbered_tags_have_the_names_of_their_column(tmp_path: Path) -> None:
    chunks, tags = (
        {"feature": {"names": names, "_type": "ClassLabel"}} for names in (["O", "B-NP", "I-NP"], ["O", "B-Gene"])
    )
    infos = {"default": {"features": {"tokens": {}, "chunk_tags": chunks, "ner_tags": tags}}}
    records = [{"tokens": ["TP53", "of"], "chunk_tags": [1, 2], "ner_tags": [1, 0]}]
    lay_out(tmp_path, {**both(".jsonl", records), "dataset_infos.json": json.dumps(infos)})
    assert read("ner", tmp_path).splits["train"][0].tags == ("B-Gene", "O")
    assert read("ner", tmp_path, "tag=chunk_tags").splits["train"][0].tags == ("B-NP", "I-NP")
    del infos["default"]["features"]["ner_tags"]
    infos["default"]["features"]["pos_tags"] = tags
    lay_out(tmp_path, {"dataset_infos.json": json.dumps(infos)})
    with pytest.raises(SqueezeError, match=r"labels\.txt"):
        read("ner", tmp_path)


def test_names_of_tags_that_differ_between_configurations(tmp_path: Path) -> None:
    lists = (["O", "B-Gene"], ["O", "B-Gene"], ["O", "B-Drug"])
    infos = {
        f"config{number}": {"features": {"ner_tags": {"feature": {"names": names, "_type": "ClassLabel"}}}}
        for number, names in enumerate(lists)
    }
    records = [{"tokens": ["TP53", "of"], "ner_tags": [1, 0]}]
    lay_out(tmp_path, {**both(".jsonl", records), "dataset_infos.json": json.dumps(infos)})
    with pytest.raises(SqueezeError, match=r"labels\.txt, .*dataset_infos\.json .* several lists that differ"):
        read("ner", tmp_path)
    del infos["config2"]
    lay_out(tmp_path, {"dataset_infos.json": json.dumps(infos)})
    assert read("ner", tmp_path).splits["train"][0].tags == ("B-Gene", "O")


def test_saved_data_with_numbered_tags(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([{"tokens": ["TP53", "of"], "tags": [1, 0]}] * 3)
    datasets.DatasetDict({"train": rows, "validation": rows}).save_to_disk(tmp_path)
    with pytest.raises(SqueezeError, match=r"labels\.txt"):
        read("ner", tmp_path)
    lay_out(tmp_path, {"labels.txt": "O\nB-Gene\n"})
    assert guess_of(tmp_path) == "ner"
    assert read("ner", tmp_path).splits["train"][0].tags == ("B-Gene", "O")


def test_ends_that_are_the_last_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spans = [[0, 3, "Gene"], [8, 11, "Species"]]
    lay_out(tmp_path, both(".jsonl", [{"text": "TP53 of mice", "entities": spans}]))
    read("ner", tmp_path)
    said = " ".join(capsys.readouterr().err.split())
    assert "1 of 2 entities end within a word" not in said
    lay_out(tmp_path, both(".jsonl", [{"text": "TP53 of mice now", "entities": spans}]))
    read("ner", tmp_path)
    assert "train.jsonl:1: 2 of 2 entities end within a word" in " ".join(capsys.readouterr().err.split())


TOKENS = {"tokens": ["TP53", "of"], "ner_tags": ["B-Gene", "O"]}
TEXT = {"text": "TP53 of mice", "entities": [[0, 4, "Gene"]]}
TRAINING = {"ner": columns("TP53\tB-Gene", "of\tO"), "relation": "index\tsentence\tlabel\n"}
RELATIONS = [f"{n}\t@GENE$ binds @CHEMICAL$ in study {n}\t{label}" for n, label in enumerate(("yes", "no", "no"))]
QUESTION = {"body": "Is it?", "type": "yesno", "snippets": [{"text": "It is."}], "id": "1"}
ANSWERED = json.dumps({"questions": [{**QUESTION, "id": answer, "exact_answer": answer} for answer in ("yes", "no")]})


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        ("ner", {**both(".tsv", TRAINING["ner"]), "test.tsv": "mice\nof\n\nEGFR\n"}),
        ("ner", {**both(".jsonl", [{"tokens": ["TP53"], "tags": ["B-Gene"]}]), "test.jsonl": [{"tokens": ["EGFR"]}]}),
        ("ner", {**both(".jsonl", [TOKENS]), "test.jsonl": [{"tokens": ["EGFR", "of"], "ner_tags": []}]}),
        ("ner", {**both(".jsonl", [TOKENS]), "test.jsonl": [{"tokens": ["EGFR"], "NER_tags": [None]}]}),
        ("ner", {**both(".jsonl", [TEXT]), "test.jsonl": [{"text": "EGFR of mice"}]}),
        ("ner", {**both(".jsonl", [TEXT]), "test.jsonl": [{"text": "EGFR of mice", "entities": None}]}),
        ("pico", {**both(".jsonl", [TEXT]), "test.jsonl": [{"text": "EGFR of mice", "label": []}]}),
        (
            "relation",
            {
                **both(".tsv", TRAINING["relation"] + "\n".join(RELATIONS)),
                "test.tsv": "index\tsentence\n1\t@GENE$ inhibits @CHEMICAL$",
            },
        ),
        ("nli", {**both(".json", ANSWERED), "test.json": json.dumps({"questions": [QUESTION]})}),
    ],
)
def test_a_test_split_without_labels(kind: str, files: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay_out(tmp_path, files)
    assert set(read(kind, tmp_path).splits) == {"train", "dev"}
    assert "is not compared with train and dev" in capsys.readouterr().err
    with pytest.raises(SqueezeError):
        open_task(kind).read(str(tmp_path), ("test",))


@pytest.mark.parametrize(("kind", "label"), [("nli", -1), ("nli", "-1"), ("similarity", -1.0), ("classification", -1)])
def test_a_test_split_of_minus_ones(kind: str, label: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [{"text": f"study {n}", "sentence1": "a b", "sentence2": f"c {n}", "label": n % 2} for n in range(4)]
    hidden = {"text": "study 9", "sentence1": "a b", "sentence2": "c 9", "label": label}
    lay_out(tmp_path, {**both(".jsonl", pairs), "test.jsonl": [hidden]})
    assert set(read(kind, tmp_path).splits) == {"train", "dev"}
    assert "test has no labels" in capsys.readouterr().err
    lay_out(tmp_path, {"test.jsonl": [hidden, {**hidden, "sentence2": "d", "text": "study 8", "label": 1}]})
    if kind != "similarity":
        with pytest.raises(SqueezeError, match="the label '-1' is none of train's"):
            read(kind, tmp_path)


def test_the_columns_of_a_data_frame_are_no_records(tmp_path: Path) -> None:
    columns = {"text": {"0": "study of mice", "2": "study of cells"}, "label": {"0": "x", "2": "y"}}
    lay_out(tmp_path, both(".json", json.dumps(columns)))
    for kind in ("classification", "ner"):
        with pytest.raises(SqueezeError, match=r"an object of columns, as DataFrame\.to_json .* lines=True\)"):
            read(kind, tmp_path)
    with pytest.raises(SqueezeError, match="name the kind to see more") as caught:
        guess_of(tmp_path)
    assert "there are 0, 2" not in str(caught.value)


def test_a_wide_table_has_a_short_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = "\t".join(f"g{n}" for n in range(5000)) + "\tlabel\n" + "1\t" * 5000 + "x\n"
    lay_out(tmp_path, both(".tsv", table))
    with pytest.raises(SqueezeError, match="g28, g29 and 4971 more: name the right one"):
        read("classification", tmp_path)
    assert len(capsys.readouterr().err) < 2000


def test_texts_without_entities_are_labelled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay_out(tmp_path, {**both(".jsonl", [TEXT]), "test.jsonl": [{"text": "Of mice", "entities": []}]})
    assert set(read("ner", tmp_path).splits) == {"train", "dev"}
    assert "is not compared" not in capsys.readouterr().err


def test_files_of_other_spellings(tmp_path: Path) -> None:
    pairs = "sentence1\tsentence2\tlabel\na b\tc, d\tyes\ne f\tg h\tno\n"
    lay_out(tmp_path, {"train.csv": pairs, "val.csv": pairs})
    assert [example.texts for example in read("nli", tmp_path).splits["dev"]] == [("a b", "c, d"), ("e f", "g h")]


def test_spacy_pairs_in_a_list(tmp_path: Path) -> None:
    pairs = json.dumps([["TP53 of mice", {"entities": [[0, 4, "Gene"]]}]] * 2)
    lay_out(tmp_path, both(".json", pairs))
    assert guess_of(tmp_path) == "ner"
    assert read("ner", tmp_path).splits["train"][0].tags == ("B-Gene", "O", "O")


def test_folders_in_a_folder_are_named(tmp_path: Path) -> None:
    lay_out(tmp_path, {f"{fold}/train.tsv": "a b\tyes\n" for fold in (1, 2)})
    with pytest.raises(SqueezeError, match=rf"it holds the folders 1, 2: name one, such as {tmp_path}/1"):
        guess_of(tmp_path)


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("Torsade\tB\nde\tI\n", (), ["Torsade", "de"]),
        ("B-Gene\tx\tTP53\nO\tx\tof\n", ("word=3",), ["TP53", "of"]),
    ],
)
def test_input_with_bare_tags(text: str, column: tuple[str, ...], words: list[str], tmp_path: Path) -> None:
    (tmp_path / "in.tsv").write_text(text)
    (record,) = open_input(str(tmp_path / "in.tsv"), column).records
    assert record.values["tokens"] == words


def test_a_table_whose_label_is_a_letter_is_a_table(tmp_path: Path) -> None:
    (tmp_path / "in.tsv").write_text("id\ttext\tgrade\n12\tstudy of mice\tB\n")
    (record,) = open_input(str(tmp_path / "in.tsv"), ()).records
    assert record.values["text"] == "study of mice"


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("id\ttext\n12\tstudy of mice\n", ("word=2", "tag=1")),
        ("12\tstudy of mice\n", ("word=2", "tag=1", "text=2")),
    ],
)
def test_a_table_for_a_tagger_of_columns(text: str, column: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "in.tsv").write_text(text)
    assert open_input(str(tmp_path / "in.tsv"), column).format == "tsv"


@pytest.mark.parametrize(
    ("record", "column", "words"),
    [
        ({"text": "mice", "tokens": ["TP53"]}, (), ("TP53",)),
        ({"text": "mice", "tokens": ["TP53"]}, ("text=text",), ("mice",)),
        ({"text": "x", "body": "mice", "words": []}, ("text=body",), ("mice",)),
        ({"text": "mice", "tokens": []}, (), ("mice",)),
        ({"text": "mice", "words": 2}, (), ("mice",)),
        ({"tokens": []}, (), ()),
        ({"text": "mice", "w": ["TP53"]}, ("word=w",), ("TP53",)),
    ],
)
def test_words_or_text_of_a_record(record: Any, column: tuple[str, ...], words: tuple[str, ...]) -> None:
    assert unlabelled_sentence(record, Formulation(column=column)).words == words


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({"text": None}, "text is of type NoneType, and a string was expected"),
        ({"tokens": ["a", ""]}, r"tokens is no list of words: \['a', ''\]"),
        ({"tokens": 2}, "tokens is no list of words: 2"),
        ({"txt": "mice"}, "no 'text' .* in a record of txt. Did you mean 'txt'"),
    ],
)
def test_a_record_without_words_and_text(record: Any, problem: str) -> None:
    with pytest.raises(SqueezeError, match=problem):
        unlabelled_sentence(record, Formulation())


def test_messages_name_some_of_many_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay_out(tmp_path, both(".jsonl", texts(*(f"class {number:04}" for number in range(2000)))))
    read("classification", tmp_path)
    assert "class 0029 and 1970 more); train 2,000" in " ".join(capsys.readouterr().err.split())
    lay_out(tmp_path, {"dev.jsonl": texts("other")})
    with pytest.raises(SqueezeError, match=r"'other' is none of train's \(class 0000, .* and 1970 more\); correct it"):
        read("classification", tmp_path)
