"""Reading every format of relation data, and the errors for invalid data. All sentences are invented."""

import json
from pathlib import Path

import pytest

from biosqueeze.data.records.incoming import open_input
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.tasks import Formulation, open_task
from biosqueeze.tasks.encoding.entities import Mention
from biosqueeze.tasks.readers.relations import negative_of
from biosqueeze.tasks.sniffing import guess

ALL = ("train", "dev", "test")
MARKED = [
    ("<< Carcimab >> blocks [[ HEP1 ]] in cells.", "INHIBITOR"),
    ("[[ Neurozol ]], like others, activates << COL2 >> (p>>0.1).", "ACTIVATOR"),
    ("No << [[ pathin ]] synthase >> was found with 2-[[4-oxo]amino]-x.", "SUBSTRATE"),
    ("A ring [[[ 1-[[oxo]] x ]]] of << HEP1 >> again.", "INHIBITOR"),
]
BLURB = "index\tsentence\tlabel\n1.T1.T2\t@CHEMICAL$ cuts @GENE$ down.\tCPR:4\n1.T3.T2\tNo @CHEM-GENE$ here.\tfalse\n"


def read(source, splits=ALL, **form):
    return open_task("relation", Formulation(**form)).read(str(source), splits)


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


def scibert(rows):
    return lines({"text": text, "label": label, "metadata": []} for text, label in rows)


def write(directory: Path, **files: str) -> Path:
    directory.mkdir(exist_ok=True)
    for name, text in files.items():
        (directory / name.replace("_", ".")).write_text(text, encoding="utf-8")
    return directory


def prefixed(rows, prefix):
    """Return the sentences with another first word, so that splits are disjoint."""
    return [(f"{prefix}: {text}", label) for text, label in rows]


@pytest.fixture
def marked(tmp_path):
    files = {f"{split}_txt": scibert(prefixed(MARKED, split)) for split in ALL}
    return write(tmp_path / "chemprot", **files)


def mention_texts(example):
    return tuple(example.text[mention.start : mention.end] for mention in example.mentions)


def test_scibert_marks_become_mentions(marked, capsys):
    data = read(marked)
    assert data.labels == ("ACTIVATOR", "INHIBITOR", "SUBSTRATE")
    assert data.scheme == "single"
    assert [mention_texts(example) for example in data.splits["dev"]] == [
        ("Carcimab", "HEP1"),
        ("COL2", "Neurozol"),
        ("pathin synthase", "pathin"),
        ("HEP1", "1-[[oxo]] x"),
    ]
    assert data.splits["dev"][2].text == "dev: No pathin synthase was found with 2-[[4-oxo]amino]-x."
    assert data.splits["dev"][3].text == "dev: A ring [1-[[oxo]] x] of HEP1 again."
    log = capsys.readouterr().err
    assert "entities marked as << first >> and [[ second ]]; entities as dummy, representation cls" in log
    assert "none means no relation, so F1 is over all labels" in log
    assert "train: 4 examples (ACTIVATOR 1, INHIBITOR 2, SUBSTRATE 1)" in log


def test_blurb_tables_have_dummies_and_a_negative_label(tmp_path, capsys):
    write(tmp_path, train_tsv=BLURB, dev_tsv=BLURB.replace("cuts", "brings"), test_tsv=BLURB.replace("cuts", "puts"))
    data = read(tmp_path)
    assert data.labels == ("false", "CPR:4")
    first, joint = data.splits["train"]
    assert first.replaced
    assert mention_texts(first) == ("@CHEMICAL$", "@GENE$")
    assert joint.mentions == (Mention(3, 14, "CHEM-GENE"),) * 2
    log = capsys.readouterr().err
    assert "text from sentence, label from label, id from index" in log
    assert "already replaced by @CHEM-GENE$, @CHEMICAL$, @GENE$" in log
    assert "'false' means no relation" in log


def test_biobert_folders_have_a_header_in_test_only(tmp_path, capsys):
    rows = "@GENE$ leads to @DISEASE$ in mice.\t1\n@DISEASE$ without @GENE$ at all.\t0\n"
    test = "index\tsentence\tlabel\n0\tLess @DISEASE$ by @GENE$ here.\t1\n"
    write(tmp_path, train_tsv=rows, dev_tsv=rows.replace("in", "with"), test_tsv=test)
    data = read(tmp_path)
    assert data.labels == ("0", "1")
    assert [len(data.splits[split]) for split in ALL] == [2, 2, 1]
    assert data.splits["train"][0].where.endswith("train.tsv:1")
    assert data.splits["test"][0].gold == "1"
    assert "'0' means no relation" in capsys.readouterr().err


def test_a_test_split_whose_labels_are_empty_is_left_out(tmp_path, capsys):
    test = "index\tsentence\tlabel\n1\t@CHEMICAL$ puts @GENE$ down.\t\n"
    write(tmp_path, train_tsv=BLURB, dev_tsv=BLURB.replace("cuts", "brings"), test_tsv=test)
    assert set(read(tmp_path, ("train", "dev")).splits) == {"train", "dev"}
    assert "test has no labels and is not compared with train and dev" in capsys.readouterr().err


def test_a_label_that_is_nan_is_missing(tmp_path):
    rows = [
        '{"sentence": "@CHEMICAL$ cuts @GENE$.", "label": "down"}',
        '{"sentence": "@CHEMICAL$ on @GENE$.", "label": NaN}',
    ]
    write(tmp_path, train_jsonl="\n".join(rows) + "\n")
    with pytest.raises(SqueezeError, match=r"train\.jsonl:2: .*label"):
        read(tmp_path, ("train",))


def test_three_columns_without_a_header_begin_with_an_id(tmp_path):
    write(tmp_path, train_tsv="a1\t@DRUG$ and @DRUG$ mix.\tint\na2\t@DRUG$ not @DRUG$ now.\tDDI-false\n")
    data = read(tmp_path, ("train",))
    assert data.labels == ("DDI-false", "int")


OFFSETS = [
    {
        "text": "Carcimab blocks HEP1.",
        "label": True,
        "head": {"start": 0, "end": 8, "type": "Drug"},
        "tail": {"start": 16, "end": 20, "type": "Gene", "text": "HEP1"},
    },
    {
        "text": "HEP1 or Carcimab.",
        "label": False,
        "head": {"start": 8, "end": 16},
        "tail": {"start": 0, "end": 4},
    },
]


def test_records_with_offsets_and_boolean_labels(tmp_path):
    data = read(write(tmp_path, train_jsonl=lines(OFFSETS)), ("train",))
    assert data.labels == ("false", "true")
    assert [mention_texts(example) for example in data.splits["train"]] == [("Carcimab", "HEP1")] * 2
    assert data.splits["train"][0].mentions[0].type == "Drug"


def test_a_cell_of_a_table_may_hold_an_entity_as_json(tmp_path):
    rows = ["text\tlabel\thead\ttail"]
    rows += ["\t".join([r["text"], str(r["label"]), json.dumps(r["head"]), json.dumps(r["tail"])]) for r in OFFSETS]
    data = read(write(tmp_path, train_tsv="\n".join(rows) + "\n"), ("train",))
    assert [mention_texts(example) for example in data.splits["train"]] == [("Carcimab", "HEP1")] * 2


@pytest.mark.parametrize(
    "text", ["[E1]Carcimab[/E1] blocks [E2] HEP1 [/E2].", "<e1>Carcimab</e1> blocks <e2>HEP1</e2>."]
)
def test_other_marks(tmp_path, text):
    data = read(write(tmp_path, train_jsonl=scibert([(text, "a"), (text, "b")])), ("train",))
    assert data.splits["train"][0].text == "Carcimab blocks HEP1."
    assert mention_texts(data.splits["train"][0]) == ("Carcimab", "HEP1")


def test_a_dataset_saved_to_disk(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = [{"text": text, "relation": label} for text, label in MARKED]
    datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)}).save_to_disk(tmp_path / "saved")
    data = read(tmp_path / "saved", ("train",))
    assert data.labels == ("ACTIVATOR", "INHIBITOR", "SUBSTRATE")


def test_columns_may_be_named(tmp_path):
    write(tmp_path, train_csv='abstract,kind\n"<< A1 >>, or [[ B2 ]]",x\n<< A1 >> [[ B2 ]] now,y\n')
    assert read(tmp_path, ("train",), column=("text=abstract", "label=kind")).labels == ("x", "y")
    with pytest.raises(
        SqueezeError, match=r"train.csv:1: .abstract., .kind. looks like a header .* --column text=abstract"
    ):
        read(tmp_path, ("train",))


@pytest.mark.parametrize(
    ("labels", "requested", "negative"),
    [
        (("a", "No_Relation"), None, "No_Relation"),
        (("NONE", "b"), None, "NONE"),
        (("DDI-false", "DDI-int"), None, "DDI-false"),
        (("other", "b"), None, None),
        (("other", "b"), "other", "other"),
        (("0", "none"), "0", "0"),
    ],
)
def test_the_negative_label(labels, requested, negative):
    assert negative_of(labels, requested) == negative


def test_two_negative_labels_are_not_guessed():
    with pytest.raises(UsageError, match=r"'0', 'none' could each mean no relation; .*--negative 0"):
        negative_of(("1", "none", "0"), None)


def test_an_unknown_negative_label(marked, capsys):
    with pytest.raises(UsageError, match=r"no example has the label 'INHIBITR'.* Did you mean 'INHIBITOR'"):
        read(marked, negative="INHIBITR")
    assert read(marked, ("test",), negative="false").labels[0] == "ACTIVATOR"
    assert "no example has the label 'false'" in capsys.readouterr().err
    assert read(marked, negative="SUBSTRATE").labels == ("SUBSTRATE", "ACTIVATOR", "INHIBITOR")


def damaged(marked, split, rows):
    (marked / f"{split}.txt").write_text(scibert(rows), encoding="utf-8")
    return marked


@pytest.mark.parametrize("splits", [ALL, ("train", "dev")])
def test_a_label_that_train_lacks(marked, splits):
    """Test is checked before training, even if it is not requested."""
    damaged(marked, "test", [*prefixed(MARKED, "other"), ("<< A >> and [[ B ]] x", "UNSEEN")])
    with pytest.raises(SqueezeError, match=r"test.txt:5: the label 'UNSEEN' is none of train's \(ACTIVATOR, "):
        read(marked, splits)


def test_a_checked_test_split_is_not_in_the_data_set(marked):
    assert list(read(marked, ("train", "dev")).splits) == ["train", "dev"]
    assert read(marked, ("test",)).labels == ("ACTIVATOR", "INHIBITOR", "SUBSTRATE")


def test_a_test_split_used_for_selection(marked):
    damaged(marked, "dev", prefixed(MARKED, "test"))
    with pytest.raises(SqueezeError, match="a test split used for selection"):
        read(marked, ("train", "dev"))


def test_the_same_sentence_with_another_pair_is_another_example(marked):
    texts = ["<< Carcimab >> and [[ HEP1 ]] and COL2 here.", "<< Carcimab >> and HEP1 and [[ COL2 ]] here."]
    damaged(marked, "dev", [(texts[0], "INHIBITOR")])
    damaged(marked, "test", [(texts[1], "INHIBITOR")])
    read(marked)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("Carcimab blocks HEP1.", "INHIBITOR"), "dev.txt:5: no two entities marked as << first >> and "),
        (("<< A >> or << C >> and [[ B ]].", "INHIBITOR"), "dev.txt:5: 2 and 1 entities are marked"),
        (("<< a [[ >> b ]] c.", "INHIBITOR"), "dev.txt:5: the marks of the two entities overlap"),
        (("", "INHIBITOR"), "dev.txt:5: '' in text, but a sentence was expected"),
        (("<< A >> and [[ B ]].", ""), "dev.txt:5: '' in label, but one label was expected"),
        (("<< A >> and [[ B ]].", ["x"]), r"dev.txt:5: \['x'\] in label"),
        (("<< A >> and [[ B ]].", None), "dev.txt:5: None in label"),
    ],
)
def test_errors_name_file_and_line(marked, row, message):
    damaged(marked, "dev", [*prefixed(MARKED, "dev"), row])
    with pytest.raises(SqueezeError, match=message):
        read(marked)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head": {"start": 0, "end": 99}}, "train.jsonl:3: head is .* within the 21 characters"),
        ({"head": {"start": 8, "end": 8}}, "train.jsonl:3: head is "),
        ({"head": {"start": True, "end": 8}}, "train.jsonl:3: head is "),
        ({"head": None}, "train.jsonl:3: head is None"),
        (
            {"tail": {"start": 15, "end": 19, "text": "HEP1"}},
            "text 'HEP1', but the sentence has ' HEP' at 15 to 19",
        ),
    ],
)
def test_offsets_that_do_not_fit(tmp_path, change, message):
    with pytest.raises(SqueezeError, match=message):
        read(write(tmp_path, train_jsonl=lines([*OFFSETS, {**OFFSETS[0], **change}])), ("train",))


def test_line_ends_in_a_cell_count_as_in_predictions(tmp_path):
    rows = [
        f'"Line {label}\r\nBRCA1 binds",{label},"{{""start"": 8, ""end"": 13}}","{{""start"": 14, ""end"": 19}}"\r\n'
        for label in "yn"
    ]
    (tmp_path / "train.csv").write_bytes("".join(["text,label,head,tail\r\n", *rows]).encode())
    assert guess(str(tmp_path), Formulation()).kind == "relation"
    first, _ = read(tmp_path, ("train",)).splits["train"]
    assert [first.text[each.start : each.end] for each in first.mentions] == ["BRCA1", "binds"]
    assert first.text == next(iter(open_input(str(tmp_path / "train.csv")).records)).values["text"]


def test_a_head_without_a_tail(tmp_path):
    rows = [{key: value for key, value in row.items() if key != "tail"} for row in OFFSETS]
    with pytest.raises(SqueezeError, match="a head and a tail are needed, and there is only a head"):
        read(write(tmp_path, train_jsonl=lines(rows)), ("train",))


def test_duplicate_ids(tmp_path):
    write(tmp_path, train_tsv=BLURB + "1.T1.T2\t@CHEMICAL$ and @GENE$.\tfalse\n")
    with pytest.raises(SqueezeError, match=r"train.tsv:4: the index '1.T1.T2' is already used at .*train.tsv:2"):
        read(tmp_path, ("train",))


def test_splits_in_two_styles(marked):
    (marked / "dev.txt").write_text(scibert([("@GENE$ or @DRUG$ now.", "INHIBITOR")]), encoding="utf-8")
    with pytest.raises(SqueezeError, match=r"train has entities marked as .* but dev has entities already replaced"):
        read(marked)


@pytest.mark.parametrize("entities", ["original", "markers"])
def test_dummies_cannot_be_replaced_by_names(tmp_path, entities):
    write(tmp_path, train_tsv=BLURB)
    with pytest.raises(SqueezeError, match=f"--entities {entities} needs the entities' own names"):
        read(tmp_path, ("train",), entities=entities)


@pytest.mark.parametrize("entities", [None, "dummy", "original"])
def test_entity_starts_need_markers(marked, entities):
    with pytest.raises(UsageError, match="add --entities markers"):
        read(marked, entities=entities, representation="entity-starts")
    read(marked, entities="markers", representation="entity-starts")


def test_sentences_without_marked_entities(tmp_path, capsys):
    write(tmp_path, train_tsv="Carci in mice.\tyes\nNo carci.\tno\n")
    with pytest.raises(SqueezeError, match=r"train.tsv:1: the two entities .* not marked; mark it as <<"):
        read(tmp_path, ("train",))
    with pytest.raises(SqueezeError, match="are not marked"):
        read(tmp_path, ("train",), entities="original", representation="mentions")
    assert read(tmp_path, ("train",), entities="original").splits["train"][0].mentions is None
    assert "does not mark the two entities" in capsys.readouterr().err


def test_sentences_without_two_dummies_are_counted(tmp_path, capsys):
    write(tmp_path, train_tsv=BLURB + "9\t@GENE$, @GENE$ and @CHEMICAL$.\tfalse\n10\tOne @GENE$.\tfalse\n")
    assert [example.mentions for example in read(tmp_path, ("train",)).splits["train"][2:]] == [None, None]
    log = " ".join(capsys.readouterr().err.split())
    assert "2 of 4 sentences do not have exactly two @TYPE$ dummies, the first at" in log
    with pytest.raises(SqueezeError, match=r"train.tsv:4: not two @TYPE. dummies"):
        read(tmp_path, ("train",), representation="mentions")


def test_pairs_with_an_ambiguous_direction_are_counted(tmp_path, capsys):
    drug = {"type": "Drug"}
    rows = [{**row, "head": row["head"] | drug, "tail": {**row["tail"], **drug}} for row in OFFSETS]
    write(tmp_path, train_jsonl=lines(rows))
    read(tmp_path, ("train",), entities="markers")
    assert "have the second entity first" not in capsys.readouterr().err
    read(tmp_path, ("train",))
    assert "1 of 2 pairs are of one type and have the second entity first" in capsys.readouterr().err


def test_a_single_label_is_refused(tmp_path):
    write(tmp_path, train_jsonl=scibert([MARKED[0], MARKED[3]]))
    with pytest.raises(SqueezeError, match="every example of train has the label 'INHIBITOR'"):
        read(tmp_path, ("train",))


@pytest.mark.real
def test_chemprot_of_scibert(real_data):
    data = read(real_data / "chemprot" / "scibert")
    assert {split: len(examples) for split, examples in data.splits.items()} == {
        "train": 4169,
        "dev": 2427,
        "test": 3469,
    }
    assert len(data.labels) == 13
    for examples in data.splits.values():
        assert all(name.strip() for example in examples for name in mention_texts(example))
        assert not any("<< " in example.text for example in examples)
