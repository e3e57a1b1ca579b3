"""Build tokenizers with the casing of their vocabulary.

transformers 5 builds a lower-casing tokenizer from a vocab.txt without settings, even for a cased vocabulary, and
rebuilds a BERT tokenizer from tokenizer_config.json even if tokenizer.json differs. Both change the encoder's inputs
without a warning. Here tokenizer.json is used as it is, and a vocabulary with capitals gives a cased tokenizer.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import AlbertTokenizer, BertTokenizer, PreTrainedTokenizerFast, RobertaTokenizer

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.files import read_json
from biosqueeze.models.casing import is_cased, lowers_case, read_sentencepiece, read_tokenizer_json, read_vocabulary
from biosqueeze.models.families import Family
from biosqueeze.models.notices import note_once
from biosqueeze.progress import warn

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
# Embeddings are often padded to a round number of rows.
_SPARE_ROWS = 128


def build_tokenizer(checkpoint: Checkpoint, family: Family, positions: int) -> PreTrainedTokenizerFast:
    """Build the checkpoint's fast tokenizer.

    Args:
        checkpoint: with tokenizer.json, or vocab.txt, or vocab.json and merges.txt, or ALBERT's spiece.model.
        family: determines the names of the model's inputs.
        positions: the model's maximum sequence length, special tokens included.

    Raises:
        SqueezeError: there are no such files, or they are damaged.
    """
    settings = _settings(checkpoint.path)
    common = {
        "model_max_length": min(positions, _max_length(settings)),
        "model_input_names": _inputs(family),
    }
    path = checkpoint.path
    if (path / "tokenizer.json").is_file():
        return _from_json(path / "tokenizer.json", settings, common)
    if (path / "vocab.txt").is_file():
        return _from_pieces(checkpoint, settings, common)
    if (path / "vocab.json").is_file() and (path / "merges.txt").is_file():
        return _from_merges(path, settings, common)
    if (path / "spiece.model").is_file():
        return _from_sentencepiece(checkpoint, settings, common)
    raise SqueezeError(
        f"{checkpoint.name} has no tokenizer (tokenizer.json, or vocab.txt, or vocab.json with merges.txt, or "
        "spiece.model); copy those files into the checkpoint's directory"
    )


def _settings(path: Path) -> dict[str, Any]:
    """Merge special_tokens_map.json and tokenizer_config.json, with special tokens as plain strings."""
    merged: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (path / name).is_file():
            merged |= {key: value for key, value in read_json(path / name).items() if value is not None}
    return {key: value["content"] if _is_token(value) else value for key, value in merged.items()}


def _is_token(value: object) -> bool:
    return isinstance(value, dict) and "content" in value


def _max_length(settings: Mapping[str, Any]) -> int:
    return int(settings.get("model_max_length") or 1 << 30)


def _inputs(family: Family) -> list[str]:
    return ["input_ids", *(["token_type_ids"] if family.takes_token_types else []), "attention_mask"]


def _specials(settings: Mapping[str, Any], vocabulary: Mapping[str, int]) -> dict[str, str]:
    """Return the special tokens of the settings, completed by the usual ones that are in the vocabulary."""
    style, other_style = (_SPECIALS["<"], _SPECIALS["["])[:: 1 if "<s>" in vocabulary else -1]
    # ALBERT mixes both styles: <pad> and <unk>, but [CLS], [SEP] and [MASK].
    present = {
        role: [t for t in (token, other_style.get(role, "")) if t in vocabulary] for role, token in style.items()
    }
    usual = {role: tokens[0] for role, tokens in present.items() if tokens}
    configured = {role: settings[role] for role in _SPECIALS["<"] if isinstance(settings.get(role), str)}
    return usual | configured


def _from_json(file: Path, settings: Mapping[str, Any], common: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    core = read_tokenizer_json(file)
    # A truncation in the file (sentence-transformers: 128) would cut texts without a warning.
    core.no_truncation()
    core.no_padding()
    vocabulary = core.get_vocab()
    build: Any = PreTrainedTokenizerFast
    tokenizer: PreTrainedTokenizerFast = build(tokenizer_object=core, **_specials(settings, vocabulary), **common)
    if lowers_case(core) and is_cased(vocabulary):
        warn(
            f"{file} lower-cases its input although the vocabulary has capitals, which are then unused; "
            "if the model was trained on cased text, delete tokenizer.json and keep vocab.txt"
        )
    return tokenizer


def _from_pieces(
    checkpoint: Checkpoint, settings: Mapping[str, Any], common: Mapping[str, Any]
) -> PreTrainedTokenizerFast:
    file = checkpoint.path / "vocab.txt"
    vocabulary = read_vocabulary(file)
    lacking = [token for token in ("[UNK]", "[CLS]", "[SEP]", "[PAD]") if token not in vocabulary]
    if lacking:
        raise SqueezeError(f"{file} has no piece {', '.join(lacking)}, so it is not a BERT vocabulary; fetch it again")
    tokenizer: PreTrainedTokenizerFast = BertTokenizer(
        vocab=vocabulary,
        do_lower_case=not _keeps_case(checkpoint, settings, vocabulary),
        strip_accents=settings.get("strip_accents"),
        tokenize_chinese_chars=settings.get("tokenize_chinese_chars", True),
        **_specials(settings, vocabulary),
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


def _from_sentencepiece(
    checkpoint: Checkpoint, settings: Mapping[str, Any], common: Mapping[str, Any]
) -> PreTrainedTokenizerFast:
    file = checkpoint.path / "spiece.model"
    proto = read_sentencepiece(file)
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    vocabulary = {piece: row for row, (piece, _) in enumerate(pieces)}
    unigram = proto.trainer_spec.UNIGRAM
    if proto.trainer_spec.model_type != unigram or vocabulary.get("<unk>") != 1 or "[CLS]" not in vocabulary:
        raise SqueezeError(
            f"{file} is not an ALBERT tokenizer (a Unigram model with <unk> at 1 and [CLS]); save the tokenizer with "
            "transformers (save_pretrained) and copy tokenizer.json there"
        )
    build: Any = AlbertTokenizer
    tokenizer: PreTrainedTokenizerFast = build(
        vocab=pieces,
        do_lower_case=not _keeps_case(checkpoint, settings, vocabulary),
        keep_accents=settings.get("keep_accents", False),
        _spm_precompiled_charsmap=proto.normalizer_spec.precompiled_charsmap or None,
        **_specials(settings, vocabulary),
        **common,
    )
    return tokenizer


def _from_merges(path: Path, settings: Mapping[str, Any], common: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    vocabulary = read_json(path / "vocab.json")
    lines = (path / "merges.txt").read_text(encoding="utf-8").splitlines()
    merges = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    build: Any = RobertaTokenizer
    tokenizer: PreTrainedTokenizerFast = build(
        vocab=vocabulary,
        merges=merges,
        add_prefix_space=settings.get("add_prefix_space", False),
        **_specials(settings, vocabulary),
        **common,
    )
    return tokenizer


def check_tokenizer(tokenizer: PreTrainedTokenizerFast, rows: int) -> None:
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
