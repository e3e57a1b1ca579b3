"""Choose the tokens of a smaller vocabulary, so that texts made of them alone are encoded as before.

WordPiece takes the longest token first, and unigram the best scored ones: with fewer tokens to choose from, what was
chosen before is chosen again. Byte pairs are merged in steps, whose results must be kept too. The unknown token does
not count: without `abc`, WordPiece can split an `abcd` that had no token for the `d` behind it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from biosqueeze.errors import SqueezeError

_KINDS = ("WordPiece", "BPE", "Unigram")


@dataclass(frozen=True)
class TokenizerContent:
    """The content of a tokenizer.json, and what follows from it for its tokens."""

    json: Mapping[str, Any]
    ids: Mapping[str, int]
    """The id of every token, added ones too."""

    @classmethod
    def of(cls, tokenizer: Any) -> "TokenizerContent":
        """Read the content of a fast tokenizer of transformers.

        Raises:
            SqueezeError: its vocabulary cannot be cut.
        """
        core = tokenizer.backend_tokenizer
        content = cls(json.loads(core.to_str()), core.get_vocab())
        model = content.json["model"]
        if content.kind not in _KINDS or model.get("end_of_word_suffix") or (content.prefix and content.kind == "BPE"):
            raise SqueezeError(
                f"the vocabulary of a {content.kind} tokenizer like this one cannot be cut, only WordPiece, byte-level "
                "BPE and Unigram; leave out --vocab-keep"
            )
        return content

    @property
    def kind(self) -> str:
        """WordPiece, BPE or Unigram."""
        return str(self.json["model"].get("type", "WordPiece"))

    @property
    def prefix(self) -> str:
        """The mark of tokens within words."""
        return str(self.json["model"].get("continuing_subword_prefix") or "")

    @cached_property
    def special(self) -> frozenset[str]:
        """Added tokens, and those that the model and the post-processor use."""
        tokens = {token["content"] for token in self.json["added_tokens"]}
        tokens |= {token for token, _ in processor_tokens(self.json.get("post_processor"))}
        model = self.json["model"]
        if self.kind == "Unigram" and model.get("unk_id") is not None:
            tokens.add(model["vocab"][model["unk_id"]][0])
        elif model.get("unk_token"):
            tokens.add(model["unk_token"])
        return frozenset(tokens & self.ids.keys())

    @cached_property
    def characters(self) -> frozenset[str]:
        """Tokens of one character or byte, and those whose text these cannot spell."""
        pieces = self.ids.keys() - self.special
        single = {piece for piece in pieces if len(piece.removeprefix(self.prefix)) == 1}
        if self.json["model"].get("byte_fallback"):
            single |= {f"<0x{byte:02X}>" for byte in range(256)} & self.ids.keys()
        return frozenset(single | {piece for piece in pieces if not single.issuperset(self._spelled(piece))})

    def _spelled(self, piece: str) -> Iterator[str]:
        """Yield the tokens of one character that spell a token."""
        starts_word = not (self.prefix and piece.startswith(self.prefix))
        text = piece if starts_word else piece.removeprefix(self.prefix)
        return ((self.prefix if place or not starts_word else "") + letter for place, letter in enumerate(text))

    @cached_property
    def least_likely(self) -> frozenset[str]:
        """The token of unigram with the lowest score, which determines the score of unknown characters."""
        if self.kind != "Unigram":
            return frozenset()
        return frozenset([min(self.json["model"]["vocab"], key=lambda scored: float(scored[1]))[0]])

    @cached_property
    def _ranks(self) -> dict[tuple[str, str], int]:
        return {pair: rank for rank, pair in enumerate(merges_of(self.json["model"]))}

    def parts(self, token: str) -> set[str]:
        """Return a token, and of byte pairs the results of the merges that make it."""
        made = {token}
        if self.kind != "BPE" or token in self.special:
            return made
        symbols = list(token)
        while len(symbols) > 1:
            pairs = [self._ranks.get(pair, len(self._ranks)) for pair in pairwise(symbols)]
            rank = min(pairs)
            if rank == len(self._ranks):
                break  # not reachable by merges: a pre-tokenizer or `ignore_merges` gives it as a whole
            place = pairs.index(rank)
            symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
            made.add(symbols[place])
        return made & self.ids.keys()


def merges_of(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the merges of a BPE model, which older files write as one text each."""
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model.get("merges", ()))
    return [(left, right) for left, right in pairs]


def processor_tokens(processor: Mapping[str, Any] | None) -> Iterator[tuple[str, int]]:
    """Yield the special tokens of a post-processor and their ids."""
    if processor is None:
        return
    for inner in processor.get("processors", ()):
        yield from processor_tokens(inner)
    for token in processor.get("special_tokens", {}).values():
        yield from zip(token["tokens"], token["ids"], strict=True)
    for role in ("sep", "cls"):
        if role in processor:
            yield processor[role][0], processor[role][1]


@dataclass(frozen=True)
class KeptTokens:
    """The ids of the kept tokens in ascending order, and why they are kept."""

    ids: tuple[int, ...]
    special: int
    characters: int

    @property
    def others(self) -> int:
        """Number of the tokens that are kept because they occur."""
        return len(self.ids) - self.special - self.characters


def choose_tokens(
    content: TokenizerContent, counts: Sequence[int], most: int | None, named: Iterable[int]
) -> KeptTokens:
    """Choose the tokens that occur, or the most frequent of them, and those that every vocabulary needs.

    Args:
        content: of the tokenizer.
        counts: how often each id occurs.
        most: number of tokens to keep; None for all that occur.
        named: ids that the model's config names; they are kept too.

    Raises:
        SqueezeError: the special tokens and the single characters are more than `most`.
    """
    tokens = {number: token for token, number in content.ids.items()}
    special = set(content.special | {tokens[number] for number in named if number in tokens})
    characters = set().union(*map(content.parts, content.characters - special)) - special
    kept = special | characters | content.least_likely
    if most is not None and len(kept) > most:
        raise SqueezeError(
            f"--vocab-size {most:,} is too small: the special tokens ({len(special):,}) and the single characters, "
            f"without which some text could not be encoded, take {len(kept):,}; give a larger number"
        )
    occurring = (number for number, count in enumerate(counts) if count and number in tokens)
    for number in sorted(occurring, key=lambda number: (-counts[number], number)):
        parts = content.parts(tokens[number]) - kept
        if most is None or len(kept) + len(parts) <= most:
            kept |= parts
    return KeptTokens(tuple(sorted(content.ids[token] for token in kept)), len(special), len(characters))
