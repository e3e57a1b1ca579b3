"""Build the tokenizer of transformers from a trained vocabulary, and write the files that every version of it reads."""

from pathlib import Path
from typing import Any

import transformers
from tokenizers import AddedToken
from tokenizers.models import Unigram
from transformers import PreTrainedTokenizerFast

from biosqueeze.models.families import FAMILIES
from biosqueeze.vocabularies.train import TrainingSettings, Vocabulary


def stock_tokenizer(vocabulary: Vocabulary, settings: TrainingSettings, max_length: int) -> PreTrainedTokenizerFast:
    """Build the tokenizer of the family: its normalizer, pre-tokenizer and post-processor are those of transformers.

    Args:
        vocabulary: the pieces.
        settings: with the family and the casing.
        max_length: `model_max_length`, the longest input in tokens, special tokens included.
    """
    build: Any = getattr(transformers, settings.family.tokenizer)
    tokenizer: PreTrainedTokenizerFast = build(
        model_max_length=max_length, model_input_names=_inputs(settings), **_model(vocabulary, settings)
    )
    return tokenizer


def _inputs(settings: TrainingSettings) -> list[str]:
    takes_token_types = FAMILIES[settings.family.name].takes_token_types
    return ["input_ids", *(["token_type_ids"] if takes_token_types else []), "attention_mask"]


def _model(vocabulary: Vocabulary, settings: TrainingSettings) -> dict[str, Any]:
    ids = {piece: number for number, piece in enumerate(vocabulary.pieces)}
    # As in the published tokenizers of RoBERTa and ALBERT, the mask includes the space before it.
    mask = AddedToken(settings.family.special_tokens[-1], lstrip=True, normalized=False, special=True)
    match settings.family.kind:
        case "wordpiece":
            return {"vocab": ids, "do_lower_case": settings.uncased}
        case "bpe":
            return {"vocab": ids, "merges": list(vocabulary.merges), "mask_token": mask}
        case "unigram":
            return {
                "vocab": list(zip(vocabulary.pieces, vocabulary.scores, strict=True)),
                "do_lower_case": settings.uncased,
                "keep_accents": not settings.uncased,
                "mask_token": mask,
            }


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, directory: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json, and vocab.txt, or vocab.json and merges.txt, where the kind has
    such files.
    """
    tokenizer.save_pretrained(directory)
    model = tokenizer.backend_tokenizer.model
    if not isinstance(model, Unigram):
        model.save(str(directory))
