"""Special tokens, longest input and tokenizer.json of a checkpoint's tokenizer, and the checks of it. Torch-free."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biosqueeze.data.tokenizer import Tokenizer
from biosqueeze.errors import SqueezeError
from biosqueeze.files import read_json
from biosqueeze.models.casing import is_cased, lowers_case, read_tokenizer_json
from biosqueeze.progress import warn

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Core

_SPECIALS = {
    "[": {
        "unk_token": "[UNK]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "mask_token": "[MASK]",
    },
    "<": {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "sep_token": "</s>",
        "pad_token": "<pad>",
        "cls_token": "<s>",
        "mask_token": "<mask>",
    },
}
ROLES = tuple(_SPECIALS["<"])
"""The special tokens, in the order in which transformers adds missing ones to a vocabulary."""
# Embeddings are often padded to a round number of rows.
_SPARE_ROWS = 128


def read_settings(path: Path) -> dict[str, Any]:
    """Merge special_tokens_map.json and tokenizer_config.json, with special tokens as plain strings."""
    merged: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (path / name).is_file():
            merged |= {key: value for key, value in read_json(path / name).items() if value is not None}
    return {key: value["content"] if _is_token(value) else value for key, value in merged.items()}


def _is_token(value: object) -> bool:
    return isinstance(value, dict) and "content" in value


def max_length(settings: Mapping[str, Any], positions: int) -> int:
    """Return the longest input in tokens: that of the settings, limited by the model's positions."""
    return min(positions, int(settings.get("model_max_length") or 1 << 30))


def special_tokens(settings: Mapping[str, Any], vocabulary: Mapping[str, int]) -> dict[str, str]:
    """Return the special tokens of the settings, completed by the usual ones that are in the vocabulary."""
    style, other_style = (_SPECIALS["<"], _SPECIALS["["])[:: 1 if "<s>" in vocabulary else -1]
    # ALBERT mixes both styles: <pad> and <unk>, but [CLS], [SEP] and [MASK].
    present = {
        role: [t for t in (token, other_style.get(role, "")) if t in vocabulary] for role, token in style.items()
    }
    usual = {role: tokens[0] for role, tokens in present.items() if tokens}
    configured = {role: settings[role] for role in ROLES if isinstance(settings.get(role), str)}
    return usual | configured


def open_core(file: Path) -> "Core":
    """Read a tokenizer.json, without its truncation and padding; warn if it makes capitals unreachable.

    Raises:
        SqueezeError: it is damaged.
    """
    core = read_tokenizer_json(file)
    # A truncation in the file (sentence-transformers: 128) would cut texts without a warning.
    core.no_truncation()
    core.no_padding()
    if lowers_case(core) and is_cased(core.get_vocab()):
        warn(
            f"{file} lower-cases its input although the vocabulary has capitals, which are then unused; "
            "if the model was trained on cased text, delete tokenizer.json and keep vocab.txt"
        )
    return core


def check_tokenizer(tokenizer: Tokenizer, rows: int) -> None:
    """Check that every id of the tokenizer has a row in the embedding.

    Args:
        tokenizer: the tokenizer.
        rows: number of rows of the embedding, vocab_size in config.json.

    Raises:
        SqueezeError: the tokenizer has more pieces than the embedding has rows.
    """
    highest = max(tokenizer.get_vocab().values())
    if highest >= rows:
        raise SqueezeError(
            f"the tokenizer has ids up to {highest:,} and the embedding only {rows:,} rows, so they are of different "
            "models; copy the tokenizer files of this model into its directory"
        )
    if rows - highest > _SPARE_ROWS:
        warn(f"the tokenizer has ids up to {highest:,} and the embedding {rows:,} rows: is it this model's tokenizer?")
