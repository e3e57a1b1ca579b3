"""What is trained in another scheme than the data have, on every sub-word, or on some types only."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import classification_report

from biosqueeze.errors import UsageError
from biosqueeze.tasks import Formulation, open_task
from biosqueeze.tasks.encoding.tag_schemes import labels_of, spans_of, tags_of
from biosqueeze.tasks.metrics.entities import score_entities
from biosqueeze.tasks.readers.tagged import Sentence
from tests import pico
from tests.tasks.tagging import ner, perfect
from tests.tasks.test_schemes import any_tags, spans

TYPES = ("Disease", "Gene", "cell-line")
WORDS = ("the", "carcino", "hepatitis", "(", "x" * 40, "\u200b", "naïveté", "12.5", "qqq")
LONG = 1200  # words; several times 512 pieces


@st.composite
def sentences(draw) -> Sentence:
    found, length = draw(spans(TYPES).filter(lambda made: made[1] > 0))
    return Sentence(tuple(draw(st.sampled_from(WORDS)) for _ in range(length)), tuple(tags_of(found, length, "BIO")))


@pytest.mark.parametrize("scheme", ["BIO", "BIOUL"])
@given(examples=st.lists(sentences(), max_size=4), max_length=st.integers(3, 40), pieces=st.booleans())
def test_perfect_model_finds_every_entity(scheme, examples, max_length, pieces):
    kind, labels = ner(scheme=scheme, label_all_pieces=pieces), labels_of(TYPES, scheme)
    windows = kind.encode(examples, labels, pico.shared_tokenizer(), max_length)
    assert kind.decode(windows, perfect(windows, len(labels)), examples, labels) == [list(s.tags) for s in examples]


@given(examples=st.lists(sentences(), min_size=1, max_size=4))
def test_perfect_io_model_misses_adjacent_entities(examples):
    kind, labels = ner(scheme="IO"), labels_of(TYPES, "IO")
    windows = kind.encode(examples, labels, pico.shared_tokenizer(), 32)
    predicted = kind.decode(windows, perfect(windows, len(labels)), examples, labels)
    lost = merged = 0
    for sentence in examples:
        found = spans_of(sentence.tags)
        joins = [(a.end, a.type) == (b.start, b.type) for a, b in zip([*found], found[1:], strict=False)]
        lost += sum(any(joins[max(i - 1, 0) : i + 1]) for i in range(len(found)))
        merged += sum(joins)
    scores, support = kind.score([s.gold for s in examples], predicted), sum(len(spans_of(s.tags)) for s in examples)
    assert scores["recall"] == pytest.approx((support - lost) / support if support else 0)
    assert scores["precision"] == pytest.approx((support - lost) / (support - merged) if support else 0)


@pytest.mark.parametrize("scheme", ["BIO", "BIOUL"])
@pytest.mark.parametrize("family", pico.FAMILIES)
@pytest.mark.parametrize("max_length", [5, 512])
def test_no_entity_of_a_very_long_sentence_is_lost(scheme, family, max_length):
    rng = random.Random(max_length)
    found, place = [], 0
    while place < LONG - 5:
        length = rng.randint(1, 4)
        found.append((place, place + length, rng.choice(TYPES)))
        place += length + rng.choice([0, 0, 1, 3])
    tags = tuple(tags_of([*map(_span, found)], LONG, "BIO"))
    sentence = Sentence(tuple(rng.choices(WORDS, k=LONG)), tags)
    kind, labels = ner(scheme=scheme), labels_of(TYPES, scheme)
    windows = kind.encode([sentence], labels, pico.shared_tokenizer(family), max_length)
    assert sum(len(w.input_ids) for w in windows) > 4 * 512
    assert max(len(w.input_ids) for w in windows) <= max_length
    scores = kind.score([tags], kind.decode(windows, perfect(windows, len(labels)), [sentence], labels))
    assert (scores["f1"], scores["support"]) == (1.0, len(found))


def _span(values):
    from biosqueeze.tasks.encoding.tag_schemes import EntitySpan

    return EntitySpan(*values)


@pytest.mark.parametrize("family", pico.FAMILIES)
@settings(max_examples=15, deadline=None)
@given(examples=st.lists(sentences(), min_size=1, max_size=3), max_length=st.integers(3, 40))
def test_every_sub_word_has_a_label_once(family, examples, max_length):
    labels = labels_of(TYPES, "BIO")
    tokenizer = pico.shared_tokenizer(family)
    windows = ner(label_all_pieces=True).encode(examples, labels, tokenizer, max_length)
    first_only = ner().encode(examples, labels, tokenizer, max_length)
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    for number, sentence in enumerate(examples):
        own = [w for w in windows if w.example == number]
        whole = ner(label_all_pieces=True).encode([sentence], labels, tokenizer, 100_000)
        pieces = sum(int(np.isin(w.input_ids, [*special], invert=True).sum()) for w in whole)
        assert sum(int((w.labels >= 0).sum()) for w in own) == pieces
        for window in own:
            asked = np.flatnonzero(window.words >= 0)
            assert [labels[i] for i in window.labels[asked]] == [sentence.tags[i] for i in window.words[asked]]
            others = window.labels[(window.words < 0) & (window.labels >= 0)]
            assert not any(labels[i][0] == "B" for i in others)
    assert sum((w.words >= 0).sum() for w in windows) == sum((w.words >= 0).sum() for w in first_only)


def test_labels_on_every_sub_word():
    sentence = Sentence(("qqq", "the", "qq", "qq"), ("B-Gene", "I-Gene", "B-Gene", "O"))
    for scheme, expected in (
        ("BIO", ["B-Gene", "I-Gene", "I-Gene", "I-Gene", "B-Gene", "I-Gene", "O", "O"]),
        ("BIOUL", ["B-Gene", "I-Gene", "I-Gene", "L-Gene", "U-Gene", "I-Gene", "O", "O"]),
        ("IO", ["I-Gene"] * 6 + ["O", "O"]),
    ):
        labels = labels_of(("Gene",), scheme)
        (window,) = ner(scheme=scheme, label_all_pieces=True).encode([sentence], labels, pico.shared_tokenizer(), 16)
        assert [labels[i] for i in window.labels[1:-1]] == expected
        assert window.words.tolist() == [-1, 0, -1, -1, 1, 2, -1, 3, -1, -1]


@given(pairs=st.lists(st.tuples(any_tags("BILU"), any_tags("BILU")), min_size=1, max_size=5))
def test_predictions_of_any_scheme_score_like_seqeval(pairs):
    """Random BIOUL labels for random words: what decode gives has the score that seqeval gives the raw labels."""
    labels = labels_of(TYPES, "BIOUL")
    gold = [tuple(a + ["O"] * (len(b) - len(a))) for a, b in pairs if a or b]
    raw = [b + ["O"] * (len(a) - len(b)) for a, b in pairs if a or b]
    examples = [Sentence(("the",) * len(tags), tags) for tags in gold]
    kind = ner(scheme="BIOUL")
    windows = kind.encode(examples, labels, pico.shared_tokenizer(), 64)
    logits = [np.zeros((len(w.input_ids), len(labels)), np.float32) for w in windows]
    for rows, window in zip(logits, windows, strict=True):
        rows[1:-1][range(len(rows) - 2), [labels.index(tag) for tag in raw[window.example]]] = 1
    decoded = kind.decode(windows, logits, examples, labels)
    bioes = [[[tag.replace("L-", "E-").replace("U-", "S-") for tag in tags] for tags in side] for side in (gold, raw)]
    assert score_entities(bioes[0], decoded) == _seqeval(*bioes)


@given(pairs=st.lists(st.tuples(any_tags("BIES"), any_tags("BIES")), min_size=1, max_size=5))
def test_score_equals_seqeval_on_anything(pairs):
    gold = [a + ["O"] * (len(b) - len(a)) for a, b in pairs]
    predicted = [b + ["O"] * (len(a) - len(b)) for a, b in pairs]
    assert score_entities(gold, predicted) == _seqeval(gold, predicted)


def _seqeval(gold, predicted) -> dict[str, float]:
    if not any(tag != "O" for tags in [*gold, *predicted] for tag in tags):
        return {"precision": 0, "recall": 0, "f1": 0, "support": 0}
    report = classification_report(gold, [*map(list, predicted)], output_dict=True, zero_division=0)
    micro = report["micro avg"]
    kinds = [name for name in report if not name.endswith(" avg")]
    expected = {"precision": micro["precision"], "recall": micro["recall"], "f1": micro["f1-score"]}
    expected |= {f"f1-{name}": report[name]["f1-score"] for name in kinds}
    return expected | {"support": micro["support"]} | {f"support-{name}": report[name]["support"] for name in kinds}


# ------------------------------------------------------------------ reading for another scheme

BIO = "a\tB-X\nb\tI-X\nc\tI-X\nd\tB-X\ne\tO\n\nf\tB-Y\ng\tO\n"
BIOES = "a\tB-X\nb\tI-X\nc\tE-X\nd\tS-X\ne\tO\n\nf\tS-Y\ng\tO\n"
IOB1 = "a\tI-X\nb\tI-X\nc\tI-X\nd\tB-X\ne\tO\n\nf\tI-Y\ng\tO\n"
GOLD = [("B-X", "I-X", "I-X", "B-X", "O"), ("B-Y", "O")]


def _written(directory, **files: str) -> str:
    for name, text in files.items():
        (directory / f"{name}.tsv").write_text(text)
    return str(directory)


@pytest.mark.parametrize("text", [BIO, BIOES, BIOES.replace("E-", "L-").replace("S-", "U-"), IOB1])
@pytest.mark.parametrize("scheme", [None, "BIO", "IO", "BIOUL"])
def test_schemes_of_files(tmp_path, text, scheme, capsys):
    own = "BIOUL" if text[9:].count("\tE-") or "U-" in text else "BIO"
    dataset = ner(scheme=scheme).read(_written(tmp_path, train=text), ("train",))
    assert [s.gold for s in dataset.splits["train"]] == GOLD
    assert dataset.scheme == (scheme or own)
    if text is BIO and scheme in (None, "BIO"):
        assert dataset.labels == ("O", "B-X", "B-Y", "I-X")  # those that occur
    else:
        assert dataset.labels == labels_of(("X", "Y"), scheme or own)
    written = "BIOUL" if own == "BIOUL" else "BIO" if text is BIO else "IOB1"
    said = " ".join(capsys.readouterr().err.split())
    assert f"({written})" in said if dataset.scheme == written else f"({written}, as {dataset.scheme})" in said


def test_a_split_alone_has_the_labels_that_occur(tmp_path):
    source = _written(tmp_path, test=BIO)
    assert ner(scheme="BIOUL").read(source, ("test",)).labels == ("O", "B-X", "I-X", "L-X", "U-X", "U-Y")
    assert ner(scheme="IO").read(source, ("test",)).labels == ("O", "I-X", "I-Y")


def test_labels_for_every_sub_word_have_an_inside(tmp_path):
    source = _written(tmp_path, train="a\tB-X\nb\tO\n")
    assert ner().read(source, ("train",)).labels == ("O", "B-X")
    assert ner(label_all_pieces=True).read(source, ("train",)).labels == ("O", "B-X", "I-X")


def test_letter_that_train_lacks_is_a_known_label(tmp_path):
    source = _written(tmp_path, train="a\tB-X\nb\tO\n", dev="a\tB-X\nb\tI-X\nc\tI-X\n")
    for scheme in ("BIOUL", None):
        dataset = ner(scheme=scheme).read(source, ("train", "dev"))
        assert dataset.labels == labels_of(("X",), scheme or "BIO")


def test_only_some_types(tmp_path, capsys):
    source = _written(tmp_path, train=BIO, test=BIO.replace("a\t", "z\t"))
    dataset = ner(types=("Y",)).read(source, ("train", "test"))
    assert dataset.labels == ("O", "B-Y")
    assert [s.gold for s in dataset.splits["test"]] == [("O",) * 5, ("B-Y", "O")]
    said = " ".join(capsys.readouterr().err.split())
    assert "only Y; counted as O: 4 X" in said
    assert ner(types=("X", "Y")).read(source, ("train",)).labels == ("O", "B-X", "B-Y", "I-X")


@pytest.mark.parametrize("scheme", ["BIO", "IO", "BIOUL"])
def test_types_select_predictions(scheme):
    gold = ("B-Gene", "I-Gene", "O", "B-Disease", "B-Gene")
    sentence = Sentence(("carcino", "the", "(", "hepatitis", "qqq"), gold)
    labels = labels_of(("Disease", "Gene"), scheme)
    for name, whole in (("ner", 2), ("pico", 3)):
        task = open_task(name, Formulation(types=("Gene",)))
        windows = task.encode([sentence], labels, pico.shared_tokenizer(), 64)
        logits = perfect(windows, len(labels))
        predicted = task.decode(windows, logits, [sentence], labels)
        assert predicted == [["B-Gene", "I-Gene", "O", "O", "B-Gene"]]
        scores = task.score([["B-Gene", "I-Gene", "O", "O", "B-Gene"]], predicted)
        assert (scores[task.METRIC], scores["support"], "f1-Disease" in scores) == (1, whole, False)
        (told,) = task.describe(windows, logits, [sentence], labels)
        assert [(one["type"], one["words"]) for one in told["entities"]] == [("Gene", [0, 2]), ("Gene", [4, 5])]


def test_missing_type_is_refused(tmp_path):
    source = _written(tmp_path, train=BIO, test="a\tB-Y\n")
    with pytest.raises(UsageError, match=r"no entity of the type 'x'.*There are: X, Y"):
        ner(types=("x",)).read(source, ("train",))
    with pytest.raises(UsageError, match=r"'Z'.*There are: X, Y"):
        ner(types=("X", "Z")).read(source, ("train",))
    assert ner(types=("X", "Y")).read(source, ("test",)).labels == ("O", "B-Y")  # a small split may lack one
    with pytest.raises(UsageError, match=r"'X'.*There are: Y"):
        ner(types=("X",)).read(source, ("test",))
    (tmp_path / "bare").mkdir()
    with pytest.raises(UsageError, match="their tags have no types"):
        ner(types=("X",)).read(_written(tmp_path / "bare", train="a\tB\n"), ("train",))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a\tB-X\nb\tE-X\nc\tB-X\nd\tO\n", r":3: 'B-X' at 'c' is followed by 'O'.*:2: the tag is 'E-X'.*write S-X"),
        ("a\tU-X\nb\tB-X\nc\tI-X\n", r":3: 'I-X' at 'c' is followed by the end of the sentence.*write L-X"),
        ("a\tU-X\nb\tL-X\n", r":2: 'L-X' at 'b' follows 'U-X'.*write B-X"),
        ("a\tU-X\nb\tI-X\nc\tL-X\n", r":2: 'I-X' at 'b' follows 'U-X'"),
        ("a\tU-X\nb\tS-X\n", r":2: the tag is 'S-X', but .*:1: the tag is 'U-X'"),
    ],
)
def test_bioul_out_of_order_is_named_by_file_and_line(tmp_path, text, says):
    with pytest.raises(Exception, match=says) as caught:
        ner().read(_written(tmp_path, train=text), ("train",))
    assert str(caught.value).startswith(f"{tmp_path / 'train.tsv'}:")
    assert "\n" not in str(caught.value)


def test_unused_options_are_refused():
    assert open_task("ner").with_scheme("IO").formulation.scheme == "IO"
    with pytest.raises(UsageError, match="--negative"):
        ner(negative="none")
