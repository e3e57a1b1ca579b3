"""shrink --vocab-keep and --tokenizer: every family, stock outputs, plans, and what users may get wrong."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.models.families import longest_input
from tests import pico
from tests.cli.run import Shell
from tests.layouts import sentencepiece

SENTENCES = tuple(pico.sentences(6, seed=8))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pico.write_sentences(tmp_path_factory.mktemp("text") / "text.txt", 6, seed=8)


@pytest.fixture(scope="module")
def tags(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A task whose test split has a word that train and dev lack."""
    folder = tmp_path_factory.mktemp("tags")
    for split, words in (("train", "patients with fibrosis"), ("dev", "the gene"), ("test", "mutation in cells")):
        rows = [f"{word}\tO" for word in words.split()]
        (folder / f"{split}.tsv").write_text("\n".join([f"hepatitis\tB-Disease\n{rows[0]}", *rows[1:], "", ""]))
    return folder


def stock(path: object) -> tuple[Any, Any]:
    name = json.loads((Path(str(path)) / "config.json").read_text())["architectures"][0]
    model, info = getattr(transformers, name).from_pretrained(path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    return model.eval(), AutoTokenizer.from_pretrained(path)


@torch.no_grad()
def states(path: object) -> torch.Tensor:
    model, tokenizer = stock(path)
    batch = tokenizer(list(SENTENCES[:3]), return_tensors="pt", padding=True)
    output = model(**batch, output_hidden_states=True)
    return torch.as_tensor(output.hidden_states[-1])


def test_every_family_computes_the_same(shell: Shell, pico_any: Path, text: Path) -> None:
    result = shell("shrink", pico_any, "--vocab-keep", text, "--out", "small", "--json")
    assert result.code == 0, result.err
    facts = json.loads(result.out)
    assert facts["coverage"] == 1 and facts["differences"]["vocabulary"] < 1e-5
    config = open_checkpoint("small").config
    assert config["vocab_size"] == facts["vocabulary_after"] < facts["vocabulary_before"]
    if pico.ROWS[config["model_type"]].same_code_as:
        return  # its tokenizers are in test_cut
    torch.testing.assert_close(states("small"), states(pico_any), atol=1e-5, rtol=1e-4)


def test_vocabulary_with_layers_and_width(shell: Shell, pico_ner: Path, text: Path) -> None:
    words = ("--vocab-keep", text, "--layers", "2", "--ffn", "32")
    result = shell("shrink", pico_ner, *words, "--dry-run")
    for part in ("tokens (", "100.00% of the", "keep layers 0, 3", "MB become", "embeddings are"):
        assert part in result.err, part
    planned = json.loads(shell("shrink", pico_ner, *words, "--out", "small", "--dry-run", "--json").out)
    facts = json.loads(shell("shrink", pico_ner, *words, "--out", "small", "--json").out)
    assert planned["parameters_after"] == facts["parameters_after"] < facts["parameters_before"]
    assert set(facts["differences"]) == {"vocabulary", "layers", "keeping 32 ffn neurons", "stock model"}
    apart = shell("shrink", pico_ner, "--layers", "2", "--ffn", "32", "--out", "apart").path
    torch.testing.assert_close(states("small"), states(apart), atol=1e-5, rtol=1e-4)
    student = shell("shrink", pico_ner, "--student", "distil", "--vocab-keep", text)
    assert Path(student.path).name == "pico-ner-distil-vocab"
    assert stock(student.path)[0].config.num_hidden_layers == 2


def test_tokens_of_train_and_dev_are_kept(shell: Shell, pico_ner: Path, tags: Path) -> None:
    path = shell("shrink", pico_ner, "--vocab-keep", tags, "--out", "small").path
    names = set(AutoTokenizer.from_pretrained(path).get_vocab())
    assert {"patients", "gene"} <= names and not {"mutation", "cells"} & names


def test_notes_of_the_text_are_printed_once(shell: Shell, pico_bert: Path, tmp_path: Path) -> None:
    rows = [json.dumps({"text": sentence * 90, "label": "ab"[number % 2]}) for number, sentence in enumerate(SENTENCES)]
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    said = shell("shrink", pico_bert, "--vocab-keep", tmp_path, "--vocab-size", "170", "--out", "small").err
    assert "more tokens" in said  # counted by the new tokenizer too
    assert said.count("is read as classification") == said.count("inputs are longer") == 1


def test_most_frequent_tokens_and_coverage(shell: Shell, pico_bert: Path, text: Path) -> None:
    words = ("shrink", pico_bert, "--vocab-keep", text, "--out", "small", "--json")
    small = json.loads(shell(*words, "--vocab-size", "170").out)
    assert small["vocabulary_after"] == 170 and 0.3 < small["coverage"] < 1
    tokenizer = AutoTokenizer.from_pretrained("small")
    encoded = sum(len(tokenizer(line, add_special_tokens=False)["input_ids"]) for line in SENTENCES)
    assert small["tokens_of_text_after"] == encoded > small["tokens_of_text"]


def test_sentencepiece_file_is_left_out(shell: Shell, copy_of: Callable[[Path], Path], text: Path) -> None:
    path = pico.save("deberta-v2", Path("teacher"))
    (path / "spm.model").write_bytes(b"pieces")
    result = shell("shrink", path, "--vocab-keep", text, "--out", "small")
    assert "leave out spm.model, which has the former vocabulary" in result.err
    assert not (Path(result.path) / "spm.model").exists()


def test_move_to_another_tokenizer(shell: Shell, pico_ner: Path) -> None:
    pico.tokenizer_of("roberta").save_pretrained("words")
    result = shell("shrink", pico_ner, "--tokenizer", "words", "--out", "moved", "--json")
    assert result.code == 0, result.err
    facts = json.loads(result.out)
    assert facts["copied"] + facts["averaged"] + facts["random"] == facts["vocabulary_after"] == 500
    assert f"{facts['copied']:,} are former tokens" in result.err
    (model, tokenizer), (former, old) = stock("moved"), stock(pico_ner)
    assert model.config.pad_token_id == tokenizer.pad_token_id == 1
    rows, table = model.get_input_embeddings().weight, former.get_input_embeddings().weight
    token = tokenizer.tokenize(" patients of carci")[-1]
    pieces = old.convert_tokens_to_ids(old.tokenize("carci"))
    assert token == "\u0120carci" and len(pieces) >= 1
    torch.testing.assert_close(rows[tokenizer.convert_tokens_to_ids(token)], table[pieces].mean(0))


@pytest.mark.parametrize("option", ["--tokenizer", "--vocab-keep"])
def test_inputs_are_never_overwritten(shell: Shell, pico_bert: Path, option: str) -> None:
    pico.tokenizer_of("roberta").save_pretrained("out")
    Path("out/biosqueeze.json").write_text("{}")
    given = "out" if option == "--tokenizer" else pico.write_sentences(Path("out/text.txt"), 6)
    before = {path: path.read_bytes() for path in Path("out").iterdir()}
    for mode in ([], ["--dry-run"]):
        result = shell("shrink", pico_bert, option, given, "--out", "out", "--force", *mode)
        assert (result.code, "out is the input itself or contains it" in result.err) == (1, True), result.err
    assert {path: path.read_bytes() for path in Path("out").iterdir()} == before


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--vocab-keep", "12000"], 2, "give --vocab-keep CORPUS --vocab-size 12000"),
        (["--vocab-keep", "missing.txt"], 1, "there is no corpus missing.txt"),
        (["--vocab-size", "100"], 2, "--vocab-size needs --vocab-keep"),
        (["--layers", "2", "--field", "abstract"], 2, "--field needs --vocab-keep"),
        (["--vocab-keep", "TEXT", "--vocab-size", "20"], 1, "--vocab-size 20 is too small: the special tokens (5)"),
        (["--vocab-keep", "TEXT", "--tokenizer", "x"], 2, "--tokenizer cannot be combined with --vocab-keep"),
        (["--tokenizer", "PICO"], 2, "has the vocabulary of --tokenizer"),
        (["--tokenizer", "nowhere/at/all"], 1, "there is no directory nowhere/at/all"),
    ],
)
def test_invalid_options(shell: Shell, pico_bert: Path, text: Path, words: list[str], code: int, message: str) -> None:
    known = {"TEXT": str(text), "PICO": str(pico_bert)}
    for mode in ([], ["--dry-run"]):
        result = shell("shrink", pico_bert, *(known.get(word, word) for word in words), *mode, "--out", "small")
        assert (result.code, message in result.err) == (code, True), result.err
        assert len(result.err.strip().splitlines()) == 1 and result.out == "" and not list(Path().iterdir())


def test_a_vocabulary_that_is_used_up_is_not_cut(shell: Shell, pico_bert: Path) -> None:
    everything = " ".join(piece.removeprefix("##") for piece in pico.wordpieces(cased=True))
    inside = " ".join(f"x{piece[2:]}" for piece in pico.wordpieces(cased=True) if piece.startswith("##"))
    Path("all.txt").write_text(f"{everything}\n{inside}\n")
    result = shell("shrink", pico_bert, "--vocab-keep", "all.txt", "--out", "small")
    assert result.code == 2 and "tokens would be kept; give less text" in result.err


def test_padding_of_a_roberta_keeps_its_id(shell: Shell, pico_roberta: Path) -> None:
    pico.tokenizer_of("bert").save_pretrained("words")
    result = shell("shrink", pico_roberta, "--tokenizer", "words", "--out", "small")
    assert result.code == 1 and "[PAD] has the id 0, and roberta counts positions from" in result.err


def test_padding_that_ends_texts_is_refused_for_a_roberta(shell: Shell, pico_roberta: Path) -> None:
    pico.shared_tokenizer("eurobert").save_pretrained("own")
    for mode in ([], ["--dry-run"]):
        result = shell("shrink", pico_roberta, "--tokenizer", "own", *mode, "--out", "small")
        assert result.code == 1 and "pads and is part of every text, and roberta gives no positions to" in result.err


@pytest.mark.parametrize("student", ["bioformer-8l", "modernbert-17m"])
def test_students_have_their_own_inputs(shell: Shell, pico_bert: Path, text: Path, student: str) -> None:
    assert pico.POSITIONS < 512
    result = shell("shrink", pico_bert, "--student", student, "--vocab-keep", text, "--out", "small")
    assert result.code == 0, result.err
    model, tokenizer = stock("small")
    assert tokenizer.model_max_length == longest_input(model.config) >= 512
    assert ("token_type_ids" in tokenizer.model_input_names) == (student == "bioformer-8l")
    assert tokenizer("the gene").keys() == set(tokenizer.model_input_names)


def test_move_to_a_sentencepiece_file(shell: Shell, pico_bert: Path) -> None:
    sentencepiece(pico.save("deberta-v2", Path("old")))
    result = shell("shrink", pico_bert, "--tokenizer", "old", "--out", "moved")
    assert result.code == 0, result.err
    model, tokenizer = stock("moved")
    assert tokenizer.get_vocab() == pico.tokenizer_of("deberta-v2").get_vocab()
    assert model.config.vocab_size == len(tokenizer)


def test_a_tokenizer_without_tokens_is_refused(shell: Shell, pico_bert: Path) -> None:
    Path("empty").mkdir()
    Tokenizer(models.BPE()).save("empty/tokenizer.json")
    result = shell("shrink", pico_bert, "--tokenizer", "empty", "--out", "moved")
    assert result.code == 1 and "the tokenizer has no tokens" in result.err


def test_padding_of_the_tokenizer_may_end_texts_too(shell: Shell, pico_bert: Path) -> None:
    tokenizer = pico.shared_tokenizer("eurobert")
    assert tokenizer.pad_token_id == tokenizer.eos_token_id
    tokenizer.save_pretrained("own")
    said = shell("shrink", pico_bert, "--tokenizer", "own", "--out", "moved")
    assert said.code == 0, said.err
    assert open_checkpoint("moved").config["pad_token_id"] == tokenizer.pad_token_id


def test_padding_is_that_of_the_student(shell: Shell, pico_roberta: Path) -> None:
    pico.tokenizer_of("bert").save_pretrained("words")
    words = ("shrink", pico_roberta, "--student", "electra-small", "--tokenizer", "words", "--out", "small")
    assert shell(*words, "--dry-run").code == 0
    result = shell(*words)
    assert result.code == 0, result.err
    model, tokenizer = stock("small")
    assert model.config.model_type == "electra" and model.config.pad_token_id == tokenizer.pad_token_id == 0
    assert "token_type_ids" in tokenizer.model_input_names


def test_moved_model_keeps_its_longest_input(shell: Shell, pico_bert: Path) -> None:
    words = pico.tokenizer_of("roberta")
    words.model_max_length = 32
    words.save_pretrained("words")
    for mode in ([], ["--dry-run"]):
        result = shell("shrink", pico_bert, "--tokenizer", "words", "--out", "moved", *mode)
        assert "keep the longest input of the model, and not the 32 tokens that words sets" in result.err
        assert AutoTokenizer.from_pretrained("moved").model_max_length == pico.POSITIONS


def test_text_of_a_pipe_is_read_once(shell: Shell, pico_bert: Path) -> None:
    os.mkfifo("pipe")
    writer = threading.Thread(target=Path("pipe").write_text, args=("\n".join(SENTENCES),), daemon=True)
    writer.start()
    result = shell("shrink", pico_bert, "--vocab-keep", "pipe", "--vocab-size", "170", "--out", "small", "--json")
    writer.join(10)
    assert result.code == 0, result.err
    assert json.loads(result.out)["coverage"] < 1 and "which takes" not in result.err
