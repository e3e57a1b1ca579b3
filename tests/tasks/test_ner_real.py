"""Real benchmarks under BIOSQUEEZE_DATA: the counts of their READMEs, scores against seqeval, and what IO costs."""

import random
from functools import cache

import pytest
from seqeval.metrics import classification_report

from biosqueeze.tasks import Formulation, open_task
from biosqueeze.tasks.encoding.tag_schemes import convert, labels_of, spans_of
from biosqueeze.tasks.readers.tagged import count_entities
from tests import pico
from tests.tasks.tagging import perfect

pytestmark = [pytest.mark.real, pytest.mark.slow]
KIND = open_task("ner")

# As the READMEs count: sentences, words, entities.
COUNTS = {
    "ncbi-disease": {"train": (5424, 135701, 5134), "dev": (923, 23969, 787), "test": (940, 24497, 960)},
    "bc2gm": {"train": (12574, 355405, 15197), "dev": (2519, 71042, 3061), "test": (5038, 143465, 6325)},
    "bc5cdr-chem": {"train": (4560, 118170, 5203), "dev": (4581, 117453, 5347), "test": (4797, 124750, 5385)},
    "bc5cdr-disease": {"train": (4560, 118170, 4182), "dev": (4581, 117453, 4246), "test": (4797, 124750, 4424)},
    "jnlpba": {"train": (16807, 445090, 46750), "dev": (1739, 47461, 4551), "test": (3856, 101039, 8662)},
}
BEST_OF_IO = {"ncbi-disease": 0.992, "bc2gm": 0.982, "bc5cdr-chem": 0.997, "bc5cdr-disease": 0.991, "jnlpba": 0.986}
# Every set with a few or with many damaged tags; the smallest with both.
DAMAGES = [("ncbi-disease", 0.05), ("ncbi-disease", 0.7), ("bc2gm", 0.7), ("bc5cdr-chem", 0.05), ("jnlpba", 0.05)]
TYPES = {"jnlpba": ("DNA", "RNA", "cell_line", "cell_type", "protein")}


@cache
def read(folder, *splits):
    return KIND.read(str(folder), splits)


@pytest.mark.parametrize("name", list(COUNTS))
def test_counts_as_published(real_data, name):
    dataset = KIND.read(str(real_data / name), ("train", "dev", "test"))
    assert COUNTS[name] == {
        split: (len(rows), sum(len(s.words) for s in rows), sum(count_entities(s.tags) for s in rows))
        for split, rows in dataset.splits.items()
    }
    assert dataset.scheme == "BIO"
    assert len(dataset.labels) == 1 + 2 * len(TYPES.get(name, ("one",)))


@pytest.mark.parametrize(("name", "damage"), DAMAGES)
def test_scores_equal_seqeval_on_damaged_tags(real_data, name, damage):
    dataset = read(real_data / name, "test")
    rng = random.Random(name)
    gold = [list(s.gold) for s in dataset.splits["test"]]
    damaged = [[rng.choice(dataset.labels) if rng.random() < damage else tag for tag in tags] for tags in gold]
    report = classification_report(gold, damaged, output_dict=True, zero_division=0)
    scores = KIND.score(gold, damaged)
    assert (scores["precision"], scores["recall"], scores["f1"], scores["support"]) == tuple(
        report["micro avg"].values()
    )
    assert scores["support"] == COUNTS[name]["test"][2]
    assert all(scores[f"f1-{kind}"] == report[kind]["f1-score"] for kind in report if not kind.endswith(" avg"))
    true, found = (
        {(i, *span) for i, tags in enumerate(side) for span in spans_of(tags)} for side in (gold, damaged)
    )  # and by the definition of F1
    assert scores["f1"] == pytest.approx(2 * len(true & found) / (len(true) + len(found)))


@pytest.mark.parametrize("name", list(COUNTS))
def test_all_schemes_but_io_are_lossless(real_data, name):
    dataset = read(real_data / name, "test")
    gold = [list(s.gold) for s in dataset.splits["test"]]
    for scheme in ("BIO", "BIOUL"):
        assert [convert(convert(tags, scheme), "BIO") for tags in gold] == gold
    best = KIND.score(gold, [convert(tags, "IO") for tags in gold])
    assert round(best["f1"], 3) == BEST_OF_IO[name]
    assert best["support"] == COUNTS[name]["test"][2]


@pytest.mark.parametrize(("scheme", "max_length"), [("BIO", 128), ("BIOUL", 16)])
def test_windows_lose_nothing(real_data, scheme, max_length):
    kind = open_task("ner", Formulation(scheme=scheme, label_all_pieces=True))
    examples = kind.read(str(real_data / "jnlpba"), ("dev",)).splits["dev"]
    labels = labels_of(TYPES["jnlpba"], scheme)
    windows = kind.encode(examples, labels, pico.tokenizer_of("bert"), max_length)
    scores = kind.score(
        [s.gold for s in examples], kind.decode(windows, perfect(windows, len(labels)), examples, labels)
    )
    assert (scores["f1"], scores["support"]) == (1, COUNTS["jnlpba"]["dev"][2])


def test_pubtator_files_under_their_published_names(real_data):
    source = str(real_data / "ncbi-disease" / "original-pubtator")
    dataset = KIND.read(source, ("train", "dev", "test"))
    found = {split: sum(count_entities(s.tags) for s in rows) for split, rows in dataset.splits.items()}
    assert found == {"train": 5134, "dev": 787, "test": 960}
    assert dataset.labels == labels_of(("CompositeMention", "DiseaseClass", "Modifier", "SpecificDisease"), "BIO")
