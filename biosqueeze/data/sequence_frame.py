"""The special tokens that a tokenizer puts around a text, or around the two texts of a pair."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from biosqueeze.data.text.blocks import NO_LETTER, Ids
from biosqueeze.data.tokenizer import Tokenizer
from biosqueeze.errors import SqueezeError


@dataclass(frozen=True)
class SequenceFrame:
    """The special tokens around one text or a pair: BERT's [CLS] A [SEP] B [SEP], RoBERTa's <s> A </s></s> B </s>."""

    parts: tuple[Ids, ...]  # before, (between,) after; one more than there are texts
    types: tuple[Ids, ...]  # the token types of the parts
    text_types: tuple[int, ...]  # the token type of each text

    def __len__(self) -> int:
        """Return the number of special tokens."""
        return sum(map(len, self.parts))

    @classmethod
    def of(cls, tokenizer: Tokenizer, texts: int) -> "SequenceFrame":
        """Find the special tokens by encoding single letters.

        Raises:
            SqueezeError: the tokenizer drops them.
        """
        encoded = tokenizer(*["a"] * texts, return_special_tokens_mask=True, return_token_type_ids=True)
        ids, types = (np.asarray(encoded[name], dtype=np.int64) for name in ("input_ids", "token_type_ids"))
        owners = np.array([-1 if owner is None else owner for owner in encoded.sequence_ids(0)])
        if not all((owners == text).any() for text in range(texts)):
            raise SqueezeError(NO_LETTER)
        spans = [np.flatnonzero(owners == text)[[0, -1]] for text in range(texts)]
        starts, ends = [0, *(last + 1 for _, last in spans)], [*(first for first, _ in spans), len(ids)]
        gaps = [slice(start, end) for start, end in zip(starts, ends, strict=True)]
        return cls(
            tuple(ids[gap] for gap in gaps),
            tuple(types[gap] for gap in gaps),
            tuple(int(types[first]) for first, _ in spans),
        )

    def framed(self, texts: Sequence[Ids]) -> tuple[Ids, Ids]:
        """Return ids and token types of texts with their special tokens, each (length,)."""
        ids, types = [self.parts[0]], [self.types[0]]
        for number, pieces in enumerate(texts):
            ids += [pieces, self.parts[number + 1]]
            types += [np.full(len(pieces), self.text_types[number]), self.types[number + 1]]
        return np.concatenate(ids), np.concatenate(types).astype(np.int64)
