"""Windows over passages, and what is read from their logits."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from biosqueeze.data.collate import pad
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.tasks import Formulation, open_task
from biosqueeze.tasks.encoding.spans import ANSWER_TOKENS
from biosqueeze.tasks.qa import Kind
from biosqueeze.tasks.readers.questions import Passage, Question
from tests import pico

FAMILIES = ("bert", "roberta", "distilbert", "albert")
WORDS = ("the", "carcino", "BRCA1", "hepatitis", "(", "-", "x" * 9, "é", "naïveté", "12.5", "[SEP]", "🧬", "µg", "中文")
GAPS = (" ", " ", " ", "  ", "\n", "")


@st.composite
def questions(draw, most: int = 40) -> Question:
    """A question about one or two passages, each perhaps with an answer that is a run of words."""
    passages = []
    for _ in range(draw(st.integers(1, 2))):
        words = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=most))
        text, spans = "", []
        for word in words:
            spans.append((len(text), len(text) + len(word)))
            text += word + draw(st.sampled_from(GAPS))
        first = draw(st.integers(0, len(words) - 1))
        last = draw(st.integers(first, min(first + 12, len(words) - 1)))
        answer = draw(st.sampled_from([None, (spans[first][0], spans[last][1])]))
        passages.append(Passage(text, answer))
    asked = " ".join(draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9)))
    texts = tuple(p.text[p.answer[0] : p.answer[1]] for p in passages if p.answer)
    return Question("q", asked, tuple(passages), texts)


def whole_pieces(text: str, answer: tuple[int, int], family: str) -> tuple[int, int]:
    """The characters of the pieces of the whole text that touch the answer, by looking at each piece."""
    offsets = pico.shared_tokenizer(family)(text, add_special_tokens=False, return_offsets_mapping=True)[
        "offset_mapping"
    ]
    touching = [(start, end) for start, end in offsets if any(answer[0] <= at < answer[1] for at in range(start, end))]
    return touching[0][0], touching[-1][1]


def encode(examples, family="bert", length=40, stride=None):
    return Kind(Formulation(stride=stride)).encode(examples, (), pico.shared_tokenizer(family), length)


@pytest.mark.parametrize("family", FAMILIES)
@given(asked=questions(), length=st.integers(9, 70), stride=st.one_of(st.none(), st.integers(0, 70)))
@settings(deadline=None)
def test_every_answer_is_in_some_window(family, asked, length, stride):
    windows = encode([asked], family, length, stride)
    assert all(len(window.input_ids) == len(window.token_type_ids) <= length for window in windows)
    for index, passage in enumerate(asked.passages):
        own = [window for window in windows if window.passage == index]
        held = [window for window in own if window.span != (0, 0)]
        if passage.answer is None:
            assert not held
            continue
        wanted = whole_pieces(passage.text, passage.answer, family)
        for window in held:
            first, last = (window.offsets[place - window.first] for place in window.span)
            assert (first[0], last[1]) == wanted
        pieces = len(pico.shared_tokenizer(family)(passage.text[slice(*wanted)], add_special_tokens=False)["input_ids"])
        room = length - len(own[0].input_ids) + len(own[0].offsets) if own[0].scored else 0
        if pieces + 2 < room:  # two: cut out of its text, an answer may be spelt with other pieces
            assert held


@pytest.mark.parametrize("family", FAMILIES)
@given(asked=questions(), length=st.integers(9, 70), stride=st.one_of(st.none(), st.integers(0, 70)))
@settings(deadline=None)
def test_windows_cover_each_passage_without_a_gap(family, asked, length, stride):
    tokenizer = pico.shared_tokenizer(family)
    windows = encode([asked], family, length, stride)
    for index, passage in enumerate(asked.passages):
        whole = tokenizer(passage.text, add_special_tokens=False)["input_ids"]
        own = [window for window in windows if window.passage == index and window.scored]
        room = max(len(window.offsets) for window in own)
        shared = min(128, room // 2) if stride is None or stride >= room else stride
        rebuilt: list[int] = []
        for number, window in enumerate(own):
            inside = window.input_ids[window.first : window.first + len(window.offsets)].tolist()
            kept = rebuilt[len(rebuilt) - shared :] if number and shared else []
            assert inside[: len(kept)] == kept
            rebuilt += inside[len(kept) :]
        assert rebuilt == whole


@pytest.mark.parametrize("family", FAMILIES)
@given(asked=questions(most=12), stride=st.integers(0, 9))
@settings(deadline=None)
def test_windows_equal_the_tokenizer_s_pairs(family, asked, stride):
    tokenizer = pico.shared_tokenizer(family)
    assume(len(tokenizer(asked.text, add_special_tokens=False)["input_ids"]) <= 64)  # a longer question loses its end
    for window in encode([asked], family, 500, stride):
        text = asked.passages[window.passage].text
        theirs = tokenizer(asked.text, text, return_token_type_ids=True, return_offsets_mapping=True)
        assert window.input_ids.tolist() == theirs["input_ids"]
        assert window.token_type_ids.tolist() == theirs["token_type_ids"]
        places = [at for at, owner in enumerate(theirs.sequence_ids(0)) if owner == 1]
        assert window.first == places[0]
        assert window.offsets.tolist() == [list(theirs["offset_mapping"][at]) for at in places]


@given(asked=st.lists(questions(most=60), min_size=1, max_size=3), length=st.integers(12, 60))
@settings(deadline=None)
def test_scored_windows_do_not_depend_on_the_answer(asked, length):
    blind = [Question(q.id, q.text, tuple(Passage(p.text) for p in q.passages)) for q in asked]
    seen = [(w.example, w.passage, w.input_ids.tolist()) for w in encode(asked, length=length, stride=2) if w.scored]
    assert seen == [(w.example, w.passage, w.input_ids.tolist()) for w in encode(blind, length=length, stride=2)]


def test_window_around_a_cut_answer_is_for_training_only():
    text = " ".join(["the"] * 30)
    asked = Question("q", "which", (Passage(text, (4 * 10, 4 * 18 - 1)),), (text[40:71],))
    windows = encode([asked], length=3 + 5 + 10, stride=0)  # "which" is five pieces: ten for the passage
    assert [window.scored for window in windows] == [True, True, True]
    assert windows[1].span == (7, 14)
    asked = Question("q", "which", (Passage(text, (4 * 6, 4 * 14 - 1)),), (text[24:55],))
    windows = encode([asked], length=3 + 5 + 10, stride=0)
    assert [window.scored for window in windows] == [True, True, True, False]
    assert [window.span for window in windows[:3]] == [(0, 0)] * 3
    first, last = (windows[3].offsets[place - windows[3].first] for place in windows[3].span)
    assert (first[0], last[1]) == (24, 55)
    shouting = [np.full((len(w.input_ids), 2), 0 if w.scored else 99, dtype=np.float32) for w in windows]
    (found,) = Kind().decode(windows, shouting, [asked], ())
    assert max(found.scores) == 0


def test_features_collate():
    asked = Question("q", "the gene", (Passage("the cells of carcino", (4, 9)),), ("cells",))
    windows = encode([asked, Question("r", "a", (Passage("gene"),))])
    batch = pad([window.features for window in windows], 0)
    assert {name: array.shape for name, array in batch.items()} == {
        "input_ids": (2, 9), "token_type_ids": (2, 9), "attention_mask": (2, 9), "starts": (2,), "ends": (2,),
    }  # fmt: skip
    assert batch["starts"].dtype == batch["ends"].dtype == np.int64
    assert batch["starts"].tolist() == batch["ends"].tolist() == [5, 0]
    assert pico.shared_tokenizer("bert").convert_ids_to_tokens(windows[0].input_ids)[5] == "cells"
    assert batch["token_type_ids"][0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1]


def test_long_question_is_truncated_with_a_warning(capsys):
    long = Question("q", " ".join(["the"] * 90), (Passage("gene protein"),))
    windows = encode([long, Question("r", "the", (Passage("gene"),))], length=128)
    assert [window.first for window in windows] == [1 + 62 + 1, 3]
    assert "1 of 2 questions are longer than 62 tokens" in capsys.readouterr().err
    encode([long], length=256)
    assert "1 of 1 questions are longer than 64 tokens" in capsys.readouterr().err


def test_invalid_strides_are_explained(capsys):
    asked = Question("q", "the", (Passage(" ".join(["gene"] * 60)),))
    with pytest.raises(UsageError, match="--stride -1 is negative"):
        encode([asked], stride=-1)
    encode([asked], stride=500)
    assert "1 passages have less room than --stride 500" in capsys.readouterr().err
    with pytest.raises(SqueezeError, match="--max-length 5 or more"):
        encode([asked], length=4)


def test_passage_without_tokens_has_no_answer(capsys):
    asked = [Question("q", "the", (Passage("\u200b"),)), Question("r", "the", (Passage("gene"),))]
    windows = encode(asked)
    assert [window.example for window in windows] == [1]
    assert "1 passages have no token" in capsys.readouterr().err
    found = Kind().decode(windows, [np.zeros((5, 2), np.float32)], asked, ())
    assert [answers.texts for answers in found] == [(), ("gene",)]
    assert Kind().describe(windows, [np.zeros((5, 2), np.float32)], asked, ())[0] == {"answers": [], "no_answer": 1.0}


def every_span(windows, logits, question: Question) -> list[tuple[float, str]]:
    """Sum and text of every span of up to 30 tokens in every window, the highest sum first."""
    found = []
    for window, scores in zip(windows, logits, strict=True):
        text = question.passages[window.passage].text
        for i, (start, _) in enumerate(window.offsets):
            for j in range(i, min(i + ANSWER_TOKENS, len(window.offsets))):
                total = float(scores[window.first + i, 0]) + float(scores[window.first + j, 1])
                found.append((total, text[start : window.offsets[j][1]].strip()))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("family", ["bert", "roberta"])
@given(asked=questions(), seed=st.integers(0, 9), length=st.integers(12, 60))
@settings(deadline=None, max_examples=60)
def test_best_spans_equal_exhaustive_search(family, asked, seed, length):
    windows = [window for window in encode([asked], family, length, 3) if window.scored]
    rng = np.random.default_rng(seed)
    logits = [rng.normal(size=(len(w.input_ids) + 2, 2)).astype(np.float32) for w in windows]
    (found,) = Kind().decode(windows, logits, [asked], ())
    spans = every_span(windows, logits, asked)
    wanted: dict[str, float] = {}
    for total, text in spans[:20]:
        if text:
            wanted.setdefault(text, total)
    assert found.texts[: len(wanted)] == tuple(wanted)
    assert found.scores[: len(wanted)] == pytest.approx(tuple(wanted.values()))
    assert len(found.texts) == len(set(found.texts)) <= 20
    assert list(found.scores) == sorted(found.scores, reverse=True)
    assert set(found.texts) <= {text for _, text in spans}
    assert found.null == pytest.approx(min(float(row[0, 0]) + float(row[0, 1]) for row in logits))


@pytest.mark.parametrize("family", FAMILIES)
@given(asked=questions(most=25), length=st.integers(40, 80))
@settings(deadline=None, max_examples=60)
def test_perfect_model_returns_the_answer(family, asked, length):
    windows = encode([asked], family, length)
    logits = []
    for window in windows:
        scores = np.zeros((len(window.input_ids), 2), dtype=np.float32)
        if window.span != (0, 0):
            scores[window.span[0], 0] = scores[window.span[1], 1] = 9
        logits.append(scores)
    (found,) = Kind().decode(windows, logits, [asked], ())
    held = [w for w in windows if w.span != (0, 0) and w.scored and w.span[1] - w.span[0] < ANSWER_TOKENS]
    if held:
        passages = [p for p in asked.passages if p.answer]
        wanted = {p.text[slice(*whole_pieces(p.text, p.answer, family))].strip() for p in passages}
        assert found.texts[0] in wanted


def test_answers_of_all_passages_are_described():
    asked = Question("q", "the", (Passage("gene protein"), Passage("the cells of mutation")), ("cells",))
    windows = encode([asked])
    logits = [np.full((len(window.input_ids), 2), -9, dtype=np.float32) for window in windows]
    logits[1][windows[1].first + 1] = (4, 3)  # cells
    logits[0][windows[0].first] = (2, 2)  # gene
    logits[0][0] = logits[1][0] = (1, 0)  # [CLS]
    (found,) = Kind().decode(windows, logits, [asked], ())
    assert found.texts[:2] == ("cells", "gene")
    assert found.scores[:2] == (7, 4)
    assert found.null == 1
    (said,) = Kind().describe(windows, logits, [asked], ())
    best, second = said["answers"][:2]
    chances = softmax([found.null, *found.scores])
    assert best == {"text": "cells", "start": 4, "end": 9, "score": pytest.approx(chances[1]), "passage": 1}
    assert second == {"text": "gene", "start": 0, "end": 4, "score": pytest.approx(chances[2]), "passage": 0}
    assert said["no_answer"] == pytest.approx(chances[0])
    assert said["no_answer"] + sum(answer["score"] for answer in said["answers"]) == pytest.approx(1)
    for answer in said["answers"]:
        assert asked.passages[answer["passage"]].text[answer["start"] : answer["end"]] == answer["text"]


def test_question_from_record():
    asked = Kind().example_from_record({"question": "which", "context": "the gene", "more": 1})
    assert (asked.text, asked.passages, asked.answers) == ("which", (Passage("the gene"),), ())
    renamed = Kind(Formulation(column=("context=abstract_text",)))
    assert renamed.example_from_record({"query": "which", "abstract_text": "the gene"}).passages == (
        Passage("the gene"),
    )
    tuned = Kind(Formulation(column=("answers=gold", "context=abstract_text")))
    assert tuned.example_from_record({"query": "which", "abstract_text": "the gene"}).answers == ()
    with pytest.raises(SqueezeError, match="no column for 'context'"):
        Kind().example_from_record({"question": "which"})
    with pytest.raises(SqueezeError, match='empty "question"'):
        Kind().example_from_record({"question": " ", "context": "x"})


def test_unused_option_is_refused():
    assert open_task("qa", Formulation(stride=64), "span").formulation.stride == 64
    with pytest.raises(UsageError, match="--scheme is not used by the task qa"):
        open_task("qa", Formulation(scheme="IO"))
