"""PubTator, BioC, JSON and `datasets` as sources of tagged sentences; columns by name; records to predict on."""

import json

import numpy as np
import pytest

from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.tasks import Formulation, open_task
from biosqueeze.tasks.readers.split_overlap import check_disjoint
from biosqueeze.tasks.readers.tag_columns import unlabelled_sentence
from biosqueeze.tasks.readers.tagged import Sentence
from tests import pico
from tests.tasks.tagging import ner

KIND = open_task("ner")
PUBTATOR = """1|t|Zinc in acute gout.
1|a|Gout was mild. Zinc helped.
1\t0\t4\tZinc\tChemical\tD1
1\t8\t18\tacute gout\tDisease\tD2
1\t20\t24\tGout\tDisease\tD2
1\t35\t39\tZinc\tChemical\tD1

2|t|No names here
"""
OTHER = PUBTATOR.replace("helped", "failed").replace("mild", "grim").replace(" in ", " by ").replace("names", "terms")
WORDS = [
    ("Zinc", "in", "acute", "gout", "."),
    ("Gout", "was", "mild", "."),
    ("Zinc", "helped", "."),
    ("No", "names", "here"),
]
TAGS = [
    ("B-Chemical", "O", "B-Disease", "I-Disease", "O"),
    ("B-Disease", "O", "O", "O"),
    ("B-Chemical", "O", "O"),
    ("O", "O", "O"),
]
RECORDS = [{"tokens": list(words), "tags": list(tags)} for words, tags in zip(WORDS, TAGS, strict=True)]


def _lines(records) -> str:
    return "\n".join(map(json.dumps, records))


def _tagged(dataset, split="train"):
    return [s.words for s in dataset.splits[split]], [s.gold for s in dataset.splits[split]]


@pytest.mark.parametrize(
    "name", ["train.pubtator", "train.txt", "train.PubTator.txt", "XYtrainset_corpus.txt", "CDR_TrainingSet.PubTator"]
)
def test_pubtator_under_its_usual_names(tmp_path, name, capsys):
    (tmp_path / name).write_text(PUBTATOR)
    dataset = KIND.read(str(tmp_path), ("train",))
    assert _tagged(dataset) == (WORDS, TAGS)
    first, second = dataset.splits["train"][:2]
    assert [first.text[a:b] for a, b in first.offsets] == list(first.words)
    assert second.offsets[0] == (20, 24)
    assert f"train is {name} (PubTator)" in " ".join(capsys.readouterr().err.split())


def test_pubtator_splits_and_a_checked_test_split(tmp_path):
    for name, text in (("trainset", PUBTATOR), ("developset", OTHER), ("testset", OTHER.replace("grim", "rare"))):
        (tmp_path / f"XY{name}_corpus.txt").write_text(text)
    dataset = KIND.read(str(tmp_path), ("train", "dev"))
    assert {split: len(rows) for split, rows in dataset.splits.items()} == {"train": 4, "dev": 4}
    assert dataset.labels == ("O", "B-Chemical", "B-Disease", "I-Disease")
    (tmp_path / "XYtestset_corpus.txt").write_text(PUBTATOR.replace("Chemical", "Drug"))
    with pytest.raises(SqueezeError, match=r"XYtestset_corpus.txt:1: the label 'B-Drug' is none of train's"):
        KIND.read(str(tmp_path), ("train", "dev"))


def test_several_matching_files_are_refused(tmp_path):
    for name in ("A_train.txt", "B_train.txt", "train_dev.txt"):
        (tmp_path / name).write_text(PUBTATOR)
    with pytest.raises(SqueezeError, match=r"A_train.txt and B_train.txt could both be the train split"):
        KIND.read(str(tmp_path), ("train",))
    (tmp_path / "B_train.txt").unlink()
    (tmp_path / "A_train.txt").unlink()
    with pytest.raises(SqueezeError, match=r"no train split.*train_dev.txt, which does not match"):
        KIND.read(str(tmp_path), ("train",))


def test_a_file_with_train_and_dev_together_is_not_read(tmp_path, capsys):
    for name in ("train", "train_dev", "devel"):
        (tmp_path / f"{name}.tsv").write_text(f"{name}\tB-X\n\n")
    dataset = KIND.read(str(tmp_path), ("train", "dev"))
    assert _tagged(dataset)[0] == [("train",)]
    log = " ".join(capsys.readouterr().err.split())
    assert "train is train.tsv, dev is devel.tsv (columns: word first, tag last); train_dev.tsv (train and dev" in log


def test_offsets_beyond_the_text_are_reported(tmp_path):
    (tmp_path / "train.pubtator").write_text(PUBTATOR.replace("35\t39", "350\t354"))
    with pytest.raises(SqueezeError, match=r"train.pubtator:6: 'Zinc' has the offsets 350-354"):
        KIND.read(str(tmp_path), ("train",))


def test_only_kept_types_compete_in_overlaps(tmp_path, capsys):
    (tmp_path / "train.pubtator").write_text(PUBTATOR.replace("2|t", "1\t8\t13\tacute\tModifier\n\n2|t"))
    assert "Modifier" not in "".join(KIND.read(str(tmp_path), ("train",)).labels)
    assert "1 of 5 annotations lie within or across" in " ".join(capsys.readouterr().err.split())
    assert ner(types=("Modifier",)).read(str(tmp_path), ("train",)).labels == ("O", "B-Modifier")
    with pytest.raises(UsageError, match=r"'Drug'.*There are: Chemical, Disease"):
        ner(types=("Drug",)).read(str(tmp_path), ("train",))


def test_bioc(tmp_path):
    pytest.importorskip("bioc")
    spans = [(0, 4, "Zinc", "Chemical"), (8, 10, "acute gout", "Disease")]
    annotations = [
        {"id": str(n), "infons": {"type": kind}, "text": text, "locations": [{"offset": start, "length": length}]}
        for n, (start, length, text, kind) in enumerate(spans)
    ]
    passage = {"offset": 0, "infons": {}, "text": "Zinc in acute gout.", "annotations": annotations}
    passage |= {"sentences": [], "relations": []}
    document = {"id": "1", "infons": {}, "passages": [passage], "annotations": [], "relations": []}
    (tmp_path / "train.json").write_text(json.dumps({"documents": [document], "source": "", "date": "", "key": ""}))
    assert _tagged(KIND.read(str(tmp_path), ("train",))) == (WORDS[:1], TAGS[:1])


@pytest.mark.parametrize("name", ["train.jsonl", "train.json", "train.txt"])
def test_records_with_tokens_and_tags(tmp_path, name, capsys):
    (tmp_path / name).write_text(_lines(RECORDS))
    assert _tagged(KIND.read(str(tmp_path), ("train",))) == (WORDS, TAGS)
    assert f"{name} (JSON)" in capsys.readouterr().err


def test_records_with_columns_of_other_names(tmp_path):
    (tmp_path / "train.jsonl").write_text(_lines({"w": r["tokens"], "t": r["tags"]} for r in RECORDS))
    assert _tagged(ner(column=("word=w", "tag=t")).read(str(tmp_path), ("train",))) == (WORDS, TAGS)
    with pytest.raises(SqueezeError, match=r"--column word=NAME"):
        KIND.read(str(tmp_path), ("train",))
    with pytest.raises(UsageError, match="as 'label'"):
        ner(column=("label=t",)).read(str(tmp_path), ("train",))


def test_records_with_a_text_and_its_entities(tmp_path):
    entities = [{"start": 0, "end": 4, "label": "Chemical"}, {"start": 8, "end": 18, "type": "Disease"}]
    records = [{"text": "Zinc in acute gout. Fine.", "entities": entities}, {"text": "No names here", "entities": []}]
    (tmp_path / "train.jsonl").write_text(_lines(records))
    dataset = KIND.read(str(tmp_path), ("train",))
    assert _tagged(dataset) == ([WORDS[0], ("Fine", "."), WORDS[3]], [TAGS[0], ("O", "O"), TAGS[3]])
    assert dataset.splits["train"][1].offsets == ((20, 24), (24, 25))
    renamed = [{"abstract": r["text"], "spans": r["entities"]} for r in records]
    (tmp_path / "train.jsonl").write_text(_lines(renamed))
    asked = ner(column=("text=abstract", "entities=spans"))
    assert asked.read(str(tmp_path), ("train",)).splits == dataset.splits


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"tokens": ["a", "b"], "tags": ["O"]}, ":5: 2 tokens and 1 tags"),
        ({"tokens": ["a"], "tags": [1]}, ":5: the tags are numbers"),
        ({"tokens": "a", "tags": ["O"]}, ":5: tokens is not a list of strings"),
        ({"tokens": ["a", " "], "tags": ["O", "O"]}, ":5: word 2 of tokens is empty"),
        ({"tokens": ["a"], "tags": ["I-Disease"]}, ":5: 'I-Disease' at 'a' follows 'O'"),
        ({"tokens": ["a"], "tags": ["Disease"]}, ":5: the tag 'Disease' is none of O"),
        ({"tokens": ["a"]}, ":5: no field 'tags'"),
    ],
)
def test_invalid_records(tmp_path, record, message):
    (tmp_path / "train.jsonl").write_text(_lines([*RECORDS, record]))
    with pytest.raises(SqueezeError) as caught:
        KIND.read(str(tmp_path), ("train",))
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("entity", "message"),
    [
        ({"start": 0, "end": 40, "label": "X"}, "has 4 characters"),
        ({"start": 3, "end": 2, "label": "X"}, "0-"),
        ({"start": 0, "end": 4}, "is not an entity"),
        ({"start": "0", "end": 4, "label": "X"}, "is not an entity"),
        ([0, 4], "is not an entity"),
        ({"start": 0, "end": 4, "label": "X", "text": "Zing"}, "but the text there is 'Zinc'"),
    ],
)
def test_invalid_entities(tmp_path, entity, message):
    (tmp_path / "train.jsonl").write_text(_lines([{"text": "Zinc", "entities": [entity]}]))
    with pytest.raises(SqueezeError) as caught:
        KIND.read(str(tmp_path), ("train",))
    assert message.replace("0-", "3-2") in str(caught.value)
    assert "train.jsonl:1: " in str(caught.value)


def test_a_saved_data_set(tmp_path):
    datasets = pytest.importorskip("datasets")
    names = ["O", "B-Chemical", "B-Disease", "I-Disease"]
    features = datasets.Features(
        {"tokens": datasets.List(datasets.Value("string")), "ner_tags": datasets.List(datasets.ClassLabel(names=names))}
    )
    rows = {"tokens": [r["tokens"] for r in RECORDS], "ner_tags": [[*map(names.index, r["tags"])] for r in RECORDS]}
    made = {"train": datasets.Dataset.from_dict(rows, features=features)}
    made["validation"] = made["train"].select([1])
    datasets.DatasetDict(made).save_to_disk(tmp_path / "saved")
    dataset = KIND.read(str(tmp_path / "saved"), ("train", "dev"))
    assert _tagged(dataset) == (WORDS, TAGS)
    assert len(dataset.splits["dev"]) == 1


# ------------------------------------------------------------------ columns


@pytest.mark.parametrize("column", [("word=2", "tag=1"), ("word=Token", "tag=Gold")])
def test_columns_by_number_and_by_name(tmp_path, column):
    header = "Gold\tToken\tguess\n" if "word=Token" in column else ""
    (tmp_path / "train.tsv").write_text(header + "B-X\ta\tO\nI-X\tb\tO\n\nO\tc\tB-X\n")
    dataset = ner(column=column).read(str(tmp_path), ("train",))
    assert _tagged(dataset) == ([("a", "b"), ("c",)], [("B-X", "I-X"), ("O",)])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (("tag=4",), "no column '4'; its first row is B-X, a, O: give a number from 1 to 3"),
        (("tag=0",), "no column '0'"),
        (("tag=gold",), "no column 'gold'"),
        (("tags=1",), "no role 'tags'. Did you mean 'tag'? Roles: word, tag"),
        (("tag",), "not ROLE=COLUMN"),
    ],
)
def test_unknown_columns(tmp_path, column, message):
    (tmp_path / "train.tsv").write_text("B-X\ta\tO\n")
    with pytest.raises(UsageError) as caught:
        ner(column=column).read(str(tmp_path), ("train",))
    assert message in str(caught.value)


def test_column_options_for_pubtator_are_a_warning(tmp_path, capsys):
    """The manifest of a model that was trained on columns names them, and it may be evaluated on PubTator."""
    (tmp_path / "test.pubtator").write_text(PUBTATOR)
    kind = ner(column=("word=2", "tag=1"))
    assert kind.read(str(tmp_path), ("test",)) == KIND.read(str(tmp_path), ("test",))
    assert "test.pubtator is PubTator, which has no columns: 2, 1 not used" in " ".join(capsys.readouterr().err.split())
    kind.read("demo:ner", ("test",))
    assert "demo:ner has no columns: 2, 1 not used" in " ".join(capsys.readouterr().err.split())


# ------------------------------------------------------------------ leaks


def _split(prefix: str, count: int) -> str:
    return "".join(f"{prefix}{i}\tB-X\nis\tO\nhere\tO\n.\tO\n\n" for i in range(count))


@pytest.mark.parametrize(("split", "use"), [("dev", "selection"), ("train", "training")])
def test_a_test_split_used_for_selection_is_refused(tmp_path, split, use):
    texts = {name: _split(name, 20) for name in ("train", "dev", "test")}
    texts[split] = texts["test"].replace("\tB-X", "\tO", 3) + _split("more", 1)
    for name, text in texts.items():
        (tmp_path / f"{name}.tsv").write_text(text)
    for splits in (("train", "dev"), ("train", "dev", "test")):
        with pytest.raises(SqueezeError, match=rf"a test split used for {use}: 20 of 21 {split} texts are") as caught:
            KIND.read(str(tmp_path), splits)
        assert "\n" not in str(caught.value)
    KIND.read(str(tmp_path), ("test",))
    KIND.read(str(tmp_path), (split,) if split == "dev" else ("dev", "test"))


def test_one_file_as_two_splits_is_refused(tmp_path):
    for name in ("train", "test"):
        (tmp_path / f"{name}.tsv").write_text(f"{name}\tB-X\n")
    (tmp_path / "dev.tsv").symlink_to("test.tsv")
    with pytest.raises(SqueezeError, match=r"dev.tsv is the same file as test.tsv: a test split used for selection"):
        KIND.read(str(tmp_path), ("train", "dev"))
    KIND.read(str(tmp_path), ("dev",))


def test_small_overlaps_are_logged(capsys):
    unique, shared = [f"sentence {i} is unique" for i in range(10)], [f"both have text number {i}" for i in range(90)]
    test = shared + [f"only the test has {i}" for i in range(10)]
    check_disjoint("dev", unique + shared, test, "there")
    assert "90 of 100 dev texts of 4 words or more are in test too" in capsys.readouterr().err
    with pytest.raises(SqueezeError):
        check_disjoint("dev", unique[:9] + shared, test, "there")
    check_disjoint("dev", unique, test, "there")
    check_disjoint("dev", ["Methods", ("Results", ":"), "In brief :"] * 50, ["Methods", "Results :", "In brief :"], "x")
    assert capsys.readouterr().err == ""
    check_disjoint("dev", ["Methods"] * 50 + shared[:1], test, "there")  # one text may be equal by chance
    assert "1 of 1" in capsys.readouterr().err


def test_the_named_text_is_read():
    record = {"title": "asthma", "text": "lupus of mice"}
    assert unlabelled_sentence(record, Formulation(column=("text=title",))).words == ("asthma",)
    with pytest.raises(UsageError, match=r"no role 'txt'.*Did you mean 'text'"):
        unlabelled_sentence(record, Formulation(column=("txt=title",)))
    # The columns of a fine-tuning do not hinder texts.
    assert unlabelled_sentence(record, Formulation(column=("text=passage",))).words == ("lupus", "of", "mice")
    assert unlabelled_sentence(record, Formulation(column=("word=token", "tag=ner"))).words == ("lupus", "of", "mice")


def test_a_test_split_within_train_is_refused():
    train = [f"train has text number {i}" for i in range(200)]
    with pytest.raises(
        SqueezeError, match="a test split used for training: 20 of 20 test texts are literally in train"
    ):
        check_disjoint("train", train, train[:20], "there")
    chinese = [f"患者因发热咳嗽三天入院治疗后好转出院第{i}例" for i in range(10)]
    with pytest.raises(SqueezeError, match="10 of 10"):
        check_disjoint("train", chinese, chinese, "there")


def test_generated_splits_are_disjoint(capsys):
    KIND.read("demo:ner", ("train", "dev", "test"))
    assert "in test too" not in capsys.readouterr().err


# ------------------------------------------------------------------ records to predict on


def test_a_text_is_split_into_words_and_sentences():
    sentence = KIND.example_from_record({"text": "Zinc in acute gout. Gout was mild.\nEnd", "id": 3})
    assert sentence.words == (*WORDS[0], *WORDS[1], "End")
    assert sentence.starts == (5, 9)
    assert [sentence.text[a:b] for a, b in sentence.offsets] == list(sentence.words)
    labels = ("O", "B-X", "I-X")
    windows = KIND.encode([sentence], labels, pico.tokenizer_of("bert"), 64)
    sentences = [Sentence(words, ("O",) * len(words)) for words in (*WORDS[:2], ("End",))]
    expected = KIND.encode(sentences, labels, pico.tokenizer_of("bert"), 64)
    assert [w.input_ids.tolist() for w in windows] == [w.input_ids.tolist() for w in expected]
    assert [w for window in windows for w in window.words.tolist() if w >= 0] == list(range(10))


def test_tokens_and_named_fields():
    assert KIND.example_from_record({"tokens": ["a", "b"]}) == Sentence(("a", "b"), ("O", "O"))
    assert ner(column=("text=abstract",)).example_from_record({"abstract": "a b", "text": "c"}).words == ("a", "b")
    assert ner(column=("word=1", "tag=2")).example_from_record({"text": "a b"}).words == ("a", "b")
    assert KIND.example_from_record({"text": " "}).words == ()


@pytest.mark.parametrize("record", [{}, {"title": "a"}])
def test_a_record_without_text(record):
    with pytest.raises(SqueezeError, match="no 'text'"):
        KIND.example_from_record(record)


def test_entities_with_offsets_and_scores():
    labels = ("O", "B-Disease", "I-Disease")
    examples = [
        KIND.example_from_record({"text": "Gout, or acute  gout."}),
        KIND.example_from_record({"tokens": ["Zinc"]}),
        KIND.example_from_record({"text": ""}),
    ]
    windows = KIND.encode(examples, labels, pico.tokenizer_of("bert"), 64)
    chosen = {0: 1, 3: 1, 4: 2}  # word -> label, in the first
    logits = [np.zeros((len(w.input_ids), 3), np.float32) for w in windows]
    for rows, window in zip(logits, windows, strict=True):
        for place in np.flatnonzero(window.words >= 0):
            word = int(window.words[place])
            rows[place, chosen.get(word, 0) if window.example == 0 else 0] = np.log(2 * (word + 1))
    first, second, third = KIND.describe(windows, logits, examples, labels)
    assert first == {
        "entities": [
            {"type": "Disease", "text": "Gout", "start": 0, "end": 4, "words": [0, 1], "score": 0.5},
            {"type": "Disease", "text": "acute  gout", "start": 9, "end": 20, "words": [3, 5],
             "score": pytest.approx((8 / 10 + 10 / 12) / 2, abs=1e-6)},
        ]
    }  # fmt: skip
    assert second == third == {"entities": []}
    json.dumps(first)
    (tokens,) = KIND.describe(windows[1:2], [logits[1][:, [1, 0, 2]]], [examples[0], examples[1]], labels)[1:]
    assert tokens == {"entities": [{"type": "Disease", "text": "Zinc", "words": [0, 1], "score": 0.5}]}
