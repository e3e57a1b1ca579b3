"""Words found in ids alone, against the words of the text: by the tokenizer's offsets, and by its `word_ids()`."""

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from biosqueeze.data.word_starts import is_byte_level, word_starts
from biosqueeze.errors import SqueezeError
from tests import pico

KINDS = {"WordPiece": "bert", "byte-level BPE": "roberta", "SentencePiece": "albert"}
WORDS = st.one_of(
    st.sampled_from([*pico.words()[:60], "IL-2,", "(p<0.05)", "BRCA1", "anti-CD20"]),
    st.text(alphabet="abcz019.,-(é\u03b2", min_size=1, max_size=9),
)
TEXTS = st.lists(WORDS, min_size=1, max_size=8).map(" ".join)


@cache
def _starts(family: str):
    return word_starts(pico.shared_tokenizer(family))


def _encoded(family: str, text: str):
    return pico.shared_tokenizer(family)(text, add_special_tokens=False, return_offsets_mapping=True)


def _found(family: str, ids: list[int]) -> list[bool]:
    return [place == 0 or bool(_starts(family)[number]) for place, number in enumerate(ids)]


@settings(deadline=None)
@given(text=TEXTS)
def test_wordpiece_words_are_those_of_the_tokenizer(text):
    encoded = _encoded("bert", text)
    words = encoded.word_ids()
    expected = [place == 0 or word != words[place - 1] for place, word in enumerate(words)]
    assert _found("bert", encoded["input_ids"]) == expected


@settings(deadline=None)
@given(text=TEXTS, family=st.sampled_from(["roberta", "albert", "xlm-roberta"]))
def test_words_lie_between_white_space(text, family):
    encoded = _encoded(family, text)
    if pico.shared_tokenizer(family).unk_token_id in encoded["input_ids"]:
        return  # an unknown piece is a special token, and belongs to no word
    words, last = [], None
    for start, end in encoded["offset_mapping"]:
        # The number of spaces before the token; offsets of a lone mark of a space hold only the space.
        place = start if start == end or not text[start:end].isspace() else end
        words.append(text[:place].count(" "))
    found = _found(family, encoded["input_ids"])
    for word, is_start in zip(words, found, strict=True):
        assert is_start == (word != last), (encoded.tokens(), found)
        last = word


@settings(deadline=None)
@given(text=TEXTS)
def test_byte_level_words_join_those_of_the_tokenizer(text):
    encoded = _encoded("roberta", text)
    words, found = encoded.word_ids(), _found("roberta", encoded["input_ids"])
    within = [word == before for before, word in pairwise(words)]
    assert not any(is_start and inner for is_start, inner in zip(found[1:], within, strict=True))


@settings(deadline=None)
@given(text=TEXTS)
def test_sentencepiece_words_are_those_of_the_tokenizer(text):
    encoded = _encoded("albert", text)
    words, ids = encoded.word_ids(), encoded["input_ids"]
    if pico.shared_tokenizer("albert").unk_token_id in ids:
        return
    expected = [place == 0 or word != words[place - 1] for place, word in enumerate(words)]
    assert _found("albert", ids) == expected


@pytest.mark.parametrize("family", KINDS.values(), ids=KINDS)
def test_the_table_covers_every_id(family):
    tokenizer, starts = pico.shared_tokenizer(family), _starts(family)
    assert len(starts) == 1 + max(tokenizer.get_vocab().values())
    assert starts[tokenizer.all_special_ids].all()
    assert 0 < starts.sum() < len(starts)


def test_added_words_and_spaces_start_words():
    tokenizer = pico.tokenizer_of("roberta")
    tokenizer.add_tokens(["  ", "COVID"])
    starts = word_starts(tokenizer)
    assert starts[tokenizer.convert_tokens_to_ids("  ")]
    assert not starts[tokenizer.convert_tokens_to_ids("COVID")]


def test_spaces_that_a_normalizer_marks():
    vocabulary = {"a": 0, "\u2581": 1, "\u2581a": 2}
    core = Tokenizer(models.BPE(vocabulary, [("\u2581", "a")]))
    core.normalizer = normalizers.Sequence([normalizers.Replace(" ", "\u2581")])
    core.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.Fuse()])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core)
    assert tokenizer("aa a")["input_ids"] == [0, 0, 2]
    assert word_starts(tokenizer).tolist() == [False, True, True]
    assert not is_byte_level(tokenizer)


def test_other_tokenizers_are_an_error():
    core = Tokenizer(models.BPE({"a": 0, "b</w>": 1}, [], end_of_word_suffix="</w>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(SqueezeError, match=r"BPE tokenizer do not show.*mask single pieces"):
        word_starts(PreTrainedTokenizerFast(tokenizer_object=core))


@pytest.mark.parametrize("family", KINDS.values(), ids=KINDS)
def test_byte_level(family):
    assert is_byte_level(pico.shared_tokenizer(family)) == (family == "roberta")
