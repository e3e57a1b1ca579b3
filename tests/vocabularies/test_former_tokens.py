"""Moves between tokenizers: which former tokens a new one starts from."""

import json
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

from biosqueeze.vocabularies.former_tokens import find_former_tokens
from tests import pico

PAIRS = [
    ("bert", "roberta"), ("roberta", "bert"), ("albert", "bert"), ("bert", "albert"), ("roberta", "albert"),
    ("albert", "deberta-v2"), ("roberta", "eurobert"),
]  # fmt: skip


def sources_of(former: Any, new: Any) -> dict[str, list[str]]:
    found = find_former_tokens(former, new, len(new)).sources
    names = former.convert_ids_to_tokens
    return {token: names(list(found[number])) for token, number in new.get_vocab().items()}


@pytest.mark.parametrize(("old", "target"), PAIRS)
def test_words_come_from_the_pieces_of_their_text(old: str, target: str) -> None:
    former, new = pico.tokenizer_of(old), pico.tokenizer_of(target)
    sources = sources_of(former, new)
    compared = 0
    for word in pico.words():
        pieces = new.tokenize(f" {word}")
        if len(pieces) == 1:
            assert sources[pieces[0]] == former.tokenize(f" {word}"), word
            compared += 1
    assert compared > 10
    # EuroBERT's padding is its end of a text.
    for role in ("mask_token",) if target == "eurobert" else ("pad_token", "unk_token", "mask_token"):
        if getattr(former, role) and getattr(new, role):
            assert sources[getattr(new, role)] == [getattr(former, role)]


def test_text_within_a_word_is_not_a_word() -> None:
    sources = sources_of(pico.tokenizer_of("bert"), pico.tokenizer_of("roberta"))
    assert sources["tis"] == ["##tis"]
    assert sources["<s>"] == ["[CLS]"] and sources["</s>"] == ["[SEP]"]
    back = sources_of(pico.tokenizer_of("roberta"), pico.tokenizer_of("bert"))
    assert "".join(back["##ma"]) == "ma"


@pytest.mark.parametrize("target", ["roberta", "albert"])
def test_punctuation_within_a_word_is_a_word(target: str) -> None:
    former, new = pico.tokenizer_of("bert"), pico.tokenizer_of(target)
    sources = sources_of(former, new)
    for text in ",.-)/":
        assert sources[text] == former.tokenize(f"a{text}")[1:] == [text]


@pytest.mark.parametrize("old", ["roberta", "albert"])
def test_punctuation_of_wordpiece_follows_words(old: str) -> None:
    former, new = pico.tokenizer_of(old), pico.tokenizer_of("bert")
    sources = sources_of(former, new)
    for text in ",.-)/":
        assert sources[text] == [text]
    assert sources["("] == former.tokenize(" (")


def test_case_of_the_former_tokenizer_is_applied() -> None:
    sources = sources_of(pico.tokenizer_of("bert", cased=False), pico.tokenizer_of("bert"))
    assert sources["The"] == ["the"] and sources["##A"] == ["##a"]


@pytest.mark.parametrize(("old", "target"), [("bert", "bert"), *PAIRS])
def test_added_words_come_from_their_text(old: str, target: str) -> None:
    former, new = pico.tokenizer_of(old), pico.tokenizer_of(target)
    assert new.add_tokens(["carcinomatosis", "hepati tis", "the-gene", "    "]) > 2
    new.add_tokens(AddedToken("<entity>", special=True))
    sources = sources_of(former, new)
    for word in ("carcinomatosis", "hepati tis", "the-gene"):
        assert len(former.tokenize(f" {word}")) > 1
        assert sources[word] == former.tokenize(f" {word}"), word
    assert sources["<entity>"] == []
    former.add_tokens(["carcinomatosis"])
    assert sources_of(former, new)["carcinomatosis"] == ["carcinomatosis"]


def test_counts_and_tokens_without_text() -> None:
    former, new = pico.tokenizer_of("bert"), pico.tokenizer_of("roberta")
    found = find_former_tokens(former, new, len(new) + 2)
    assert found.copied + found.averaged + found.random == len(new) + 2
    assert found.sources[-2:] == ((), ())
    # Most of the 256 bytes are no text alone.
    assert 100 < found.random < 200 and found.averaged > 10 and found.copied > 100


def test_bytes_come_from_the_same_bytes_alone() -> None:
    known = pico.tokenizer_of("deberta-v2")
    content = json.loads(known.backend_tokenizer.to_str())
    content["model"]["vocab"] += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    content["model"]["byte_fallback"] = True
    content["added_tokens"][-1]["id"] += 256  # [MASK] lies behind the pieces
    core = Tokenizer.from_str(json.dumps(content))
    with_bytes = PreTrainedTokenizerFast(tokenizer_object=core, **known.special_tokens_map)
    assert sources_of(pico.tokenizer_of("bert"), with_bytes)["<0xE2>"] == []
    assert sources_of(with_bytes, with_bytes)["<0xE2>"] == ["<0xE2>"]
