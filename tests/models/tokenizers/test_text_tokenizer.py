"""The torch-free tokenizer gives the ids of transformers' tokenizer."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from biosqueeze.checkpoint import DEMO_MODEL, Checkpoint, open_checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.models.loading.load import load_tokenizer
from biosqueeze.models.tokenizers.text_tokenizer import TextTokenizer, load_text_tokenizer
from biosqueeze.tasks import open_task
from tests import pico
from tests.layouts import edit_json, opened

TEXTS = [
    "BRCA1 mutation of Hepatitis, (p53).",
    "the  gene\nprotein",
    "",
    " ",
    "caf\u00e9 \U0001f600 \u03b1-ci [MASK] </s>",
]
WORDS = [["BRCA1", "of", "\u200b", "the"], ["gene"], []]
PAIRED = {"return_special_tokens_mask": True, "return_token_type_ids": True}


def check_same(mine, known: PreTrainedTokenizerFast, texts=TEXTS) -> None:
    """Compare everything that encoding uses."""
    assert (mine.unk_token_id, mine.pad_token_id, mine.model_max_length, mine.get_vocab()) == (
        known.unk_token_id,
        known.pad_token_id,
        known.model_max_length,
        known.get_vocab(),
    )
    for inputs in (("a",), ("a", "a")):
        assert mine(*inputs, **PAIRED)["input_ids"] == known(*inputs, **PAIRED)["input_ids"]
        for name in ("token_type_ids", "special_tokens_mask"):
            assert mine(*inputs, **PAIRED)[name] == known(*inputs, **PAIRED)[name]
        assert mine(*inputs).sequence_ids(0) == known(*inputs).sequence_ids(0)
    for special in (True, False):
        options = {"add_special_tokens": special, "return_offsets_mapping": True}
        for name in ("input_ids", "offset_mapping"):
            assert mine(texts, **options)[name] == known(texts, **options)[name]
    ours, theirs = (t(WORDS, is_split_into_words=True, add_special_tokens=False) for t in (mine, known))
    assert ours["input_ids"] == theirs["input_ids"]
    assert [ours.word_ids(n) for n in range(3)] == [theirs.word_ids(n) for n in range(3)]


def test_same_as_transformers_in_every_family(pico_any):
    checkpoint = opened(pico_any)
    mine = load_text_tokenizer(checkpoint)
    assert isinstance(mine, TextTokenizer)
    check_same(mine, load_tokenizer(checkpoint))
    assert mine(TEXTS)["input_ids"] == AutoTokenizer.from_pretrained(pico_any)(TEXTS)["input_ids"]


def test_same_as_transformers_for_a_published_model():
    checkpoint = open_checkpoint(DEMO_MODEL)
    check_same(load_text_tokenizer(checkpoint), load_tokenizer(checkpoint))


@pytest.fixture(scope="module")
def pair(pico_roberta):
    checkpoint = opened(pico_roberta)
    return load_text_tokenizer(checkpoint), load_tokenizer(checkpoint)


@given(st.lists(st.text(max_size=30), min_size=1, max_size=4))
def test_same_as_transformers_for_any_text(pair, texts):
    mine, known = pair
    assert mine(texts)["input_ids"] == known(texts)["input_ids"]


@pytest.mark.parametrize("edit", ["no added tokens", "no post-processor", "token beyond the vocabulary"])
def test_incomplete_tokenizer_json_is_completed_alike(edit, pico_bert, copy_of):
    path = copy_of(pico_bert)
    content = json.loads((path / "tokenizer.json").read_text())
    if edit == "no post-processor":
        content["post_processor"] = None
    else:
        content["added_tokens"] = []
    if edit == "token beyond the vocabulary":
        edit_json(path / "tokenizer_config.json", bos_token="[BOS]", mask_token="[HIDDEN]")
        rows = json.loads((path / "config.json").read_text())["vocab_size"]
        pico.model_of("bert", rows + 2).save_pretrained(path)
    (path / "tokenizer.json").write_text(json.dumps(content))
    texts = [*TEXTS, "a [SEP] b[MASK]c [BOS] [HIDDEN] [PAD]"]
    checkpoint = Checkpoint(path, "x")  # whose weights are not compared with config.json
    check_same(load_text_tokenizer(checkpoint), load_tokenizer(checkpoint), texts)


def test_without_tokenizer_json_transformers_builds_it(pico_bert, copy_of):
    path = copy_of(pico_bert)
    (path / "tokenizer.json").unlink()
    (path / "vocab.txt").write_text("\n".join(pico.wordpieces(True)) + "\n")
    tokenizer = load_text_tokenizer(opened(path))
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    assert tokenizer(TEXTS)["input_ids"] == load_text_tokenizer(opened(pico_bert))(TEXTS)["input_ids"]


def test_ids_beyond_the_embedding_are_an_error(pico_bert, copy_of):
    path = copy_of(pico_bert)
    pico.model_of("bert", 9).save_pretrained(path)
    with pytest.raises(SqueezeError, match="only 9 rows"):
        load_text_tokenizer(Checkpoint(path, "x"))


RECORDS = {
    "ner": {"text": "BRCA1 is mutated in hepatitis. A  second\nsentence (p53)."},
    "classification": {"text": "BRCA1 is mutated in hepatitis."},
    "relation": {"text": "@CHEMICAL$ acts on @GENE$ in mice."},
    "similarity": {"sentence1": "the gene", "sentence2": "a protein of the cells"},
    "nli": {"sentence1": "the gene", "sentence2": "a protein of the cells"},
    "qa": {"question": "What is mutated?", "context": "The gene BRCA1 is mutated in hepatitis. " * 9},
}


@pytest.mark.parametrize("name", RECORDS)
def test_windows_of_every_task_are_the_same(name, pico_any):
    checkpoint = opened(pico_any)
    task, labels = open_task(name), ("score",) if name == "similarity" else pico.LABELS
    examples = [task.example_from_record(RECORDS[name])] * 2
    windows = [task.encode(examples, labels, load(checkpoint), 32) for load in (load_text_tokenizer, load_tokenizer)]
    assert len(windows[0]) == len(windows[1]) >= 2
    for mine, known in zip(*windows, strict=True):
        assert mine.features.keys() == known.features.keys()
        assert all(np.array_equal(mine.features[key], known.features[key]) for key in known.features)
