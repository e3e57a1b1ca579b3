"""Find where words start in token ids, without the text: a table over the vocabulary of a tokenizer."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.tokenizer import Tokenizer
from biosqueeze.errors import SqueezeError

# The white space of ASCII as byte-level BPE writes it: GPT-2 maps byte b below 33 to the character 256 + b.
_BYTE_LEVEL_SPACES = frozenset(chr(256 + byte) for byte in b"\t\n\v\f\r ")
_SENTENCEPIECE_SPACE = "\u2581"


def word_starts(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Return for every token id whether it starts a word, (largest id + 1,).

    The first token of a text starts a word too, whatever the table says. Special tokens are marked as starts; they
    belong to no word.

    * WordPiece: a piece without the prefix ## (Devlin et al. 2019; create_pretraining_data.py of google-research/bert).
      BERT splits a text at each punctuation mark first, so every mark is a word of its own, as in `word_ids()`.
    * Byte-level BPE: a piece that begins with white space. `word_ids()` also splits words at punctuation and digits,
      but which of those borders lie between two ids depends on the pieces of both, not on one. Whole-word masking of
      fairseq's RoBERTa (`is_beginning_of_word`) uses this rule, by which "IL-2," is one word.
    * SentencePiece (unigram or BPE): a piece that begins with the mark of a space, also as fairseq, and as
      `word_ids()`: words are what lies between white space. ALBERT's own code (`_is_start_piece_sp`) deviates: it
      starts a word also at punctuation and at pieces with other characters than English letters.

    Raises:
        SqueezeError: the tokenizer is of none of these kinds.
    """
    rules: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary = tokenizer.get_vocab()
    prefix, spaces = _marks(rules)
    starts = np.zeros(1 + max(vocabulary.values()), dtype=bool)
    starts[[token["id"] for token in rules.get("added_tokens", ()) if token["special"]]] = True
    for piece, number in vocabulary.items():
        # Added tokens are written as in the text, so their spaces are not mapped.
        starts[number] |= not piece.startswith(prefix) if prefix else piece[:1] in spaces or piece[:1].isspace()
    return starts


def is_byte_level(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer is byte-level BPE, whose pieces include the space before a word."""
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    return any(part.get("type") == "ByteLevel" for part in _parts(rules))


def _marks(rules: dict[str, Any]) -> tuple[str, frozenset[str]]:
    """Return the prefix of the pieces within a word, or else the first characters of the pieces that start one."""
    model, parts = rules["model"], list(_parts(rules))
    types = {part.get("type") for part in parts}
    if model.get("continuing_subword_prefix"):
        return str(model["continuing_subword_prefix"]), frozenset()
    if "ByteLevel" in types:
        return "", _BYTE_LEVEL_SPACES
    # As Gemma's tokenizer, whose normalizer writes the mark.
    marks_spaces = any(part.get("content") == _SENTENCEPIECE_SPACE for part in parts)
    if "Metaspace" in types or marks_spaces or model["type"] == "Unigram":
        return "", frozenset(_SENTENCEPIECE_SPACE)
    raise SqueezeError(
        f"the ids of this {model['type']} tokenizer do not show where words start, as those of WordPiece (##), "
        "byte-level BPE and SentencePiece do; mask single pieces"
    )


def _parts(rules: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the normalizers, pre-tokenizers and decoders."""
    parts = [rules.get(kind) for kind in ("normalizer", "pre_tokenizer", "decoder")]
    while parts:
        part = parts.pop() or {}
        yield part
        parts += [each for kind in ("normalizers", "pretokenizers", "decoders") for each in part.get(kind, [])]
