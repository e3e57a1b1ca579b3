"""For each token of a new vocabulary, find the tokens of the former one that its text was made of."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from unicodedata import category

from tokenizers import AddedToken, decoders, models, pre_tokenizers

from biosqueeze.models.tokenizers.tokenizer_settings import ROLES
from biosqueeze.vocabularies.comparison import NamedTokenizer, split_mark
from biosqueeze.vocabularies.families import SPACE, WITHIN_WORD

_GARBLED = "\ufffd"  # what bytes that are no text are decoded to


@dataclass(frozen=True)
class FormerTokens:
    """For each new id the former ids whose rows are averaged: one for the same token, none where nothing is known."""

    sources: tuple[tuple[int, ...], ...]

    @property
    def copied(self) -> int:
        """Number of tokens that were a token before."""
        return sum(len(each) == 1 for each in self.sources)

    @property
    def averaged(self) -> int:
        """Number of tokens that were several before."""
        return sum(len(each) > 1 for each in self.sources)

    @property
    def random(self) -> int:
        """Number of tokens without a former one."""
        return len(self.sources) - self.copied - self.averaged


def find_former_tokens(former: Any, new: Any, rows: int) -> FormerTokens:
    """Find the former tokens of each new one.

    Special tokens are matched by their role, such as padding; the others by the token itself, or by their text.

    Args:
        former: a fast tokenizer of transformers.
        new: another one.
        rows: number of new ids.
    """
    before = _FormerTokenizer(NamedTokenizer.of("former", former), former.get_vocab())
    target, former_bytes = NamedTokenizer.of("new", new), _byte_tokens(former)
    added = new.backend_tokenizer.get_added_tokens_decoder()
    roles, new_bytes = _special_tokens(former, new), _byte_tokens(new)
    sources: list[tuple[int, ...]] = [()] * rows
    for token, number in new.get_vocab().items():
        if number in roles:
            sources[number] = (roles[number],)
        elif number in added:
            sources[number] = before.former_of_added(added[number])
        elif token in new_bytes:  # its text, such as <0xE2>, names a byte
            sources[number] = (before.ids[token],) if token in former_bytes else ()
        else:
            sources[number] = before.former(target, token)
    return FormerTokens(tuple(sources))


def _byte_tokens(tokenizer: Any) -> frozenset[str]:
    """Return the tokens that SentencePiece falls back to for what has no piece, one for each byte; none without them.

    Args:
        tokenizer: a fast tokenizer of transformers.
    """
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    names = (f"<0x{byte:02X}>" for byte in range(256)) if model.get("byte_fallback") else ()
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    return frozenset(names) & vocabulary.keys()


def _special_tokens(former: Any, new: Any) -> dict[int, int]:
    """Return the former id of each special token by its new id; <s> serves as [CLS], and </s> as [SEP]."""
    stands_for = {
        "cls_token": "bos_token",
        "bos_token": "cls_token",
        "sep_token": "eos_token",
        "eos_token": "sep_token",
    }
    found: dict[int, int] = {}
    for role in ROLES:
        number = getattr(new, f"{role}_id")
        old = [getattr(former, f"{name}_id") for name in (role, stands_for.get(role, role))]
        known = [each for each in old if each is not None]
        if number is not None and known:
            found.setdefault(number, known[0])
    return found


def _joins_words(new: NamedTokenizer, text: str) -> bool:
    """Return whether a token is punctuation that follows a word without a space, which WordPiece does not mark."""
    opens = any(category(letter) == "Ps" for letter in text)
    return new.kind == "WordPiece" and not opens and not any(letter.isalnum() for letter in text)


@dataclass(frozen=True)
class _FormerTokenizer:
    """The former tokenizer, which splits the texts of new tokens."""

    tokenizer: NamedTokenizer
    ids: Mapping[str, int]

    def former(self, new: NamedTokenizer, token: str) -> tuple[int, ...]:
        """Return the former tokens of a new token."""
        both_bytes = self._has_bytes and isinstance(new.core.decoder, decoders.ByteLevel)
        if token in self.ids and (both_bytes or new.kind == self.tokenizer.kind != "BPE"):
            return (self.ids[token],)
        if both_bytes:
            return self._known(self._model_ids([token]))
        text, starts_word = split_mark(new, token)
        if not text.strip() or _GARBLED in text:
            return ()
        joined = () if starts_word and not _joins_words(new, text) else self._known(self._within_word(text))
        return joined or (self._of_word(text) if starts_word else ())

    def former_of_added(self, token: AddedToken) -> tuple[int, ...]:
        """Return the former tokens of a token beside the vocabulary: a special one has no text, another is a word."""
        if token.content in self._added or (token.special and token.content in self.ids):
            return (self.ids[token.content],)
        return () if token.special or not token.content.strip() else self._of_word(token.content.strip())

    @cached_property
    def _added(self) -> frozenset[str]:
        return frozenset(token.content for token in self.tokenizer.core.get_added_tokens_decoder().values())

    def _of_word(self, text: str) -> tuple[int, ...]:
        return self._known(self.tokenizer.core.encode(f" {text}", add_special_tokens=False).ids)

    @property
    def _has_bytes(self) -> bool:
        return isinstance(self.tokenizer.core.decoder, decoders.ByteLevel)

    def _known(self, ids: Sequence[int]) -> tuple[int, ...]:
        return tuple(number for number in ids if number != self.tokenizer.unknown)

    def _model_ids(self, words: Sequence[str]) -> list[int]:
        return [token.id for word in words for token in self.tokenizer.core.model.tokenize(word)]

    def _within_word(self, text: str) -> list[int]:
        """Split a text that continues a word."""
        core = self.tokenizer.core
        normalized = core.normalizer.normalize_str(text) if core.normalizer else text
        if self._has_bytes:
            return self._model_ids([word for word, _ in self._bytes.pre_tokenize_str(normalized)])
        if self.tokenizer.kind != "WordPiece":
            return self._model_ids([normalized.removeprefix(SPACE)])
        # Behind a letter, because punctuation and Chinese characters are words of their own there too.
        first, *others = [word for word, _ in core.pre_tokenizer.pre_tokenize_str(f"x{normalized}")]
        return [token.id for token in self._continuations.tokenize(first[1:])] + self._model_ids(others)

    @cached_property
    def _bytes(self) -> pre_tokenizers.ByteLevel:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)

    @cached_property
    def _continuations(self) -> models.WordPiece:
        """A model of the tokens within words, without their mark."""
        pieces = {
            piece.removeprefix(WITHIN_WORD): number
            for piece, number in self.ids.items()
            if piece.startswith(WITHIN_WORD)
        }
        unknown = self.tokenizer.core.model.unk_token
        pieces[unknown] = self.ids[unknown]
        return models.WordPiece(pieces, unk_token=unknown, continuing_subword_prefix="")
