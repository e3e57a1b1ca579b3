"""Detect whether a vocabulary and a tokenizer are cased, and read tokenizer files. Torch-free."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biosqueeze.errors import SqueezeError
from biosqueeze.files import read_json, read_small_text

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CASED_SHARE = 0.01
"""A vocabulary is cased if at least this share of its pieces has capitals; uncased ones may have a few."""

SENTENCEPIECE_FILES = ("spiece.model", "sentencepiece.bpe.model", "spm.model")
"""Names of a SentencePiece file: of ALBERT; of XLM-RoBERTa and CamemBERT."""


def is_cased(vocabulary: Iterable[str]) -> bool:
    """Return whether a vocabulary was built from cased text; special pieces such as [CLS] do not count."""
    pieces = [piece for piece in vocabulary if not piece.startswith(("[", "<"))]
    capitals = sum(piece != piece.lower() for piece in pieces)
    return capitals > 0 and capitals >= CASED_SHARE * len(pieces)


def lowers_case(core: "Tokenizer") -> bool:
    """Return whether the tokenizer's normalizer lower-cases its input."""
    return core.normalizer is not None and core.normalizer.normalize_str("BRCA") != "BRCA"


def read_tokenizer_json(file: Path) -> "Tokenizer":
    """Load a tokenizer.json.

    Raises:
        SqueezeError: it is damaged.
    """
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the Rust side raises no narrower class
        raise SqueezeError(f"{file} is not a valid tokenizer ({error}); fetch or copy it again") from error


def read_vocabulary(file: Path) -> dict[str, int]:
    """Read the pieces of a vocab.txt and their ids: one piece a line, ids from 0.

    Raises:
        SqueezeError: it is too large, or not UTF-8.
    """
    lines = read_small_text(file).rstrip("\n").split("\n")
    return {line: row for row, line in enumerate(lines)}


def sentencepiece_file(path: Path) -> Path | None:
    """Return the SentencePiece file in a checkpoint's directory; None if there is none."""
    return next((path / name for name in SENTENCEPIECE_FILES if (path / name).is_file()), None)


def read_sentencepiece(file: Path) -> Any:
    """Read the ModelProto in a file of SentencePiece, the format of Unigram tokenizers before tokenizer.json.

    Raises:
        SqueezeError: it is damaged, or the protobuf package is not installed.
    """
    from transformers.convert_slow_tokenizer import import_protobuf

    load_protobuf: Any = import_protobuf
    try:
        proto = load_protobuf().ModelProto()
    except ImportError as error:
        raise SqueezeError(f"reading {file} needs protobuf, which is not installed; pip install protobuf") from error
    try:
        proto.ParseFromString(file.read_bytes())
    except Exception as error:  # protobuf's DecodeError, which differs between its implementations
        raise SqueezeError(f"{file} is not a SentencePiece model ({error}); fetch or copy it again") from error
    return proto


def tokenizer_facts(path: Path) -> dict[str, Any] | None:
    """Return kind, number of pieces and casing of the tokenizer in a checkpoint's directory; None if there is none.

    Raises:
        SqueezeError: its files are damaged.
    """
    if (path / "tokenizer.json").is_file():
        core = read_tokenizer_json(path / "tokenizer.json")
        kind = json.loads(core.to_str())["model"].get("type", "WordPiece")
        return {"kind": kind, "pieces": core.get_vocab_size(), "cased": not lowers_case(core)}
    if (path / "vocab.txt").is_file():
        pieces = read_vocabulary(path / "vocab.txt")
        return {"kind": "WordPiece", "pieces": len(pieces), "cased": is_cased(pieces)}
    if file := sentencepiece_file(path):
        names = [piece.piece for piece in read_sentencepiece(file).pieces]
        return {"kind": "Unigram", "pieces": len(names), "cased": is_cased(names)}
    if (path / "vocab.json").is_file():
        return {"kind": "BPE", "pieces": len(read_json(path / "vocab.json")), "cased": True}
    return None
