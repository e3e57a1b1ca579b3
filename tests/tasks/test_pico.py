import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_recall_fscore_support

from biosqueeze import registry
from biosqueeze.tasks import Formulation, open_task
from tests import pico
from tests.tasks.tagging import perfect
from tests.tasks.test_schemes import any_tags

KIND = open_task("pico")
ELEMENTS = ("INT", "OUT", "PAR")
ROWS = "Zinc NN O I-INT\nfor NN O O\nold NN O I-PAR\nmen NN O I-PAR\n\nless NN O I-OUT\npain NN O I-OUT\n. NN O O\n"


def _write(directory, **splits: str) -> str:
    for name, text in splits.items():
        (directory / f"{name}.txt").write_text("-DOCSTART- (12345)\n\n" + text)
    return str(directory)


def _pairs(letters: str = "I"):
    return st.lists(st.tuples(any_tags(letters, ELEMENTS), any_tags(letters, ELEMENTS)), min_size=1, max_size=5)


def _even(pairs) -> tuple[list[list[str]], list[list[str]]]:
    gold = [a + ["O"] * (len(b) - len(a)) for a, b in pairs]
    return gold, [b + ["O"] * (len(a) - len(b)) for a, b in pairs]


@given(pairs=_pairs("BILU"))
def test_scores_equal_scikit_learn(pairs):
    gold, predicted = _even(pairs)
    flat = [[tag[2:] or "O" for tags in side for tag in tags] for side in (gold, predicted)]
    present = sorted({kind for side in flat for kind in side} - {"O"})
    scores = KIND.score(gold, predicted)
    assert scores["support"] == len(flat[0]) - flat[0].count("O")
    if not present:
        assert scores == {"macro_f1": 0, "support": 0}
        return
    assert scores["macro_f1"] == pytest.approx(
        f1_score(*flat, labels=present, average="macro", zero_division=0), abs=1e-12
    )
    columns = precision_recall_fscore_support(*flat, labels=present, zero_division=0)
    for name, values in zip(("precision", "recall", "f1", "support"), columns, strict=True):
        for kind, value in zip(present, values, strict=True):
            assert scores[f"{name}-{kind}"] == pytest.approx(value, abs=1e-12)
    assert set(scores) == {"macro_f1", "support"} | {
        f"{name}-{kind}" for name in ("precision", "recall", "f1", "support") for kind in present
    }


@given(pairs=_pairs("BILU"))
def test_the_scheme_makes_no_difference(pairs):
    gold, predicted = _even(pairs)
    bare = [[tag if tag == "O" else f"I{tag[1:]}" for tag in tags] for tags in predicted]
    assert KIND.score(gold, predicted) == KIND.score(gold, bare)


def test_by_hand():
    gold = [["I-PAR", "I-PAR", "O", "I-OUT"], ["O"]]
    predicted = [["I-PAR", "O", "I-INT", "I-OUT"], ["O"]]
    scores = KIND.score(gold, predicted)
    assert scores["f1-PAR"] == pytest.approx(2 / 3)
    assert (scores["f1-INT"], scores["f1-OUT"]) == (0, 1)
    assert scores["macro_f1"] == pytest.approx((2 / 3 + 0 + 1) / 3)
    assert KIND.score([["I", "O"]], [["I", "I"]])["precision-_"] == 0.5
    assert KIND.score([["O"]], [["O"]])["macro_f1"] == 0


def test_kind_has_its_own_metric():
    assert "pico" in registry.names("tasks")
    assert (KIND.METRIC, KIND.HEAD) == ("macro_f1", "token-classification")
    gold = [["I-PAR", "O"]]
    assert KIND.METRIC in KIND.score(gold, gold)


def test_reads_tags_with_inside_only(tmp_path):
    dataset = KIND.read(_write(tmp_path, train=ROWS, test=ROWS.replace("Zinc", "Tin")), ("train", "test"))
    assert dataset.labels == ("O", "I-INT", "I-OUT", "I-PAR")
    assert dataset.scheme == "IO"
    assert dataset.splits["test"][0].gold == ("I-INT", "O", "I-PAR", "I-PAR")


@pytest.mark.parametrize("scheme", ["IO", "BIO", "BIOUL"])
@pytest.mark.parametrize("max_length", [4, 64])
def test_a_perfect_model_of_any_scheme_scores_one(tmp_path, scheme, max_length):
    kind = open_task("pico", Formulation(scheme=scheme))
    dataset = kind.read(_write(tmp_path, train=ROWS), ("train",))
    examples = dataset.splits["train"]
    windows = kind.encode(examples, dataset.labels, pico.tokenizer_of("bert"), max_length)
    predicted = kind.decode(windows, perfect(windows, len(dataset.labels)), examples, dataset.labels)
    scores = kind.score([s.gold for s in examples], predicted)
    assert (scores["macro_f1"], scores["support"]) == (1, 5)


# As the papers and the counts of the files' README say: sentences, words, words in PAR, INT and OUT.
EBM = {
    "blurb": {"dev": (10386, 262268, 30280, 25061, 31967), "test": (2076, 51784, 4711, 3563, 8090)},
    "scibert": {"dev": (7049, None, 30382, 25218, 32313), "test": (2064, None, 4060, 2710, 5138)},
}


@pytest.mark.real
@pytest.mark.parametrize("version", list(EBM))
def test_ebm_nlp_counts_as_published(real_data, version):
    dataset = KIND.read(str(real_data / "ebm-nlp" / version), ("dev", "test"))
    assert dataset.labels == ("O", "I-INT", "I-OUT", "I-PAR")
    for split, (sentences, words, *elements) in EBM[version].items():
        tags = [tag for s in dataset.splits[split] for tag in s.gold]
        assert len(dataset.splits[split]) == sentences
        assert words in (None, len(tags))
        assert [tags.count(f"I-{element}") for element in ("PAR", "INT", "OUT")] == elements
        scores = KIND.score([s.gold for s in dataset.splits[split]], [s.gold for s in dataset.splits[split]])
        assert [scores[f"support-{element}"] for element in ("PAR", "INT", "OUT")] == elements


def test_overlapping_elements_are_cut_as_in_blurb(tmp_path):
    """The last of P, I and O wins word by word: compared with the rule of the corpus's script."""
    text = "old men on zinc had less pain"
    spans = [(0, 15, "Participants"), (11, 15, "Interventions"), (4, 29, "Outcomes")]
    entities = [{"start": a, "end": b, "label": kind} for a, b, kind in spans]
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.jsonl").write_text(json.dumps({"text": f"{text} {split}", "entities": entities}) + "\n")
    gold = KIND.read(str(tmp_path), ("train",)).splits["train"][0]
    naive, start = [], 0
    for word in f"{text} train".split():
        start = f"{text} train".index(word, start)
        elements = [kind for a, b, kind in spans if a <= start < b]
        naive.append(elements[-1] if elements else "")
        start += len(word)
    assert [tag.partition("-")[2] for tag in gold.gold] == naive
    assert naive == ["Participants", *["Outcomes"] * 6, ""]


def test_elements_apart_are_unchanged(tmp_path):
    for split in ("train", "dev", "test"):
        entities = [{"start": 0, "end": 3, "label": "PAR"}, {"start": 4, "end": 7, "label": "INT"}]
        (tmp_path / f"{split}.jsonl").write_text(json.dumps({"text": f"old men {split}", "entities": entities}) + "\n")
    assert KIND.read(str(tmp_path), ("train",)).splits["train"][0].gold == ("B-PAR", "B-INT", "O")
