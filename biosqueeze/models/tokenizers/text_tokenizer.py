"""Run a checkpoint's tokenizer.json on the tokenizers library alone, with the ids of transformers' tokenizer.

Importing transformers' tokenizers takes seconds, most of the time to a first prediction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.tokenizer import InferenceTokenizer
from biosqueeze.models.families import longest_input
from biosqueeze.models.loading.detection import config_with_family
from biosqueeze.models.tokenizers.casing import SENTENCEPIECE_FILES
from biosqueeze.models.tokenizers.tokenizer_settings import (
    ROLES,
    check_tokenizer,
    core_special_tokens,
    max_length,
    open_core,
    read_settings,
)

if TYPE_CHECKING:
    from tokenizers import Encoding
    from tokenizers import Tokenizer as Core

_ATTRIBUTES = {
    "input_ids": "ids",
    "token_type_ids": "type_ids",
    "special_tokens_mask": "special_tokens_mask",
    "offset_mapping": "offsets",
}
_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", *SENTENCEPIECE_FILES)
_SIZES = ("vocab_size", "max_position_embeddings")


@dataclass(frozen=True)
class TextEncodings:
    """The encodings of some texts, with the interface of transformers' `BatchEncoding`."""

    encodings: "Sequence[Encoding]"
    is_batch: bool

    def __getitem__(self, name: str) -> Any:
        """Return a list by the name that transformers gives it; of a batch a list of lists."""
        values = [getattr(encoding, _ATTRIBUTES[name]) for encoding in self.encodings]
        return values if self.is_batch else values[0]

    def word_ids(self, batch_index: int = 0) -> list[int | None]:
        """Return the index of each token's word, None for special tokens."""
        return self.encodings[batch_index].word_ids

    def sequence_ids(self, batch_index: int = 0) -> list[int | None]:
        """Return 0 or 1 for tokens of the first or second text, None for special tokens."""
        return self.encodings[batch_index].sequence_ids


@dataclass(frozen=True)
class TextTokenizer:
    """A tokenizer.json with its special tokens."""

    backend_tokenizer: "Core"
    unk_token_id: int | None
    pad_token_id: int | None
    model_max_length: int

    def get_vocab(self) -> dict[str, int]:
        """Return the id of every token."""
        return self.backend_tokenizer.get_vocab()

    def __call__(self, *texts: Any, **options: Any) -> TextEncodings:
        """Encode one text, the two texts of a pair, or a list of texts; see `data.tokenizer.Tokenizer`."""
        is_split = options.get("is_split_into_words", False)
        is_batch = not isinstance(texts[0], str)
        inputs = texts[0] if is_batch else [texts if len(texts) > 1 else texts[0]]
        encodings = self.backend_tokenizer.encode_batch(
            inputs, is_pretokenized=is_split, add_special_tokens=options.get("add_special_tokens", True)
        )
        return TextEncodings(encodings, is_batch)


def load_text_tokenizer(checkpoint: Checkpoint) -> InferenceTokenizer:
    """Load the checkpoint's tokenizer for inference; without a tokenizer.json, transformers builds one.

    Raises:
        SqueezeError: there is none, it is damaged, or it has more pieces than the model has embeddings.
    """
    config = config_with_family(checkpoint)
    file = checkpoint.path / "tokenizer.json"
    if not file.is_file() or any(not isinstance(config.get(size), int) for size in _SIZES):
        from biosqueeze.models.loading.load import load_tokenizer

        return load_tokenizer(checkpoint)
    settings = read_settings(checkpoint.path)
    core = open_core(file)
    specials = core_special_tokens(settings, core)
    _add_special_tokens(core, specials)
    tokenizer = TextTokenizer(
        backend_tokenizer=core,
        unk_token_id=_id(core, specials.get("unk_token")),
        pad_token_id=_id(core, specials.get("pad_token")),
        model_max_length=max_length(settings, longest_input(config)),
    )
    check_tokenizer(tokenizer, config["vocab_size"])
    return tokenizer


def check_tokenizer_files(checkpoint: Checkpoint) -> None:
    """Check the tokenizer of a plan, which needs nothing but config.json, where its files are there.

    Raises:
        SqueezeError: they are damaged, or the tokenizer has more pieces than the model has embeddings.
    """
    if any((checkpoint.path / name).is_file() for name in _FILES):
        load_text_tokenizer(checkpoint)


def _add_special_tokens(core: "Core", specials: Mapping[str, str]) -> None:
    """Make the special tokens whole tokens, and complete the post-processor, as transformers does."""
    from tokenizers import AddedToken, processors

    known = {token.content for token in core.get_added_tokens_decoder().values()}
    missing = dict.fromkeys(specials[role] for role in ROLES if role in specials and specials[role] not in known)
    core.add_tokens([AddedToken(token, special=True) for token in missing])
    if core.post_processor is None:
        core.post_processor = processors.TemplateProcessing(single="$A:0", pair="$A:0 $B:1", special_tokens=[])


def _id(core: "Core", token: str | None) -> int | None:
    return None if token is None else core.token_to_id(token)
