from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.data import sentences as sentence_rules
from biosqueeze.data.sentences import sentences_of, words_of

PIECES = st.sampled_from(
    [
        "e.g.",
        "Fig. 2",
        "p53",
        "The",
        "J. Smith",
        "0.5",
        ".",
        ". ",
        "! ",
        "?",
        "\n",
        " ",
        "\u00a0",
        "\u2028",
        "(",
        ")",
        '"',
        "a",
    ]
)
TEXTS = st.one_of(st.text(), st.lists(PIECES, max_size=30).map("".join), st.lists(PIECES, max_size=30).map(" ".join))


def _words(text):
    return [text[a:b] for a, b in words_of(text)]


def _sentences(text):
    return [text[a:b] for a, b in sentences_of(text)]


@given(TEXTS)
def test_words_are_ordered_and_cover_all_but_white_space(text):
    spans = words_of(text)
    places = [place for a, b in spans for place in range(a, b)]
    assert places == [place for place, sign in enumerate(text) if not sign.isspace()]
    assert all(a < b for a, b in spans)
    for word in _words(text):
        assert len(word) == 1 or all(sign.isalnum() or "\u0300" <= sign <= "\u036f" for sign in word)


@given(TEXTS)
def test_neighbouring_letters_and_digits_share_a_word(text):
    begins = {a for a, _ in words_of(text)}
    for place in range(1, len(text)):
        if text[place - 1].isalnum() and text[place].isalnum():
            assert place not in begins


@given(TEXTS)
def test_sentences_partition_the_words(text):
    spans = sentences_of(text)
    assert all(a < b for a, b in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    held = [word for a, b in spans for word in words_of(text) if a <= word[0] and word[1] <= b]
    assert held == words_of(text)
    for sentence in _sentences(text):
        assert sentence == sentence.strip()
        assert "\n" not in sentence


def test_words():
    text = "IL-2's p53(+/-) na\u00efve, cafe\u0301 0.5% \u03b1_1"
    expected = "IL - 2 ' s p53 ( + / - ) na\u00efve , cafe\u0301 0 . 5 % \u03b1 _ 1"
    assert _words(text) == expected.split()
    assert words_of("") == words_of(" \n\t") == []


@pytest.mark.parametrize(
    "text",
    [
        "Some drugs, e.g. Aspirin, did well.",
        "It was (i.e. In mice) so.",
        "Rats got 5 mg i.v. Doxorubicin twice.",
        "Rats got it i.v. 5 times.",
        "See Fig. 2 and Figs. 3A for more.",
        "Wild type vs. Mutant cells.",
        "As J. R. Smith and A. Jones found.",
        "Reported by Brown et al. (2003) before.",
        "A change of 0.5 and .7 was seen.",
        "Printed with spaces, 0. 7 and 1. 5 apart.",
        "Infected with E. Coli strains.",
        "Read in ref. 4 and no. 7 here.",
        "Dr. Who and Prof. X agree.",
        "Approx. 5 of them, cf. Table 1.",
        "The enzyme (p.Val600Glu) and www.example.org stay.",
        "Washington D.C. Hospitals took part.",
        "1. Introduction",
        "An effect was seen ... and it lasted",
        "What? he said.",
    ],
)
def test_one_sentence(text):
    assert _sentences(text) == [text]


@pytest.mark.parametrize(
    "sentences",
    [
        ("Zinc helped.", "It was cheap."),
        ("Did zinc help?", "Yes!", "Very much."),
        ('He said "no."', "(We agree.)", "So do they."),
        ("Growth fell in 1998.", "The cause is open."),
        ("It lacks vitamin C.", "We gave it."),
        ("Doses were given i.v.", "The rats slept."),
        ("Patients with CF.", "Treatment was new."),
        ("It took 5 ms.", "Later it took less."),
        ("The answer is no.", "Others say so."),
        ("It needs this gene.", "p53 is another."),
        ("It needs this gene.", "\u03b1-Synuclein is another."),
        ("It binds.", "mTOR does not."),
        ("Seen before [3].", "Here too."),
        ("As Smith et al.", "The others did not."),
        ("1. Zinc helped.", "2. Iron did not."),
        ("Rose to 14.", "Then fell."),
    ],
)
def test_several_sentences(sentences):
    assert _sentences(" ".join(sentences)) == list(sentences)


def test_a_line_end_ends_a_sentence():
    assert _sentences("Zinc in gout\nlow levels\r\n\n of it.\n") == ["Zinc in gout", "low levels", "of it."]
    assert sentences_of("") == sentences_of(" \n ") == []


WORDS = st.sampled_from(
    [
        "p53",
        "cells",
        "patients",
        "Figs.",
        "e.g.",
        "al.",
        "approx.",
        "14.",
        "A.",
        "(treated).",
        "treatment)",
        "The",
        "the",
        "([",
        "[3].",
        "gene.",
        "études.",
        "suppl.",
        "Patients",
        "observed?",
        "receptors.",
    ]
)


@given(st.lists(st.tuples(WORDS, st.sampled_from([" ", "  ", "\n"])), max_size=12))
def test_the_shortcut_finds_the_same_ends(words):
    text = "".join(word + space for word, space in words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sentence_rules, "_is_plain_end", lambda *_: False)
        expected = sentences_of(text)
    assert sentences_of(text) == expected


@pytest.mark.parametrize("text", ["." * 200_000 + "x", "e.g. " * 200_000])
def test_stops_that_end_nothing_take_no_minutes(text):
    assert sentences_of(text) == [(0, len(text.rstrip()))]
