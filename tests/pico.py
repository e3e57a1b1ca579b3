"""Encoders of a few thousand weights, built in code: 4 layers x 32, 4 heads, ffn 64, saved as Hub folders.

    path = pico.save("bert", tmp_path / "teacher")                                  # cased, with its MLM head
    path = pico.save("roberta", tmp_path / "ner", head="token-classification", labels=("O", "B-X", "I-X"))

A family is a row of `ROWS`, and all tests that loop over families then include it: config keys and positions are those
of its row in `biosqueeze.models.families`, classes those of stock transformers.
Biases and LayerNorm scales are random too: a surgery that forgets one of them must show.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto as auto

from biosqueeze.models import families
from tests import pico_tokenizers as kinds
from tests.pico_tokenizers import sentences, wordpieces, words, write_sentences

__all__ = ["sentences", "wordpieces", "words", "write_sentences"]

LAYERS, HIDDEN, HEADS, FFN, POSITIONS = 4, 32, 4, 64, 128
LABELS = ("O", "B-Disease", "I-Disease")


@dataclass(frozen=True)
class Row:
    """What a family's pico model has beside the usual shape."""

    tokenizer: kinds.Kind = kinds.BERT
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Values in its config."""
    published: str = "mlm"
    """The head with which the family is published."""
    exported: str = "token-classification"
    """The head with which its graph is tested: an export takes seconds, so each head has a family or more."""
    layers_exported: int = 1
    """Of a shallow model: more where the layers differ."""
    same_code_as: str = ""
    """A family with the same modelling code: what costs seconds is tested with that one."""
    lacks: tuple[str, ...] = ()
    """Heads of stock transformers that need other inputs than random ones."""


_NARROW = {"embedding_size": HIDDEN // 2}  # embeddings narrower than the layers
_IDS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
_MODERN = _IDS | {"local_attention": 8}  # layers 1 and 2 attend to 4 tokens on each side
_EURO = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 1, "mask_token_id": 2, "num_key_value_heads": 2}
ROWS: Mapping[str, Row] = {
    "bert": Row(),
    "roberta": Row(kinds.ROBERTA, {"type_vocab_size": 1}, exported="sequence-classification"),
    "xlm-roberta": Row(kinds.XLM_ROBERTA, {"type_vocab_size": 1}, same_code_as="roberta"),
    "camembert": Row(
        kinds.CAMEMBERT, {"type_vocab_size": 1, "bos_token_id": 5, "eos_token_id": 6}, same_code_as="roberta"
    ),
    "longformer": Row(
        kinds.ROBERTA,
        {"type_vocab_size": 1, "attention_window": 8},
        lacks=("question-answering",),
        exported="sequence-classification",
    ),
    "mpnet": Row(kinds.MPNET),
    "electra": Row(settings=_NARROW, published="discriminator", exported="discriminator"),
    "distilbert": Row(exported="base"),
    "albert": Row(kinds.ALBERT, _NARROW, exported="mlm"),
    "deberta-v2": Row(
        kinds.DEBERTA,
        {
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "position_buckets": 8,
            "position_biased_input": False,
        },
    ),
    "mobilebert": Row(settings=_NARROW | {"intra_bottleneck_size": HIDDEN // 2}, exported="question-answering"),
    "modernbert": Row(kinds.MODERNBERT, _MODERN, layers_exported=2),
    "eurobert": Row(kinds.EUROBERT, _EURO),
}
FAMILIES = tuple(ROWS)
RARER = {"albert", "camembert", "distilbert", "eurobert", "longformer", "mobilebert", "mpnet", "xlm-roberta"}
"""Families whose cases are slow tests, wherever tests loop over families."""
DEBERTA_V2 = {
    "share_att_key": False,
    "norm_rel_ebd": "none",
    "position_biased_input": True,
    "type_vocab_size": 2,
    "conv_kernel_size": 3,
    "legacy": False,
}
"""What an older DeBERTa has: own projections of relative positions, absolute ones too, a convolution, its own head."""

_CLASSES = {
    "mlm": auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "base": auto.MODEL_MAPPING_NAMES,
    "token-classification": auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
    "sequence-classification": auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    "question-answering": auto.MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES,
}
HEADS_OF = {
    family: (
        *(["discriminator"] if row.published == "discriminator" else []),
        *(head for head, names in _CLASSES.items() if family in names and head not in row.lacks),
    )
    for family, row in ROWS.items()
}
_DISTINCT = tuple(family for family, row in ROWS.items() if not row.same_code_as)
_ALL_GRAPHS = tuple((family, head) for family in _DISTINCT for head in HEADS_OF[family])
GRAPHS = (
    _ALL_GRAPHS
    if os.environ.get("BIOSQUEEZE_CONTRACTS") == "all"
    else tuple((family, ROWS[family].exported) for family in _DISTINCT)
)
"""Families and heads whose graphs are exported and quantized: each family and each head, or all of both."""

ANSWER_QUESTIONS = tuple(family for family in ROWS if family in _CLASSES["question-answering"])
"""Families that are fine-tuned on questions; longformer's head needs real ones, so it is not in `HEADS_OF`."""


def class_of(family: str, head: str) -> str:
    """The stock class of a family with a head."""
    names = auto.MODEL_FOR_PRETRAINING_MAPPING_NAMES if head == "discriminator" else _CLASSES[head]
    return str(names[family])


def tokenizer_of(family: str, cased: bool = True) -> transformers.PreTrainedTokenizerFast:
    """The family's fast tokenizer over the invented words."""
    kind = ROWS[family].tokenizer
    types = ["token_type_ids"] if families.takes_token_types(config_of(family, 100)) else []
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=kind.core(cased),
        model_max_length=POSITIONS,
        model_input_names=["input_ids", "attention_mask", *types],
        **kind.specials,
    )


@cache
def shared_tokenizer(family: str = "bert") -> transformers.PreTrainedTokenizerFast:
    """The family's tokenizer, made once for all tests: change only one of `tokenizer_of`."""
    return tokenizer_of(family)


def config_of(family: str, vocab_size: int, labels: Sequence[str] = LABELS) -> transformers.PreTrainedConfig:
    """The family's config in pico size; embeddings of ELECTRA, ALBERT and MobileBERT are narrower than the layers."""
    names = dict(enumerate(labels))
    keys = families.FAMILIES[family]
    return transformers.CONFIG_MAPPING[family](
        vocab_size=vocab_size,
        id2label=names,
        label2id={label: i for i, label in names.items()},
        initializer_range=0.1,
        max_position_embeddings=POSITIONS + keys.first_position,
        **keys.shape_changes(layers=LAYERS, hidden=HIDDEN, heads=HEADS, ffn=FFN),
        **ROWS[family].settings,
    )


def model_of(
    family: str, vocab_size: int, head: str | None = None, labels: Sequence[str] = LABELS, seed: int = 0
) -> transformers.PreTrainedModel:
    """A randomly initialised pico model in eval mode, biases and LayerNorm scales random too."""
    name = class_of(family, head or ROWS[family].published)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = config_of(family, vocab_size, labels)
        config.architectures = [name]
        if head == "question-answering":
            config.num_labels = 2  # start and end
        model = getattr(transformers, name)(config)
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.data += 0.1 * torch.randn_like(parameter)
    return model.eval()


def save(
    family: str,
    path: Path,
    head: str | None = None,
    *,
    cased: bool = True,
    labels: Sequence[str] = LABELS,
    seed: int = 0,
) -> Path:
    """Write a pico checkpoint as stock transformers would: config.json, model.safetensors, tokenizer.json."""
    tokenizer = tokenizer_of(family, cased)
    model = model_of(family, len(tokenizer), head, labels, seed)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def padded_batch(
    model: transformers.PreTrainedModel, rows: int = 3, length: int = 17, seed: int = 0
) -> dict[str, torch.Tensor]:
    """Random ids with every row but the first padded: (rows, length)."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, model.config.vocab_size, (rows, length), generator=generator)
    mask = torch.ones_like(ids)
    for row in range(1, rows):
        mask[row, length - 3 * row :] = 0
    ids = ids.masked_fill(mask == 0, model.config.pad_token_id)
    return {"input_ids": ids, "attention_mask": mask}


@torch.no_grad()
def last_hidden(model: transformers.PreTrainedModel, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The last hidden states of the trunk: (batch, length, hidden)."""
    return model(**batch, output_hidden_states=True).hidden_states[-1]
