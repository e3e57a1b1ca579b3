"""Cut tokenizers: texts of kept tokens are encoded as before, and all others too."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from biosqueeze.errors import SqueezeError
from biosqueeze.vocabularies.cut_tokenizer import cut_tokenizer
from biosqueeze.vocabularies.kept_tokens import TokenizerContent, choose_tokens
from tests import pico

KINDS = ("bert", "roberta", "albert")
FAMILIES = (*KINDS, "deberta-v2", "eurobert")
SENTENCES = tuple(pico.sentences(30, seed=4))
WORDS = st.sampled_from([*pico.words(), "Hepatitis", "BRCA1", "(x)"]) | st.text(max_size=6)
TEXTS = st.lists(WORDS, min_size=1, max_size=8).map(" ".join)


def counted(tokenizer: Any, texts: Any) -> list[int]:
    counts = Counter(number for text in texts for number in tokenizer(text, add_special_tokens=False)["input_ids"])
    return [counts[number] for number in range(len(tokenizer))]


def cut(tokenizer: Any, texts: Any, most: int | None = None) -> tuple[Any, tuple[int, ...]]:
    content = TokenizerContent.of(tokenizer)
    kept = choose_tokens(content, counted(tokenizer, texts), most, ()).ids
    return cut_tokenizer(tokenizer, content, kept), kept


@pytest.mark.parametrize("family", KINDS)
@given(seen=st.sets(st.sampled_from(SENTENCES), max_size=6), text=TEXTS, spare=st.integers(0, 60))
def test_texts_of_kept_tokens_are_encoded_as_before(family: str, seen: Any, text: str, spare: int) -> None:
    tokenizer = pico.shared_tokenizer(family)
    least = len(cut(tokenizer, ())[1])
    smaller, kept = cut(tokenizer, seen, least + spare)
    assert len(smaller) == len(kept) <= least + spare
    for each in (text, *seen, *SENTENCES[:3]):
        before, after = tokenizer(each)["input_ids"], smaller(each)["input_ids"]
        if set(before) <= set(kept):
            assert [kept[number] for number in after] == before
        unknown = tokenizer.unk_token_id
        if unknown is not None:
            assert after.count(smaller.unk_token_id) <= before.count(unknown)
        assert len(after) >= len(before) or unknown in before


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_that_occur_are_kept(family: str) -> None:
    tokenizer = pico.shared_tokenizer(family)
    pair = "carci noma", "the patients"
    texts = (*SENTENCES[:4], *pair)
    smaller, kept = cut(tokenizer, texts)
    counts = counted(tokenizer, texts)
    assert {number for number, count in enumerate(counts) if count} <= set(kept) and len(kept) < len(tokenizer)
    names = set(smaller.get_vocab())
    assert set(tokenizer.all_special_tokens) <= names
    assert {token for token in tokenizer.get_vocab() if len(token.removeprefix("##")) == 1} <= names
    assert smaller.special_tokens_map == tokenizer.special_tokens_map
    before, after = tokenizer(*pair), smaller(*pair)
    assert after | {"input_ids": [kept[number] for number in after["input_ids"]]} == before
    assert smaller.decode(after["input_ids"]) == tokenizer.decode(before["input_ids"])


def test_stock_transformers_loads_a_cut_tokenizer(tmp_path: Any) -> None:
    for family in FAMILIES:
        smaller, _ = cut(pico.shared_tokenizer(family), SENTENCES[:4])
        smaller.save_pretrained(tmp_path / family)
        loaded = AutoTokenizer.from_pretrained(tmp_path / family)
        assert loaded(list(SENTENCES))["input_ids"] == smaller(list(SENTENCES))["input_ids"]
        assert loaded.mask_token_id == smaller.mask_token_id


def test_most_frequent_tokens_are_kept_first() -> None:
    tokenizer = pico.shared_tokenizer("bert")
    least = len(cut(tokenizer, ())[1])
    texts = ["the the the protein", "the protein mutation"]
    names = [set(cut(tokenizer, texts, least + more)[0].get_vocab()) for more in range(4)]
    added = [names[place] - names[place - 1] for place in range(1, 4)]
    assert added == [{"the"}, {"protein"}, {"mutation"}]
    with pytest.raises(SqueezeError, match=f"take {least}; give a larger number"):
        cut(tokenizer, texts, least - 1)


def test_results_of_merges_are_kept() -> None:
    """`abc` is made of `a` and `bc`: without `bc`, it could not be formed."""
    vocabulary = {token: number for number, token in enumerate(["a", "b", "c", "d", "bc", "ab", "abc", "cd"])}
    merges = [["b", "c"], ["a", "b"], ["a", "bc"], ["c", "d"]]
    model = {"type": "BPE", "vocab": vocabulary, "merges": merges}
    core = Tokenizer.from_str(json.dumps({"version": "1.0", "model": model, "added_tokens": []}))
    build: Any = PreTrainedTokenizerFast
    smaller, _ = cut(build(tokenizer_object=core), ["abc"])
    assert set(smaller.get_vocab()) == {"a", "b", "c", "d", "bc", "abc"}
    assert smaller.tokenize("abc") == ["abc"] and smaller.tokenize("abd") == ["a", "b", "d"]


def test_text_that_characters_cannot_spell_is_kept() -> None:
    """The characters of `\u00e9x` are no tokens, so this word would become unknown without it."""
    vocabulary = ["[UNK]", "a", "##a", "x", "##x", "ax", "\u00e9x"]
    model = {"type": "WordPiece", "vocab": {piece: number for number, piece in enumerate(vocabulary)}}
    model |= {"unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    core = Tokenizer.from_str(json.dumps({"version": "1.0", "model": model, "added_tokens": []}))
    build: Any = PreTrainedTokenizerFast
    smaller, _ = cut(build(tokenizer_object=core, unk_token="[UNK]"), ["a"])
    assert smaller.tokenize("\u00e9x") == ["\u00e9x"] and smaller.tokenize("ax") == ["a", "##x"]
    assert "ax" not in smaller.get_vocab()


def test_unknown_characters_keep_their_score() -> None:
    """Unigram gives unknown characters the lowest score of all pieces minus 10: that piece decides between paths."""
    pieces = [["<unk>", 0.0], *([letter, -6.0] for letter in "bcdz"), ["\u00e9b", -32.0], ["bcd", -1.0], ["zz", -40.0]]
    model = {"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": False}
    core = Tokenizer.from_str(json.dumps({"version": "1.0", "model": model, "added_tokens": []}))
    build: Any = PreTrainedTokenizerFast
    tokenizer = build(tokenizer_object=core, unk_token="<unk>")
    smaller, _ = cut(tokenizer, ["bcd"])
    assert tokenizer.tokenize("\u00e9bcd") == smaller.tokenize("\u00e9bcd") == ["\u00e9b", "c", "d"]


def test_other_kinds_of_tokenizer_are_refused() -> None:
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    core = Tokenizer.from_str(json.dumps({"version": "1.0", "model": model, "added_tokens": []}))
    build: Any = PreTrainedTokenizerFast
    with pytest.raises(SqueezeError, match="WordLevel tokenizer like this one cannot be cut"):
        TokenizerContent.of(build(tokenizer_object=core))
