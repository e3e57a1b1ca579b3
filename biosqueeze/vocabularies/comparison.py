"""Count the pieces of text by several tokenizers, and how many of their pieces they share.

Words are runs of letters, digits and underscores: TNF-alpha is two words. Pieces of punctuation count as pieces. So the
words of a text are the same for every tokenizer.
"""

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from tokenizers import Tokenizer as Core
from tokenizers import decoders

from biosqueeze.checkpoint import Checkpoint, locate
from biosqueeze.checkpoint_files import check_files
from biosqueeze.data.text.prepared import all_cores
from biosqueeze.errors import SqueezeError
from biosqueeze.models.families import FAMILIES
from biosqueeze.models.tokenizers.casing import lowers_case
from biosqueeze.models.tokenizers.tokenizer import build_tokenizer, tokenizer_family
from biosqueeze.models.tokenizers.tokenizer_settings import encode_unknown
from biosqueeze.vocabularies.families import SPACE, WITHIN_WORD

_WORD = re.compile(r"\w+")
_NO_LIMIT = 1 << 30
_QUANTILES = {"median": 0.5, "95%": 0.95, "99%": 0.99, "most": 1.0}
_BEFORE_TERM = "a "  # a term within a sentence: byte-level BPE writes it with the space before it


@dataclass(frozen=True)
class NamedTokenizer:
    """A tokenizer to compare."""

    name: str
    core: Core
    unknown: int | None
    """The id of unknown pieces; None where the tokenizer has none."""
    special: frozenset[int]

    @classmethod
    def of(cls, name: str, tokenizer: Any) -> Self:
        """Return the content of a fast tokenizer of transformers."""
        special = frozenset(tokenizer.all_special_ids)
        return cls(name, tokenizer.backend_tokenizer, tokenizer.unk_token_id, special)

    @property
    def kind(self) -> str:
        """WordPiece, BPE or Unigram."""
        return type(self.core.model).__name__

    @property
    def is_cased(self) -> bool:
        """Whether capitals are kept."""
        return not lowers_case(self.core)


def load_named(name: str) -> NamedTokenizer:
    """Load the tokenizer of a directory, of a model on the Hub, or of demo:minilm.

    Raises:
        SqueezeError: there is none, it is damaged, or it cannot encode every text.
    """
    path = locate(name, weights=False)
    check_files(path)
    checkpoint = Checkpoint(path, name)
    family = tokenizer_family(checkpoint, FAMILIES["bert"])
    tokenizer = build_tokenizer(checkpoint, family, _NO_LIMIT, token_types=True)
    try:
        encode_unknown(tokenizer)
    except SqueezeError as error:
        raise SqueezeError(f"{name}: {error}") from error
    return NamedTokenizer.of(name, tokenizer)


@dataclass
class PieceCounts:
    """Counts of one tokenizer over the lines of a text."""

    words: int = 0
    whole_words: int = 0
    pieces: int = 0
    unknown: int = 0
    lengths: "array[int]" = field(default_factory=lambda: array("L"))
    """Tokens of each line, with the special tokens."""

    def facts(self, max_length: int) -> dict[str, Any]:
        """Return shares and quantiles; `longer` is the share of lines with more than `max_length` tokens."""
        lengths = np.array(self.lengths)
        quantiles = {name: int(np.quantile(lengths, share, method="higher")) for name, share in _QUANTILES.items()}
        return {
            "pieces_per_word": self.pieces / max(self.words, 1),
            "whole_words": self.whole_words / max(self.words, 1),
            "unknown": self.unknown,
            "tokens_of_a_line": {"mean": float(lengths.mean()), **quantiles},
            "longer": float((lengths > max_length).mean()),
        }


class _Piece(NamedTuple):
    """The place of a piece in its line, in characters, and its id."""

    first: int
    last: int
    number: int


def count_pieces(tokenizer: NamedTokenizer, batches: Iterable[Sequence[str]]) -> PieceCounts:
    """Count the pieces of lines; a word is whole if one known piece holds all of it.

    Args:
        tokenizer: the tokenizer.
        batches: lists of lines.
    """
    counts = PieceCounts()
    for batch in batches:
        with all_cores():
            encodings = tokenizer.core.encode_batch(list(batch), add_special_tokens=False)
        added = tokenizer.core.num_special_tokens_to_add(is_pair=False)
        for line, encoding in zip(batch, encodings, strict=True):
            counts.lengths.append(len(encoding.ids) + added)
            counts.pieces += len(encoding.ids)
            counts.unknown += encoding.ids.count(tokenizer.unknown) if tokenizer.unknown is not None else 0
            places = zip(encoding.offsets, encoding.ids, strict=True)
            pieces = [_Piece(first, last, number) for (first, last), number in places]
            _count_words(line, pieces, tokenizer.unknown, counts)
    return counts


def _count_words(line: str, pieces: Sequence[_Piece], unknown: int | None, counts: PieceCounts) -> None:
    """Count the words of a line, and those that lie within one piece."""
    position = 0
    for match in _WORD.finditer(line):
        start, end = match.span()
        while position < len(pieces) and pieces[position].last <= start:
            position += 1
        # A piece that is only the space before a word has the place of the word's first character.
        near = [piece for piece in pieces[position : position + 2] if piece.number != unknown]
        counts.words += 1
        counts.whole_words += any(piece.first <= start and end <= piece.last for piece in near)


def term_pieces(tokenizer: NamedTokenizer, term: str) -> tuple[str, ...]:
    """Return the pieces of a term within a sentence: without the space before it, and with ## within a word.

    A piece that is nothing but the space before the term is shown as the mark that SentencePiece has for it, and an
    unknown one as the token of the vocabulary for it ([UNK]).
    """
    encoding = tokenizer.core.encode(_BEFORE_TERM + term, add_special_tokens=False)
    inside = zip(encoding.tokens, encoding.ids, encoding.offsets, strict=True)
    shown: list[str] = []
    for piece, number, (_, end) in inside:
        if number == tokenizer.unknown and end > len(_BEFORE_TERM):
            shown.append(str(tokenizer.core.id_to_token(number)))
        elif end >= len(_BEFORE_TERM):
            text, is_start = split_mark(tokenizer, piece)
            is_start = is_start or shown[-1:] == [SPACE]
            shown.append(text if is_start and text else WITHIN_WORD + text if text else SPACE)
    return tuple(shown)


def is_whole(tokenizer: NamedTokenizer, pieces: Sequence[str]) -> bool:
    """Return whether one known piece of `term_pieces` holds all of a term."""
    unknown = None if tokenizer.unknown is None else tokenizer.core.id_to_token(tokenizer.unknown)
    shown = [piece for piece in pieces if piece != SPACE]
    return len(shown) == 1 and shown != [unknown]


def split_mark(tokenizer: NamedTokenizer, piece: str) -> tuple[str, bool]:
    """Return the text of a piece, and whether it starts a word."""
    if isinstance(tokenizer.core.decoder, decoders.ByteLevel):
        text = str(tokenizer.core.decoder.decode([piece]))
        return text.lstrip(), text[:1].isspace()
    if tokenizer.kind == "WordPiece":
        return piece.removeprefix(WITHIN_WORD), not piece.startswith(WITHIN_WORD)
    return piece.removeprefix(SPACE), piece.startswith(SPACE)


def shared_pieces(tokenizers: Sequence[NamedTokenizer]) -> list[list[int]]:
    """Return how many pieces each two vocabularies share: with the same text, and the same place in a word.

    The marks of the kinds (## of WordPiece, the spaces of the others) are not compared; special tokens are left out.
    """
    sets = [set(_comparable(tokenizer)) for tokenizer in tokenizers]
    return [[len(one & other) for other in sets] for one in sets]


def _comparable(tokenizer: NamedTokenizer) -> Iterator[tuple[str, bool]]:
    for piece, number in tokenizer.core.get_vocab().items():
        if number not in tokenizer.special:
            yield split_mark(tokenizer, piece)
