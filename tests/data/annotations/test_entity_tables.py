"""The tables of ChemProt and DrugProt: abstracts, entities, relations."""

import shutil
from pathlib import Path

import pytest

from biosqueeze.data.annotations.documents import detect_format, read_documents
from biosqueeze.data.annotations.entity_tables import read_entity_tables
from biosqueeze.data.records.sample import available_splits
from biosqueeze.errors import SqueezeError
from biosqueeze.tasks import Formulation, open_task
from biosqueeze.tasks.sniffing import guess
from tests.error_messages import explained

ABSTRACTS = ["7\tZinc inhibits ABC1.\tThe gene DEF2 binds zinc.", "8\tCopper.\tNothing else."]
ENTITIES = [
    "7\tT1\tCHEMICAL\t0\t4\tZinc",
    "7\tT2\tGENE-Y\t14\t18\tABC1",
    "7\tT3\tGENE-N\t29\t33\tDEF2",
    "7\tT4\tCHEMICAL\t40\t44\tzinc",
    "8\tT1\tCHEMICAL\t0\t6\tCopper",
]
CHEMPROT = ["7\tCPR:4\tY \tINHIBITOR\tArg1:T1\tArg2:T2", "7\tCPR:1\tN \tPART_OF\tArg1:T4\tArg2:T3"]
DRUGPROT = ["7\tINHIBITOR\tArg1:T1\tArg2:T2", "7\tPART-OF\tArg1:T4\tArg2:T3"]


def written(folder, name="drugprot_training_abstracs.tsv", entities=ENTITIES, relations=DRUGPROT, abstracts=ABSTRACTS):
    """Write the tables of a split, and return that of the abstracts."""
    folder.mkdir(parents=True, exist_ok=True)
    what = "abstracts" if "abstracts" in name else "abstracs"
    for kind, rows in ((what, abstracts), ("entities", entities), ("relations", relations)):
        if rows is not None:
            (folder / name.replace(what, kind)).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return folder / name


def test_documents_of_drugprot(tmp_path, capsys):
    path = written(tmp_path)
    assert detect_format(path) == "tables"
    first, second = read_documents(path)
    assert first.text == "Zinc inhibits ABC1.\nThe gene DEF2 binds zinc." and first.id == "7"
    assert [(each.text, each.type) for each in first.annotations] == [
        ("Zinc", "CHEMICAL"), ("ABC1", "GENE"), ("DEF2", "GENE"), ("zinc", "CHEMICAL"),
    ]  # fmt: skip
    assert [(each.type, each.head.text, each.tail.text) for each in first.relations] == [
        ("INHIBITOR", "Zinc", "ABC1"),
        ("PART-OF", "zinc", "DEF2"),
    ]
    assert [each.text for each in second.annotations] == ["Copper"] and not second.relations
    said = " ".join(capsys.readouterr().err.split())
    assert "2 documents; 5 annotations; 2 GENE-Y and GENE-N read as GENE; 2 relations" in said


def test_relations_of_chemprot_that_are_not_evaluated(tmp_path, capsys):
    first, _ = read_entity_tables(written(tmp_path, "chemprot_test_abstracts_gs.tsv", relations=CHEMPROT))
    assert [(each.type, each.head.text) for each in first.relations] == [("CPR:4", "Zinc")]
    assert "1 relations of types that are not evaluated skipped" in " ".join(capsys.readouterr().err.split())


def test_a_split_may_have_no_relations(tmp_path):
    documents = list(read_documents(written(tmp_path, relations=None)))
    assert len(documents) == 2 and not any(each.relations for each in documents)


@pytest.mark.parametrize("layout", ["flat", "folders", "nested"])
def test_splits_as_they_are_published(tmp_path, layout, capsys):
    for split, word in {"train": "training", "dev": "development", "test": "test"}.items():
        folder = {"flat": ".", "folders": word, "nested": f"chemprot_{word}/chemprot_{word}"}[layout]
        name = f"chemprot_{word}_abstracts{'_gs' if split == 'test' else ''}.tsv"
        abstracts = [row.replace("7", split, 1).replace("gene", f"gene of {split}") for row in ABSTRACTS]
        shift = len(f" of {split}")
        entities = [f"{split}\tT1\tCHEMICAL\t0\t4\tZinc", f"{split}\tT2\tGENE-Y\t{29 + shift}\t{33 + shift}\tDEF2"]
        relations = [f"{split}\tCPR:3\tY\tACTIVATOR\tArg1:T1\tArg2:T2"]
        written(tmp_path / folder, name, entities, relations, abstracts)
    source = str(tmp_path)
    assert available_splits(source) == ("train", "dev", "test")
    assert guess(source, Formulation()).kind == "ner"
    assert not capsys.readouterr().err  # what is read to recognise them is not counted
    data = open_task("ner").read(source, ("train", "dev", "test"))
    assert {split: len(sentences) for split, sentences in data.splits.items()} == {"train": 4, "dev": 4, "test": 4}
    assert data.labels == ("O", "B-CHEMICAL", "B-GENE")


def test_pairs_of_a_sentence_are_examples_of_relations(tmp_path):
    abstracts = [*ABSTRACTS, "9\tTwo genes.\tZinc inhibits ABC1 and DEF2."]
    entities = [
        *ENTITIES,
        "9\tT1\tCHEMICAL\t11\t15\tZinc",
        "9\tT2\tGENE\t25\t29\tABC1",
        "9\tT3\tGENE\t34\t38\tDEF2",
    ]
    written(tmp_path, entities=entities, relations=[*DRUGPROT, "9\tINHIBITOR\tArg1:T1\tArg2:T2"], abstracts=abstracts)
    data = open_task("relation").read(str(tmp_path), ("train",))
    assert data.labels == ("no-relation", "INHIBITOR", "PART-OF")
    assert [each.gold for each in data.splits["train"]] == ["INHIBITOR", "PART-OF", "INHIBITOR", "no-relation"]


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ({"entities": ["7\tT1\tCHEMICAL\t0\tZinc"]}, "has not ID, T1, TYPE, START, END and TEXT between tabs"),
        ({"entities": [*ENTITIES, "7\tT1\tGENE\t14\t18\tABC1"]}, "7 has two entities T1"),
        ({"entities": ["7\tT1\tCHEMICAL\t1\t5\tZinc"]}, "'Zinc' has the offsets 1-5 of 7"),
        ({"entities": [*ENTITIES, "9\tT1\tGENE\t14\t18\tABC1"]}, "there is no abstract 9"),
        ({"relations": ["7\tINHIBITOR\tT1\tT2"]}, "has not ID, TYPE, Arg1:T1 and Arg2:T2 between tabs"),
        ({"relations": ["7\tINHIBITOR\tArg1:T1\tArg2:T9"]}, "7 has no entity T9"),
        ({"abstracts": ["7\tZinc inhibits ABC1."]}, "2 columns, not ID, TITLE and ABSTRACT"),
    ],
)
def test_damaged_tables_are_explained(tmp_path, what, says):
    explained(lambda: list(read_entity_tables(written(tmp_path, **what))), says)


def test_two_tables_of_a_split(tmp_path):
    first = written(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    task = open_task("ner")
    with pytest.raises(SqueezeError, match=r"a/drugprot_training_abstracs.tsv and b/.* could both be the train split"):
        task.read(str(tmp_path), ("train",))
    first.with_name("drugprot_training_relations.tsv").unlink()
    assert len(task.read(str(tmp_path), ("train",)).splits["train"]) == 4


def test_a_table_of_abstracts_alone_is_no_split(tmp_path):
    (Path(tmp_path) / "train_abstracts.tsv").write_text("1\tTitle.\tText.\n", encoding="utf-8")
    assert detect_format(tmp_path / "train_abstracts.tsv") is None
