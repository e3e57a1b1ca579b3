"""Tokens that were added to a vocabulary, such as markers of entities, are read from the files of old layouts."""

import json
from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.text.masking import Masking
from biosqueeze.errors import SqueezeError
from biosqueeze.models.loading.load import load_tokenizer
from biosqueeze.models.tokenizers.added_tokens import add_tokens
from biosqueeze.models.tokenizers.text_tokenizer import load_text_tokenizer
from biosqueeze.vocabularies.cut_tokenizer import cut_tokenizer
from biosqueeze.vocabularies.kept_tokens import TokenizerContent, choose_tokens
from tests import pico
from tests.layouts import edit_json

TEXT = "a [E1] BRCA1 [/E1] mutation ofof of."
RULES = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}


def listed(content, **rules):
    return {"content": content, **RULES, "special": True} | rules


def tokenizer_of(path):
    return load_tokenizer(Checkpoint(path, str(path)))


@pytest.fixture
def old_layout(pico_bert, copy_of):
    """A BERT with vocab.txt in place of tokenizer.json, and rows for two more tokens; returns the first one's id."""
    path, pieces = copy_of(pico_bert), pico.wordpieces(cased=True)
    (path / "tokenizer.json").unlink()
    (path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    edit_json(path / "config.json", vocab_size=len(pieces) + 2)
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path, len(pieces)


def test_added_tokens_without_rules(old_layout):
    path, first = old_layout
    (path / "added_tokens.json").write_text(json.dumps({"[/E1]": first + 1, "[E1]": first}))
    (path / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": ["[E1]", "of"]}))
    tokenizer = tokenizer_of(path)
    ids = tokenizer(TEXT)["input_ids"]
    assert ids == AutoTokenizer.from_pretrained(path)(TEXT)["input_ids"]
    assert first in ids and first + 1 in ids
    assert tokenizer.decode(ids, skip_special_tokens=True).startswith("a BRCA1 [/E1]")


def test_added_tokens_with_rules(old_layout):
    path, first = old_layout
    known = pico.wordpieces(cased=True).index("of")
    tokens = {first: listed("[E1]"), first + 1: listed("[/E1]"), known: listed("of", single_word=True, special=False)}
    edit_json(path / "tokenizer_config.json", added_tokens_decoder=tokens)
    ids = tokenizer_of(path)(TEXT)["input_ids"]
    assert ids == AutoTokenizer.from_pretrained(path)(TEXT)["input_ids"]
    assert first in ids and first + 1 in ids


class _Counting:
    """A tokenizer of the Rust library that counts the calls that add tokens: each takes longer with more tokens."""

    def __init__(self, core):
        self.core, self.calls = core, 0

    def __getattr__(self, name):
        return getattr(self.core, name)

    def add_tokens(self, tokens):
        self.calls += 1
        return self.core.add_tokens(tokens)


def test_many_tokens_are_added_at_once(tmp_path):
    core = _Counting(pico.tokenizer_of("bert").backend_tokenizer)
    first = core.get_vocab_size()
    ids = {f"term{number}": first + number for number in range(1000)}
    (tmp_path / "added_tokens.json").write_text(json.dumps(ids))
    add_tokens(SimpleNamespace(backend_tokenizer=core, get_vocab=core.get_vocab), tmp_path)
    assert core.calls == 1 and ids.items() <= core.get_vocab().items()


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ({"[E1]": 7}, "the id 7 in its files, but"),
        ({"[E1]": "x"}, "is a string, an integer was expected"),
        ({"": 3}, "is empty"),
        ([], "JSON object"),
    ],
)
def test_added_tokens_that_do_not_fit(old_layout, tokens, message):
    path, _ = old_layout
    (path / "added_tokens.json").write_text(json.dumps(tokens))
    with pytest.raises(SqueezeError, match=message):
        tokenizer_of(path)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ({"x": listed("[E1]")}, "the id of a token was expected"),
        ({"9": {"special": True}}, "content is missing"),
        ({"9": listed("[E1]", lstrip=1)}, "true or false was expected"),
    ],
)
def test_damaged_rules_of_added_tokens(old_layout, tokens, message):
    path, _ = old_layout
    edit_json(path / "tokenizer_config.json", added_tokens_decoder=tokens)
    with pytest.raises(SqueezeError, match=message):
        tokenizer_of(path)


@pytest.fixture
def with_markers(pico_bert, copy_of):
    """A BERT with a tokenizer.json to which a marker was added, and one of its pieces made a marker in the settings."""
    path = copy_of(pico_bert)
    tokenizer = AutoTokenizer.from_pretrained(path)
    tokenizer.add_special_tokens({"extra_special_tokens": ["[E1]"]})
    tokenizer.save_pretrained(path)
    edit_json(path / "config.json", vocab_size=len(tokenizer))
    edit_json(path / "tokenizer_config.json", extra_special_tokens=["[E1]", "of", "[absent]"])
    return path


def test_markers_are_special(with_markers):
    tokenizer = tokenizer_of(with_markers)
    ids = tokenizer(TEXT)["input_ids"]
    assert ids == load_text_tokenizer(Checkpoint(with_markers, "x"))(TEXT)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids).count("of") == 3  # two of "ofof", a single piece otherwise
    special = tokenizer.convert_tokens_to_ids(["[E1]", "of"])
    assert set(special) <= {*Masking.of(tokenizer).special_ids}
    assert "[absent]" not in tokenizer.get_vocab()


def test_markers_are_saved(with_markers, tmp_path):
    tokenizer_of(with_markers).save_pretrained(tmp_path)
    assert {"[E1]", "of"} <= {*AutoTokenizer.from_pretrained(tmp_path).all_special_tokens}


def test_markers_are_kept_by_a_cut(with_markers):
    tokenizer = tokenizer_of(with_markers)
    content = TokenizerContent.of(tokenizer)
    kept = choose_tokens(content, [0] * len(tokenizer), None, ())
    cut = cut_tokenizer(tokenizer, content, kept.ids)
    assert {"[E1]", "of"} <= {*cut.all_special_tokens}
