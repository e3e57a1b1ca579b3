"""Annotated documents with relations are examples of `relation`: the pairs of entities in their sentences."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from biosqueeze.cli import main
from biosqueeze.errors import SqueezeError
from biosqueeze.tasks import Formulation, open_task, with_pairs
from biosqueeze.tasks.encoding.entities import PairKind
from biosqueeze.tasks.sniffing import guess
from tests.cli.run import Shell
from tests.tasks.test_unusual_layouts import lay_out

FIRST = "Aspirin and ibuprofen inhibit COX1."
SECOND = "Zinc does not inhibit COX2."
TEXT = f"{FIRST} {SECOND}"
TITLE = "TP53 of mice"
# Name -> type and text; an entity is where its text first occurs.
ENTITIES = {
    "T1": ("Drug", "Aspirin"),
    "T2": ("Drug", "ibuprofen"),
    "T3": ("Gene", "COX1"),
    "T4": ("Drug", "Zinc"),
    "T5": ("Gene", "COX2"),
}
RELATIONS = (("inhibits", "T1", "T3"), ("binds", "T1", "T3"), ("inhibits", "T2", "T3"))
EXAMPLES = [
    ("Aspirin", "COX1", "inhibits"),
    ("Aspirin", "COX1", "binds"),
    ("ibuprofen", "COX1", "inhibits"),
    ("Zinc", "COX2", "no-relation"),
]


def spans() -> dict[str, tuple[str, int, int]]:
    """Return type, start and end of each entity."""
    return {name: (kind, TEXT.index(text), TEXT.index(text) + len(text)) for name, (kind, text) in ENTITIES.items()}


def brat(relations: Sequence[tuple[str, str, str]] = RELATIONS) -> str:
    rows = [f"{name}\t{kind} {start} {end}\t{TEXT[start:end]}" for name, (kind, start, end) in spans().items()]
    rows += [f"R{n}\t{kind} Arg1:{a} Arg2:{b}\t" for n, (kind, a, b) in enumerate(relations)]
    return "\n".join([*rows, "*\tEquiv T1 T2", "R9\tinhibits Arg1:T1 Arg2:E1", ""])


def bioc() -> str:
    annotations = "".join(
        f'<annotation id="{name}"><infon key="type">{kind}</infon>'
        f'<location offset="{start}" length="{end - start}"/><text>{TEXT[start:end]}</text></annotation>'
        for name, (kind, start, end) in spans().items()
    )
    relations = "".join(  # the tail first: the roles tell
        f'<relation id="R{n}"><infon key="type">{kind}</infon>'
        f'<node refid="{b}" role="Arg2"/><node refid="{a}" role="Arg1"/></relation>'
        for n, (kind, a, b) in enumerate(RELATIONS)
    )
    passage = f"<passage><offset>0</offset><text>{TEXT}</text>{annotations}</passage>"
    head = "<collection><source>x</source><date>1</date><key>x</key>"
    return f"{head}<document><id>1</id>{passage}{relations}</document></collection>"


def doccano() -> dict[str, Any]:
    entities = [
        {"id": name, "label": kind, "start_offset": start, "end_offset": end}
        for name, (kind, start, end) in spans().items()
    ]
    relations = [{"id": n, "type": kind, "from_id": a, "to_id": b} for n, (kind, a, b) in enumerate(RELATIONS)]
    return {"id": 3, "text": TEXT, "entities": entities, "relations": relations, "Comments": []}


def bigbio() -> dict[str, Any]:
    entities = [
        {"id": name, "type": kind, "text": [TEXT[start:end]], "offsets": [[start, end]], "normalized": []}
        for name, (kind, start, end) in spans().items()
    ]
    relations = [
        {"id": f"r{n}", "type": kind, "arg1_id": a, "arg2_id": b, "normalized": []}
        for n, (kind, a, b) in enumerate(RELATIONS)
    ]
    passages = [{"id": "p", "type": "abstract", "text": [TEXT], "offsets": [[0, len(TEXT)]]}]
    return {"id": "0", "document_id": "9", "passages": passages, "entities": entities, "relations": relations}


def label_studio() -> dict[str, Any]:
    results: list[dict[str, Any]] = [
        {"id": name, "type": "labels", "value": {"start": start, "end": end, "labels": [kind]}}
        for name, (kind, start, end) in spans().items()
    ]
    results += [
        {"type": "relation", "from_id": "T1", "to_id": "T3", "direction": "right", "labels": ["inhibits", "binds"]},
        {"type": "relation", "from_id": "T3", "to_id": "T2", "direction": "left", "labels": ["inhibits"]},
    ]
    return {"id": 7, "data": {"text": TEXT}, "annotations": [{"result": results}]}


LAYOUTS: dict[str, Any] = {
    "brat": ("/1.txt", TEXT, "/1.ann", brat()),
    "BioC": (".xml", bioc()),
    "doccano": (".jsonl", [doccano()]),
    "BigBio": (".json", json.dumps([bigbio(), bigbio()])),
    "Label Studio": (".json", json.dumps([label_studio(), label_studio()])),
}


def laid_out(folder: Path, *parts: Any, splits: Sequence[str] = ("train", "dev")) -> Path:
    """Write the same contents for each split; `parts` are endings of file names, each before its content."""
    pairs = list(zip(parts[::2], parts[1::2], strict=True))
    return lay_out(folder, {f"{split}{end}": content for split in splits for end, content in pairs})


def examples(folder: Path, split: str = "train", **options: Any) -> list[tuple[str, str, str]]:
    data = open_task("relation", Formulation(**options)).read(str(folder), (split,))
    return [
        (*(each.text[mention.start : mention.end] for mention in each.mentions), each.gold)
        for each in data.splits[split]
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pairs_of_a_sentence_are_examples(layout: str, tmp_path: Path) -> None:
    if layout == "BioC":
        pytest.importorskip("bioc")
    laid_out(tmp_path, *LAYOUTS[layout])
    copies = 2 if layout in ("BigBio", "Label Studio") else 1
    assert examples(tmp_path) == EXAMPLES * copies
    assert guess(str(tmp_path), Formulation()).kind == "ner"


def test_the_negative_label_can_be_named(tmp_path: Path) -> None:
    laid_out(tmp_path, *LAYOUTS["brat"])
    assert [label for _, _, label in examples(tmp_path, negative="none")] == ["inhibits", "binds", "inhibits", "none"]


def test_annotated_negatives_are_the_only_ones(tmp_path: Path) -> None:
    laid_out(tmp_path, "/1.txt", TEXT, "/1.ann", brat([*RELATIONS[:1], ("false", "T2", "T3")]))
    assert examples(tmp_path) == [("Aspirin", "COX1", "inhibits"), ("ibuprofen", "COX1", "false")]


def test_train_decides_which_pairs_are_negative(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the test split alone is scored; there, a relation of other types is one nevertheless."""
    laid_out(tmp_path, *LAYOUTS["brat"], splits=["train"])
    laid_out(tmp_path, "/1.txt", TEXT, "/1.ann", brat([("binds", "T2", "T1")]), splits=["test"])
    assert examples(tmp_path, "test") == [
        ("Aspirin", "COX1", "no-relation"),
        ("ibuprofen", "Aspirin", "binds"),
        ("ibuprofen", "COX1", "no-relation"),
        ("Zinc", "COX2", "no-relation"),
    ]
    assert "train is train (brat), test is test (brat)" in " ".join(capsys.readouterr().err.split())


def test_recorded_kinds_of_pairs_decide_without_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of the split that is scored would leave pairs out; they are taken where the recorded ones fit none."""
    laid_out(tmp_path, "/1.txt", TEXT, "/1.ann", brat([("binds", "T2", "T1")]), splits=["test"])
    task, read = open_task("relation"), (str(tmp_path), ("test",))
    both = (PairKind("Drug", "Gene", True), PairKind("Drug", "Drug", False))
    assert [each.gold for each in with_pairs(task, both).read(*read).splits["test"]].count("no-relation") == 3
    assert "no train split" not in capsys.readouterr().err
    alone = [each.gold for each in task.read(*read).splits["test"]]
    assert "there is no train split, so the pairs" in " ".join(capsys.readouterr().err.split())
    other = with_pairs(task, (PairKind("Chemical", "Gene", True),)).read(*read).splits["test"]
    assert [each.gold for each in other] == alone == ["binds"]


def test_without_a_direction_pairs_are_in_the_order_of_the_text(tmp_path: Path) -> None:
    """The head of every relation comes first; a gene and a drug are a pair in both orders of their types."""
    laid_out(tmp_path, "/1.txt", TEXT, "/1.ann", brat([("with", "T1", "T2"), ("on", "T2", "T3")]))
    assert examples(tmp_path) == [
        ("Aspirin", "ibuprofen", "with"),
        ("Aspirin", "COX1", "no-relation"),
        ("ibuprofen", "COX1", "on"),
        ("Zinc", "COX2", "no-relation"),
    ]


def test_directed_pairs_are_of_the_types_of_relations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    laid_out(tmp_path, "/1.txt", TEXT, "/1.ann", brat([("by", "T3", "T1")]))
    assert examples(tmp_path) == [
        ("COX1", "Aspirin", "by"),
        ("COX1", "ibuprofen", "no-relation"),
        ("COX2", "Zinc", "no-relation"),
    ]
    assert "go both ways" not in capsys.readouterr().err
    laid_out(tmp_path, "/1.txt", TEXT, "/1.ann", brat([("with", "T1", "T2"), ("after", "T2", "T1")]))
    assert examples(tmp_path) == [("Aspirin", "ibuprofen", "with"), ("ibuprofen", "Aspirin", "after")]
    assert "relations between Drug and Drug go both ways" in " ".join(capsys.readouterr().err.split())


def test_relations_across_sentences_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    laid_out(tmp_path, "/1.txt", TEXT, "/1.ann", brat([*RELATIONS, ("inhibits", "T1", "T5")]))
    assert examples(tmp_path) == EXAMPLES
    assert "1 of 4 relations of train are not within a sentence, and left out" in " ".join(
        capsys.readouterr().err.split()
    )


def test_sentences_with_an_entity_across_are_joined(tmp_path: Path) -> None:
    laid_out(
        tmp_path, "/1.txt", "A B. C D.", "/1.ann", "T1\tX 0 1\tA\nT2\tX 2 6\tB. C\nT3\tX 7 8\tD\nR1\tr a:T1 b:T3\n"
    )
    assert [pair for *pair, label in examples(tmp_path) if label == "r"] == [["A", "D"]]


def test_records_without_relations_are_among_others(tmp_path: Path) -> None:
    """The first task of Label Studio may have no annotation, and a record of doccano no list of relations."""
    plain = {name: value for name, value in doccano().items() if name != "relations"}
    laid_out(tmp_path / "doccano", ".jsonl", [{**plain, "text": TEXT}, doccano()])
    assert len(examples(tmp_path / "doccano")) == 3 + len(EXAMPLES)
    tasks = [{"id": 6, "data": {"text": "Nothing."}, "annotations": []}, label_studio()]
    laid_out(tmp_path / "studio", ".json", json.dumps(tasks))
    assert examples(tmp_path / "studio") == EXAMPLES


def test_documents_without_relations_are_explained(tmp_path: Path) -> None:
    laid_out(tmp_path / "brat", "/1.txt", TEXT, "/1.ann", brat([]))
    laid_out(tmp_path / "pubtator", ".pubtator", "1|t|TP53 of mice\n1\t0\t4\tTP53\tGene\tD1\n1\tCID\tD1\tD2\n\n")
    for folder in ("brat", "pubtator"):
        with pytest.raises(SqueezeError, match="train has no relation between two entities of a sentence"):
            examples(tmp_path / folder)
    laid_out(tmp_path / "json", ".jsonl", [{**doccano(), "relations": [{"type": "inhibits"}]}])
    with pytest.raises(SqueezeError, match=r"train.jsonl:1: .* is not a relation; write"):
        examples(tmp_path / "json")


def test_relations_of_concepts_are_none_of_a_sentence(tmp_path: Path) -> None:
    pytest.importorskip("bioc")
    concepts = bioc().replace('<infon key="type">inhibits', '<infon key="role1">C1</infon><infon key="type">inhibits')
    laid_out(tmp_path, ".xml", concepts)
    assert examples(tmp_path) == [("Aspirin", "COX1", "binds"), *[(*pair, "no-relation") for pair in [
        ("ibuprofen", "COX1"), ("Zinc", "COX2"),
    ]]]  # fmt: skip


def test_pairs_of_one_document_are_held_out_together(tmp_path: Path) -> None:
    laid_out(tmp_path, *LAYOUTS["brat"], splits=["train"])
    pairs = open_task("relation").read(str(tmp_path), ("train",)).splits["train"]
    assert len({pair.text for pair in pairs}) > len({pair.document for pair in pairs}) == 1


def test_folders_of_the_ddi_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The pairs are all given, and a sentence of the file is one, whatever stops are in it."""
    pytest.importorskip("lxml")
    sentence = f'<sentence id="s" text="{TEXT}">' + "".join(
        f'<entity id="{name}" charOffset="{start}-{end - 1}" type="{kind}" text="{TEXT[start:end]}"/>'
        for name, (kind, start, end) in spans().items()
    )
    pairs = '<pair id="1" e1="T1" e2="T5" ddi="true" type="effect"/><pair id="2" e1="T1" e2="T3" ddi="false"/>'
    xml = f'<document id="d">{sentence}{pairs}</sentence></document>'
    lay_out(tmp_path, {"Train/DrugBank/1.xml": xml, "Test/MedLine/2.xml": xml.replace("Zinc", "Iron")})
    assert open_task("relation").splits(str(tmp_path)) == ("train", "test")
    assert examples(tmp_path) == [("Aspirin", "COX1", "false"), ("Aspirin", "COX2", "effect")]
    for kind in ("relation", "ner"):
        read = open_task(kind).read(str(tmp_path), ("train",)).splits["train"]
        assert {each.document for each in read} == {"d"}
    assert "'false' means no relation" in " ".join(capsys.readouterr().err.split())
    assert guess(str(tmp_path), Formulation()).kind == "ner"


def test_a_missing_split_is_named(tmp_path: Path) -> None:
    laid_out(tmp_path, *LAYOUTS["brat"], splits=["train"])
    with pytest.raises(SqueezeError, match=r"has no dev split: .*--dev-share"):
        examples(tmp_path, "dev")
    lay_out(tmp_path, {"dev.tsv": "text\tlabel\n"})
    with pytest.raises(SqueezeError, match=r"dev\.tsv is neither PubTator"):
        open_task("relation").read(str(tmp_path), ("train", "dev"))


@pytest.fixture(scope="module")
def trained(pico_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was fine-tuned on documents."""
    folder = tmp_path_factory.mktemp("relations")
    test = ("/1.txt", TEXT.replace("inhibit", "prevent"), "/1.ann", brat([("inhibits", "T4", "T5")]))
    laid_out(folder / "data", *LAYOUTS["brat"])
    laid_out(folder / "data", *test, splits=["test"])
    words = ("--data", folder / "data", "--task", "relation", "--steps", 2, "--out", folder / "out")
    assert main.run(["finetune", str(pico_bert), *map(str, words)]) == 0
    return folder / "out"


def test_a_model_that_learned_from_documents_is_scored(trained: Path, shell: Shell) -> None:
    scored = shell("evaluate", trained, "--json")
    assert scored.code == 0
    assert json.loads(scored.out)["metrics"]["support-inhibits"] == 1


PUBTATOR = """7|t|Aspirin inhibits COX1.
7|a|A. Zinc inhibits COX1 and Zinc.
7\t0\t7\tAspirin\tDrug\tD1
7\t17\t21\tCOX1\tGene\tG1
7\t26\t30\tZinc\tDrug\tD2
7\t40\t44\tCOX1\tGene\tG1
7\tCID\tD1\tG1

8|t|Nothing.

"""


def test_pairs_of_an_annotated_text_are_predicted(trained: Path, shell: Shell, tmp_path: Path) -> None:
    """Each pair as if it were given alone, with offsets in the text; pairs without a relation are left out."""
    (tmp_path / "in.pubtator").write_text(PUBTATOR)
    predicted = shell("predict", trained, tmp_path / "in.pubtator")
    assert predicted.code == 0
    first, second = map(json.loads, predicted.out.splitlines())
    assert (second["id"], second["relations"]) == ("8", [])
    text = "Aspirin inhibits COX1.\nA. Zinc inhibits COX1 and Zinc."
    pairs = [("Aspirin", 0, "COX1", 17, text[:22], 0), ("Zinc", 26, "COX1", 40, text[23:], 23)]
    expected = []
    for head, start, tail, at, sentence, shift in pairs:
        entities = [
            {"start": offset, "end": offset + len(name), "text": name, "type": kind}
            for name, offset, kind in ((head, start, "Drug"), (tail, at, "Gene"))
        ]
        moved = [{**each, "start": each["start"] - shift, "end": each["end"] - shift} for each in entities]
        record = {"text": sentence, "head": moved[0], "tail": moved[1]}
        (tmp_path / "alone.jsonl").write_text(json.dumps(record))
        alone = json.loads(shell("predict", trained, tmp_path / "alone.jsonl").out)
        if alone["label"] != "no-relation":
            expected.append([alone["label"], pytest.approx(alone["score"], abs=1e-3), *entities])
    assert expected
    assert [list(each.values()) for each in first["relations"]] == expected


def test_records_with_entities_are_texts_with_pairs(trained: Path, shell: Shell, tmp_path: Path) -> None:
    entities = [{"start": 0, "end": 7, "type": "Drug"}, {"start": 17, "end": 21, "type": "Gene"}]
    record = {"id": 3, "text": "Aspirin inhibits COX1.", "entities": entities}
    records = [record, {**record, "text": "Iron."}, {"id": 4, "body": "Iron.", "entities": []}]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, records)))
    predicted = shell("predict", trained, tmp_path / "in.jsonl", "--skip-bad")
    first, second, third = map(json.loads, predicted.out.splitlines())
    assert first["relations"][0]["tail"] == {"start": 17, "end": 21, "text": "COX1", "type": "Gene"}
    assert "has the offsets 0-7" in second["error"]
    assert "text must be a string and entities a list" in third["error"]


def test_a_model_of_pairs_reads_pairs_alone(trained: Path, shell: Shell, copy_of: Any, tmp_path: Path) -> None:
    path = copy_of(trained)
    manifest = json.loads((path / "biosqueeze.json").read_text())
    assert sorted(manifest["task"].pop("pairs")) == [["Drug", "Gene", True], ["Gene", "Drug", True]]
    (path / "biosqueeze.json").write_text(json.dumps(manifest))
    marked = {"text": "<< Aspirin >> inhibits [[ COX1 ]].", "entities": []}
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, [marked, {**marked, "text": "COX1."}])))
    predicted = shell("predict", path, tmp_path / "in.jsonl", "--skip-bad")
    pair, unmarked = map(json.loads, predicted.out.splitlines())
    assert pair["head"]["text"] == "Aspirin"
    assert "the two entities of the relation are not marked" in unmarked["error"]


def test_a_student_learns_from_annotated_texts(trained: Path, shell: Shell, tmp_path: Path) -> None:
    """Unlabelled records with entities are distilled pair by pair, and the student has the kinds of pairs."""
    entities = [{"start": 0, "end": 7, "type": "Drug"}, {"start": 17, "end": 21, "type": "Gene"}]
    (tmp_path / "in.jsonl").write_text(json.dumps({"text": "Aspirin inhibits COX1.", "entities": entities}))
    words = ("--teacher", trained, "--corpus", tmp_path / "in.jsonl", "--steps", 2, "--out", tmp_path / "out")
    assert shell("distill", trained, *words).code == 0
    predicted = shell("predict", tmp_path / "out", tmp_path / "in.jsonl")
    assert "relations" in json.loads(predicted.out)
