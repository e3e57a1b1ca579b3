"""Build tokenizers with the casing of their vocabulary.

transformers 5 builds a lower-casing tokenizer from a vocab.txt without settings, even for a cased vocabulary, and
rebuilds a BERT tokenizer from tokenizer_config.json even if tokenizer.json differs. Both change the encoder's inputs
without a warning. Here tokenizer.json is used as it is, and a vocabulary with capitals gives a cased tokenizer.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from transformers import BertTokenizer, MPNetTokenizer, PreTrainedTokenizerFast, RobertaTokenizer

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.files import read_json, read_small_text
from biosqueeze.models.families import FAMILIES, Family
from biosqueeze.models.tokenizers.added_tokens import add_tokens, name_special
from biosqueeze.models.tokenizers.casing import SENTENCEPIECE_FILES, is_cased, read_vocabulary, sentencepiece_file
from biosqueeze.models.tokenizers.sentencepiece import from_sentencepiece
from biosqueeze.models.tokenizers.tokenizer_settings import (
    core_special_tokens,
    max_length,
    open_core,
    read_settings,
    special_tokens,
)
from biosqueeze.progress import note_once, warn

_BERT_TOKENS = ("[UNK]", "[CLS]", "[SEP]", "[PAD]")
# Families with a vocab.txt whose special tokens are not BERT's: their class, and tokens that it needs.
_WORDPIECE = {"mpnet": (MPNetTokenizer, ("[UNK]", "<s>", "</s>", "<pad>"))}


def build_tokenizer(
    checkpoint: Checkpoint, family: Family, positions: int, *, token_types: bool
) -> PreTrainedTokenizerFast:
    """Build the checkpoint's fast tokenizer.

    Args:
        checkpoint: with tokenizer.json, or vocab.txt, or vocab.json and merges.txt, or a SentencePiece file.
        family: what the ids of old files mean depends on it; see `tokenizer_family` for those of another model.
        positions: the model's maximum sequence length, special tokens included.
        token_types: whether the model reads `token_type_ids`.

    Raises:
        SqueezeError: there are no such files, or they are damaged.
    """
    return name_special(_read_tokenizer(checkpoint, family, positions, token_types=token_types))


def _read_tokenizer(
    checkpoint: Checkpoint, family: Family, positions: int, *, token_types: bool
) -> PreTrainedTokenizerFast:
    settings = read_settings(checkpoint.path)
    common = {
        "model_max_length": max_length(settings, positions),
        "model_input_names": ["input_ids", *(["token_type_ids"] if token_types else []), "attention_mask"],
    }
    path = checkpoint.path
    if (path / "tokenizer.json").is_file():
        return _from_json(path / "tokenizer.json", settings, common)
    if (path / "vocab.txt").is_file():
        return add_tokens(_from_pieces(checkpoint, family, settings, common), path)
    if (path / "vocab.json").is_file() and (path / "merges.txt").is_file():
        return add_tokens(_from_merges(path, settings, common), path)
    if file := sentencepiece_file(path):
        keeps_case = partial(_keeps_case, checkpoint, settings)
        return add_tokens(from_sentencepiece(file, family.name, settings, common, keeps_case), path)
    raise SqueezeError(
        f"{checkpoint.name} has no tokenizer (tokenizer.json, or vocab.txt, or vocab.json with merges.txt, or "
        f"{' or '.join(SENTENCEPIECE_FILES)}); copy those files there"
    )


def tokenizer_family(checkpoint: Checkpoint, otherwise: Family) -> Family:
    """Return the family in config.json beside a tokenizer, as whose its old files are read; else another.

    Args:
        checkpoint: with a tokenizer, which may be all that it has.
        otherwise: the family where there is no config.json, or that of no supported model.

    Raises:
        SqueezeError: config.json is damaged.
    """
    file = checkpoint.path / "config.json"
    model_type = str(read_json(file).get("model_type")) if file.is_file() else ""
    return FAMILIES.get(model_type, otherwise)


def _from_json(file: Path, settings: Mapping[str, Any], common: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    core = open_core(file)
    build: Any = PreTrainedTokenizerFast
    tokenizer: PreTrainedTokenizerFast = build(tokenizer_object=core, **core_special_tokens(settings, core), **common)
    return tokenizer


def _from_pieces(
    checkpoint: Checkpoint, family: Family, settings: Mapping[str, Any], common: Mapping[str, Any]
) -> PreTrainedTokenizerFast:
    file = checkpoint.path / "vocab.txt"
    vocabulary = read_vocabulary(file)
    build: Any
    build, required = _WORDPIECE.get(family.name, (BertTokenizer, _BERT_TOKENS))
    lacking = [token for token in required if token not in vocabulary]
    if lacking:
        raise SqueezeError(
            f"{file} has no piece {', '.join(lacking)}, so it is not a vocabulary of {family.name}; fetch it again"
        )
    tokenizer: PreTrainedTokenizerFast = build(
        vocab=vocabulary,
        do_lower_case=not _keeps_case(checkpoint, settings, vocabulary),
        strip_accents=settings.get("strip_accents"),
        tokenize_chinese_chars=settings.get("tokenize_chinese_chars", True),
        **special_tokens(settings, vocabulary, unknown="[UNK]"),
        **common,
    )
    return tokenizer


def _keeps_case(checkpoint: Checkpoint, settings: Mapping[str, Any], vocabulary: Mapping[str, int]) -> bool:
    """Return whether a tokenizer is cased: if its settings say so, or if the vocabulary has capitals."""
    cased = settings.get("do_lower_case") is False or is_cased(vocabulary)
    if cased and settings.get("do_lower_case") is True:
        warn(f"{checkpoint.name}: tokenizer_config.json sets lower case, but the vocabulary has capitals: kept cased")
    elif cased and "do_lower_case" not in settings:
        message = f"{checkpoint.name}: the vocabulary has capitals, so its tokenizer keeps case (BRCA1 stays BRCA1)"
        note_once(checkpoint.path, message)
    return cased


def _from_merges(path: Path, settings: Mapping[str, Any], common: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    vocabulary = read_json(path / "vocab.json")
    lines = read_small_text(path / "merges.txt").splitlines()
    merges = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    build: Any = RobertaTokenizer
    try:
        tokenizer: PreTrainedTokenizerFast = build(
            vocab=vocabulary,
            merges=merges,
            add_prefix_space=settings.get("add_prefix_space", False),
            **special_tokens(settings, vocabulary),
            **common,
        )
    except SqueezeError:
        raise
    except Exception as error:  # the Rust side raises no narrower class
        cause = f"vocab.json and merges.txt of {path} are no tokenizer ({error})"
        raise SqueezeError(f"{cause}; fetch or copy them again") from error
    return tokenizer
