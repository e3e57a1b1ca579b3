"""Counts of pieces against naive ones, for each kind of tokenizer."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from biosqueeze.errors import SqueezeError
from biosqueeze.vocabularies.comparison import count_pieces, is_whole, load_named, shared_pieces, term_pieces
from tests import pico
from tests.layouts import sentencepiece

TEXTS = [*list(pico.sentences(20)), "TNF-alpha, (carno) \u2603 snow", "x  carcinoma", "the.", "gene_1 B\u00e9ta"]


@pytest.fixture(scope="module", params=["bert", "roberta", "albert"])
def directory(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param)
    pico.tokenizer_of(request.param).save_pretrained(path)
    return path


def naive_counts(path: Path) -> dict[str, Any]:
    """Count with transformers' tokenizer, one text at a time, and search a piece for every word."""
    stock = AutoTokenizer.from_pretrained(path)
    words = whole = pieces = unknown = 0
    lengths = []
    for text in TEXTS:
        encoded = stock(text, add_special_tokens=False, return_offsets_mapping=True)
        lengths.append(len(stock(text)["input_ids"]))
        pieces += len(encoded["input_ids"])
        unknown += encoded["input_ids"].count(stock.unk_token_id)
        known = [
            p
            for p, number in zip(encoded["offset_mapping"], encoded["input_ids"], strict=True)
            if number != stock.unk_token_id
        ]
        for match in re.finditer(r"\w+", text):
            words += 1
            whole += any(first <= match.start() and match.end() <= last for first, last in known)
    return {"words": words, "whole": whole, "pieces": pieces, "unknown": unknown, "lengths": lengths}


def test_counts_equal_naive_ones(directory: Path) -> None:
    counts = count_pieces(load_named(str(directory)), [TEXTS[:7], TEXTS[7:]])
    expected = naive_counts(directory)
    assert counts.words == expected["words"]
    assert counts.pieces == expected["pieces"]
    assert counts.unknown == expected["unknown"]
    assert counts.whole_words == expected["whole"]
    assert list(counts.lengths) == expected["lengths"]
    facts = counts.facts(12)
    assert facts["longer"] == sum(length > 12 for length in expected["lengths"]) / len(TEXTS)
    assert facts["tokens_of_a_line"]["most"] == max(expected["lengths"])


@pytest.mark.parametrize("family", ["deberta-v2", "xlm-roberta", "albert"])
def test_old_files_are_read_as_those_of_their_model(family: str, tmp_path: Path) -> None:
    names = [str(pico.save(family, tmp_path / name)) for name in ("known", "old")]
    sentencepiece(Path(names[1]))
    known, old = map(load_named, names)
    assert old.core.get_vocab() == known.core.get_vocab() and old.kind == "Unigram"


def test_pieces_of_a_term_are_the_term(directory: Path) -> None:
    tokenizer = load_named(str(directory))
    for term in ("carno", "carcineuro", "the", "patients"):
        pieces = term_pieces(tokenizer, term)
        assert "".join(piece.removeprefix("##") for piece in pieces).removeprefix("\u2581") == term
        assert is_whole(tokenizer, pieces) == (term in pieces)


def test_whole_terms_have_one_known_piece_with_letters(directory: Path) -> None:
    tokenizer = load_named(str(directory))
    assert is_whole(tokenizer, ("gene",))
    assert is_whole(tokenizer, ("\u2581", "gene"))
    assert not is_whole(tokenizer, ("gene", "##s"))
    unknown = term_pieces(tokenizer, "\u03b2\u03b3\u03b4\u03b5\u03b6")
    assert not is_whole(tokenizer, unknown)
    if tokenizer.kind != "BPE":  # bytes are always known
        assert tokenizer.core.id_to_token(tokenizer.unknown) in unknown


def test_vocabularies_share_pieces_by_place() -> None:
    class Core:
        def __init__(self, kind: str, pieces: tuple[str, ...]) -> None:
            self.model, self.decoder = type(kind, (), {})(), None
            self.pieces = pieces

        def get_vocab(self) -> dict[str, int]:
            return {piece: number for number, piece in enumerate(self.pieces)}

    from biosqueeze.vocabularies.comparison import NamedTokenizer

    cores: list[Any] = [
        Core("WordPiece", ("[UNK]", "gene", "##s", "the", "##gene")),
        Core("Unigram", ("<unk>", "\u2581gene", "s", "the")),
    ]
    tokenizers = [NamedTokenizer(str(number), core, 0, frozenset({0})) for number, core in enumerate(cores)]
    assert shared_pieces(tokenizers) == [[4, 2], [2, 3]]


@pytest.mark.parametrize(("family", "unknown"), [("bert", "[UNK]"), ("albert", "<unk>")])
def test_a_tokenizer_without_unknown_token_is_refused(family: str, unknown: str, tmp_path: Path) -> None:
    pico.tokenizer_of(family).save_pretrained(tmp_path)
    file = tmp_path / "tokenizer.json"
    rules = json.loads(file.read_text())
    rules["added_tokens"] = [token for token in rules["added_tokens"] if token["content"] != unknown]
    if family == "albert":
        rules["model"]["unk_id"] = None
    else:
        del rules["model"]["vocab"][unknown]
    file.write_text(json.dumps(rules))
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(SqueezeError, match=f"{tmp_path}: the tokenizer cannot encode every text"):
        load_named(str(tmp_path))
