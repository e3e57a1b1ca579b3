"""The part of a fast tokenizer's interface that encoding needs, so that any implementation of it will do."""

from collections.abc import Mapping
from typing import Any, Protocol


class Encodings(Protocol):
    """The encoding of one text or of several: lists by name, and which word and which text each token is from."""

    def __getitem__(self, name: Any, /) -> Any:
        """Return `input_ids`, `token_type_ids`, `special_tokens_mask` or `offset_mapping`: a list, of lists if several
        texts were encoded.
        """

    def word_ids(self, batch_index: int = 0, /) -> list[int | None]:
        """Return the index of each token's word, None for special tokens."""

    def sequence_ids(self, batch_index: int = 0, /) -> list[int | None]:
        """Return 0 or 1 for tokens of the first or second text, None for special tokens."""


class Tokenizer(Protocol):
    """A fast tokenizer: transformers', or the torch-free one of `models.tokenizers.text_tokenizer`."""

    @property
    def unk_token_id(self) -> Any:
        """The id of the unknown token; None if there is none."""

    @property
    def backend_tokenizer(self) -> Any:
        """The `tokenizers.Tokenizer` that does the work."""

    def get_vocab(self) -> Mapping[str, int]:
        """Return the id of every token."""

    def __call__(self, *texts: Any, **options: Any) -> Encodings:
        """Encode texts, as transformers' tokenizers do.

        Args:
            texts: one text, the two texts of a pair, or a list of texts (of lists of words, if they are split).
            options: add_special_tokens, is_split_into_words, and return_NAME for what is returned.
        """


class InferenceTokenizer(Tokenizer, Protocol):
    """A tokenizer of a fine-tuned checkpoint, with what batches need."""

    @property
    def pad_token_id(self) -> Any:
        """The id that fills batches."""

    @property
    def model_max_length(self) -> int:
        """The longest input in tokens."""
