"""Tokenizers, with the casing that the vocabulary was made with.

transformers 5 builds a lower-casing tokenizer from a bare vocab.txt, whatever is in it, and rebuilds a BERT
tokenizer from tokenizer_config.json even where tokenizer.json says otherwise. Both change what the encoder sees,
and neither says so. Here tokenizer.json is taken as it is, and a bare vocabulary with capitals is cased.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import AlbertTokenizer, BertTokenizer, PreTrainedTokenizerFast, RobertaTokenizer

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.files import read_json
from biosqueeze.models.casing import is_cased, lowers_case, read_core, read_pieces, read_sentencepiece
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
# Surplus rows of an embedding are often padding to a round number.
_SPARE_ROWS = 128


def build_tokenizer(checkpoint: Checkpoint, family: Family, positions: int) -> PreTrainedTokenizerFast:
    """The checkpoint's fast tokenizer.

    Args:
        checkpoint: where tokenizer.json, or vocab.txt, or vocab.json and merges.txt, or ALBERT's spiece.model, lie.
        family: decides the names of the model's inputs.
        positions: the longest sequence that the model takes, special tokens included.

    Raises:
        SqueezeError: there are no such files, or they are damaged.
    """
    settings = _settings(checkpoint.path)
    common = {
        "model_max_length": min(positions, _longest(settings)),
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
    """special_tokens_map.json and tokenizer_config.json in one, special tokens as plain strings."""
    merged: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (path / name).is_file():
            merged |= {key: value for key, value in read_json(path / name).items() if value is not None}
    return {key: value["content"] if _is_token(value) else value for key, value in merged.items()}


def _is_token(value: object) -> bool:
    return isinstance(value, dict) and "content" in value


def _longest(settings: Mapping[str, Any]) -> int:
    return int(settings.get("model_max_length") or 1 << 30)


def _inputs(family: Family) -> list[str]:
    return ["input_ids", *(["token_type_ids"] if family.takes_token_types else []), "attention_mask"]


def _specials(settings: Mapping[str, Any], vocabulary: Mapping[str, int]) -> dict[str, str]:
    """The special tokens that the settings name, and for the rest the vocabulary's own."""
    own, other = (_SPECIALS["<"], _SPECIALS["["])[:: 1 if "<s>" in vocabulary else -1]
    # ALBERT's are of both styles: <pad> and <unk>, but [CLS], [SEP] and [MASK].
    found = {role: [t for t in (token, other.get(role, "")) if t in vocabulary] for role, token in own.items()}
    usual = {role: tokens[0] for role, tokens in found.items() if tokens}
    named = {role: settings[role] for role in _SPECIALS["<"] if isinstance(settings.get(role), str)}
    return usual | named


def _from_json(file: Path, settings: Mapping[str, Any], common: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    core = read_core(file)
    # A baked-in length (sentence-transformers: 128) would cut texts in silence.
    core.no_truncation()
    core.no_padding()
    vocabulary = core.get_vocab()
    build: Any = PreTrainedTokenizerFast
    tokenizer: PreTrainedTokenizerFast = build(tokenizer_object=core, **_specials(settings, vocabulary), **common)
    if lowers_case(core) and is_cased(vocabulary):
        warn(
            f"{file} lower-cases its input although the vocabulary has capitals, which then never match; "
            "if the model was trained on cased text, delete tokenizer.json and keep vocab.txt"
        )
    return tokenizer


def _from_pieces(
    checkpoint: Checkpoint, settings: Mapping[str, Any], common: Mapping[str, Any]
) -> PreTrainedTokenizerFast:
    file = checkpoint.path / "vocab.txt"
    vocabulary = read_pieces(file)
    lacking = [token for token in ("[UNK]", "[CLS]", "[SEP]", "[PAD]") if token not in vocabulary]
    if lacking:
        raise SqueezeError(f"{file} has no piece {', '.join(lacking)}, so it is no BERT vocabulary; fetch it again")
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
    """Whether a tokenizer is cased: by its settings, but a vocabulary with capitals is cased in any case."""
    cased = settings.get("do_lower_case") is False or is_cased(vocabulary)
    if cased and settings.get("do_lower_case") is True:
        warn(
            f"{checkpoint.name}: tokenizer_config.json asks for lower case, but the vocabulary has capitals: kept cased"
        )
    elif cased and "do_lower_case" not in settings:
        said = f"{checkpoint.name}: the vocabulary has capitals, so its tokenizer keeps case (BRCA1 stays BRCA1)"
        note_once(checkpoint.path, said)
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
            f"{file} is not of ALBERT's kind (a Unigram model with <unk> at 1 and [CLS]); save the tokenizer with "
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
    """Make sure that every id has a row in the embedding.

    Args:
        tokenizer: the tokenizer.
        rows: of the embedding, vocab_size in config.json.

    Raises:
        SqueezeError: the tokenizer knows more pieces than the embedding has rows.
    """
    highest = max(tokenizer.get_vocab().values())
    if highest >= rows:
        raise SqueezeError(
            f"the tokenizer gives ids up to {highest:,} and the embedding has {rows:,} rows, so they do not belong "
            "together; copy the tokenizer files of this very model into its directory"
        )
    if rows - highest > _SPARE_ROWS:
        warn(f"the tokenizer gives ids up to {highest:,} and the embedding has {rows:,} rows: is it this model's?")
