"""Tokenizers from SentencePiece files, the layouts of checkpoints before tokenizer.json: one row for each layout."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from tokenizers import Regex, models, normalizers
from transformers import PreTrainedTokenizerFast

from biosqueeze.errors import SqueezeError
from biosqueeze.models.tokenizers.casing import read_sentencepiece
from biosqueeze.models.tokenizers.tokenizer_settings import special_tokens


@dataclass(frozen=True)
class Layout:
    """How the ids of a family's tokenizer follow from the pieces of its file."""

    tokenizer: str
    """The class of transformers that has the family's normalizer, pre-tokenizer and post-processor."""
    replaced: int = 0
    """Number of the file's first pieces that `first` replaces."""
    first: tuple[str, ...] = ()
    """Pieces with the ids from 0; fairseq numbered them apart from the file."""
    last: tuple[str, ...] = ()
    """Pieces with the highest ids."""
    required: tuple[str, ...] = ("<unk>",)
    """Pieces that the file must have."""
    lowers_case: bool = False
    """Whether the class lower-cases its input by default."""
    keeps_rules: bool = False
    """Whether the normalizer and the byte fallback of the file are used, which the class ignores: DeBERTa's class would
    give [UNK] for characters that the model was trained to read as bytes."""


_ALBERT = Layout("AlbertTokenizer", required=("<unk>", "[CLS]"), lowers_case=True)
_LAYOUTS = {
    "albert": _ALBERT,
    "deberta-v2": Layout("DebertaV2Tokenizer", required=("[UNK]", "[CLS]"), keeps_rules=True),
    "xlm-roberta": Layout("XLMRobertaTokenizer", 3, ("<s>", "<pad>", "</s>", "<unk>"), ("<mask>",)),
    "camembert": Layout(
        "CamembertTokenizer", 1, ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"), ("<mask>",)
    ),
}
# Special tokens that cannot be added to a file's pieces.
_IN_FILE = ("unk_token", "cls_token", "sep_token")
# Never chosen between pieces of a text.
_UNREACHABLE = -100.0


def from_sentencepiece(
    file: Path,
    family: str,
    settings: Mapping[str, Any],
    common: Mapping[str, Any],
    keeps_case: Callable[[Mapping[str, int]], bool],
) -> PreTrainedTokenizerFast:
    """Build a tokenizer from a SentencePiece file.

    Args:
        file: the file.
        family: the model's family.
        settings: of `read_settings`.
        common: other arguments of the tokenizer's class.
        keeps_case: function of a vocabulary that returns whether its tokenizer is cased.

    Raises:
        SqueezeError: the file is damaged, no Unigram model of the family's layout, or lacks a special token.
    """
    layout = _LAYOUTS.get(family, _ALBERT)
    proto = read_sentencepiece(file)
    names = [piece.piece for piece in proto.pieces]
    if proto.trainer_spec.model_type != proto.trainer_spec.UNIGRAM or not set(layout.required) <= set(names):
        raise SqueezeError(
            f"{file} is not the tokenizer of a model of type {family} (a Unigram model with "
            f"{' and '.join(layout.required)}); save the tokenizer with transformers (save_pretrained) and copy "
            "tokenizer.json there"
        )
    pieces = [(piece, _UNREACHABLE if piece == "<unk>NOTUSED" else 0.0) for piece in layout.first]
    pieces += [(piece.piece, piece.score) for piece in proto.pieces[layout.replaced :]]
    pieces += [(piece, 0.0) for piece in layout.last]
    vocabulary = {piece: row for row, (piece, _) in enumerate(pieces)}
    specials = special_tokens(settings, vocabulary)
    _check_special_tokens(file, specials, vocabulary)
    case: dict[str, Any] = {}
    if layout.lowers_case:
        case = {"do_lower_case": not keeps_case(vocabulary), "keep_accents": settings.get("keep_accents", False)}
    elif layout.keeps_rules:
        case = {flag: settings.get(flag, False) for flag in ("do_lower_case", "split_by_punct")}
    tokenizer: PreTrainedTokenizerFast = getattr(transformers, layout.tokenizer)(
        vocab=pieces,
        _spm_precompiled_charsmap=proto.normalizer_spec.precompiled_charsmap or None,
        **case,
        **specials,
        **common,
    )
    if not layout.keeps_rules:
        return tokenizer
    _apply_rules(tokenizer, pieces, proto)
    # transformers would build a saved tokenizer of the class anew, without these rules; a general one is kept as it is.
    general: Any = PreTrainedTokenizerFast
    kept: PreTrainedTokenizerFast = general(
        tokenizer_object=tokenizer.backend_tokenizer, **tokenizer.special_tokens_map, **common
    )
    return kept


def _check_special_tokens(file: Path, specials: Mapping[str, str], vocabulary: Mapping[str, int]) -> None:
    absent = next((role for role in _IN_FILE if role in specials and specials[role] not in vocabulary), None)
    if absent is not None:
        raise SqueezeError(
            f"{file} has no piece {specials[absent]!r}, which tokenizer_config.json or special_tokens_map.json names "
            f"as {absent}; correct that value, or fetch the files again"
        )


def _apply_rules(tokenizer: Any, pieces: list[tuple[str, float]], proto: Any) -> None:
    """Normalize and split a text as the SentencePiece library does with the file; the pieces keep their ids."""
    core, charsmap = tokenizer.backend_tokenizer, proto.normalizer_spec.precompiled_charsmap
    mapped = [normalizers.Precompiled(charsmap)] if charsmap else []
    lowered = [normalizers.Lowercase()] if tokenizer.do_lower_case else []
    core.normalizer = normalizers.Sequence(
        [*lowered, normalizers.Strip(), *mapped, normalizers.Replace(Regex(r"\s+"), " ")]
    )
    unknown = [piece for piece, _ in pieces].index(tokenizer.unk_token)
    core.model = models.Unigram(pieces, unknown, proto.trainer_spec.byte_fallback)
