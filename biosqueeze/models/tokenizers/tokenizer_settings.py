"""Special tokens, longest input and tokenizer.json of a checkpoint's tokenizer, and the checks of it. Torch-free."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biosqueeze.data.tokenizer import InferenceTokenizer
from biosqueeze.errors import SqueezeError
from biosqueeze.files import read_json
from biosqueeze.files.json_object import JsonObject, is_unicode
from biosqueeze.models.tokenizers.added_tokens import add_listed
from biosqueeze.models.tokenizers.casing import is_cased, lowers_case, read_tokenizer_json
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
    "<|": {
        "bos_token": "<|begin_of_text|>",
        "eos_token": "<|end_of_text|>",
        "pad_token": "<|end_of_text|>",
        "mask_token": "<|mask|>",
    },
}
ROLES = tuple(_SPECIALS["<"])
"""The special tokens, in the order in which transformers adds missing ones to a vocabulary."""
_FLAGS = (
    *("do_lower_case", "strip_accents", "tokenize_chinese_chars", "add_prefix_space", "keep_accents"),
    "split_by_punct",
)
_ADVICE = "correct that value, or fetch the file again"
# Embeddings are often padded to a round number of rows; mDeBERTa has 898 of 251,000 without a token.
_SPARE_ROWS, _SPARE_SHARE = 128, 1 / 32
# The tokenizers library copies a tokenizer in a time that grows with the highest id.
_HIGHEST_ID = 1 << 24
# A character for private use, and a letter of a script that vocabularies lack: BERT's normalizer removes the first.
_UNKNOWN = "\ue000\U00010a80"


def read_settings(path: Path) -> dict[str, Any]:
    """Merge special_tokens_map.json and tokenizer_config.json, with special tokens as plain strings.

    Raises:
        SqueezeError: a file is damaged, or a value that is used has the wrong type.
    """
    merged: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (path / name).is_file():
            merged |= _plain(JsonObject(read_json(path / name), str(path / name), _ADVICE))
    return merged


def _plain(json: JsonObject) -> dict[str, Any]:
    """Check the settings in one file; return those that are not null, special tokens as plain strings."""
    settings = {key: value for key, value in json.values.items() if value is not None}
    for role in ROLES:
        if isinstance(settings.get(role), dict):
            settings[role] = json.child(role).get("content", str)
        else:
            json.optional(role, str)
        if not is_unicode(settings.get(role, "")):
            raise json.error(role, "is not valid text")
    for flag in _FLAGS:
        json.optional(flag, bool)
    length = json.optional("model_max_length", float)  # 1e30, as an integer, and 0 stand for no limit
    if length is not None and not length >= 0:
        raise json.error("model_max_length", f"is {length:g}, a number of tokens was expected")
    return settings


def max_length(settings: Mapping[str, Any], positions: int) -> int:
    """Return the longest input in tokens: that of the settings, limited by the model's positions."""
    return int(min(positions, settings.get("model_max_length") or positions))


def core_special_tokens(settings: Mapping[str, Any], core: "Core") -> dict[str, str]:
    """Return `special_tokens` of a tokenizer; MPNet's has <unk>, but gives [UNK] for what is unknown."""
    return special_tokens(settings, core.get_vocab(), unknown=getattr(core.model, "unk_token", None))


def special_tokens(
    settings: Mapping[str, Any], vocabulary: Mapping[str, int], *, unknown: str | None = None
) -> dict[str, str]:
    """Return the special tokens of the settings, completed by the usual ones that are in the vocabulary.

    Args:
        settings: of `read_settings`.
        vocabulary: of the tokenizer.
        unknown: the usual token for what is unknown, if the tokenizer has one of its own.
    """
    style, other_style = (_SPECIALS["<"], _SPECIALS["["])[:: 1 if "<s>" in vocabulary else -1]
    if _SPECIALS["<|"]["bos_token"] in vocabulary:
        style = _SPECIALS["<|"]
    # ALBERT mixes both styles: <pad> and <unk>, but [CLS], [SEP] and [MASK].
    present = {
        role: [t for t in (token, other_style.get(role, "")) if t in vocabulary] for role, token in style.items()
    }
    usual = {role: tokens[0] for role, tokens in present.items() if tokens}
    if unknown is not None and unknown in vocabulary:
        usual["unk_token"] = unknown
    configured = {role: settings[role] for role in ROLES if settings.get(role)}
    return usual | configured


def open_core(file: Path) -> "Core":
    """Read a tokenizer.json, without its truncation and padding; warn if its case is not that of its vocabulary.

    Raises:
        SqueezeError: it is damaged.
    """
    core = read_tokenizer_json(file)
    highest = max(core.get_vocab().values(), default=0)
    if highest > _HIGHEST_ID:
        raise SqueezeError(
            f"{file} has ids up to {highest:,}, more than any vocabulary has pieces; copy the tokenizer files of this "
            "model into its directory"
        )
    # A truncation in the file (sentence-transformers: 128) would cut texts without a warning.
    core.no_truncation()
    core.no_padding()
    add_listed(core, file.parent)
    _check_case(file, core)
    return core


def _check_case(file: Path, core: "Core") -> None:
    """Warn if the tokenizer and its vocabulary are not both cased, or both uncased."""
    lowers, cased = lowers_case(core), is_cased(core.get_vocab())
    if lowers and cased:
        warn(
            f"{file} lower-cases its input although the vocabulary has capitals, which are then unused; "
            "if the model was trained on cased text, delete tokenizer.json and keep vocab.txt"
        )
    if not lowers and not cased and type(core.model).__name__ == "WordPiece":
        warn(
            f"{file} keeps case although the vocabulary has no capitals, so every word with one is unknown; if the "
            "model was trained on lower-cased text, delete tokenizer.json and keep vocab.txt"
        )


def encode_unknown(tokenizer: InferenceTokenizer) -> Sequence[int]:
    """Return the ids of a pair of texts with unknown characters: the post-processor may add any others to them.

    Raises:
        SqueezeError: the tokenizer has no token for what is unknown.
    """
    try:
        ids: Sequence[int] = tokenizer(_UNKNOWN, "a")["input_ids"]
    except Exception as error:  # the Rust side raises no narrower class
        raise SqueezeError(
            f"the tokenizer cannot encode every text ({error}); copy the tokenizer files of this model into its "
            "directory, or take a tokenizer with a token for what is unknown"
        ) from error
    return ids


def check_tokenizer(tokenizer: InferenceTokenizer, rows: int) -> None:
    """Check that every id of the tokenizer has a row in the embedding.

    Args:
        tokenizer: the tokenizer.
        rows: number of rows of the embedding, vocab_size in config.json.

    Raises:
        SqueezeError: the tokenizer has more pieces than the embedding has rows, no token for padding, or none for what
            is unknown.
    """
    if tokenizer.pad_token_id is None:
        raise SqueezeError("the tokenizer has no padding token; set pad_token in tokenizer_config.json")
    vocabulary = tokenizer.get_vocab()
    highest = max((*vocabulary.values(), *encode_unknown(tokenizer)))
    if highest >= rows:
        first = min(((number, token) for token, number in vocabulary.items() if number >= rows), default=None)
        without = f" (the first without one is {first[1][:40]!r})" if first else ""
        raise SqueezeError(
            f"the tokenizer has ids up to {highest:,} and the embedding only {rows:,} rows{without}, so they are of "
            "different models; copy the tokenizer files of this model into its directory"
        )
    if rows - highest > max(_SPARE_ROWS, rows * _SPARE_SHARE):
        warn(f"the tokenizer has ids up to {highest:,} and the embedding {rows:,} rows: is it this model's tokenizer?")
