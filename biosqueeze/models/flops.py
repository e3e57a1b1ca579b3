"""Floating-point operations of a model, from its shape.

A matrix product of (m, k) and (k, n) has 2 m k n operations. The forward pass has 2 per weight of linear layers and
convolutions (DeBERTa-v2-xlarge has one) and position, attention 4 x width x length per position and layer (scores and
weighted sum), and the vocabulary projection is computed at the masked positions alone. DeBERTa projects its relative
positions in every layer, and multiplies them with the queries and keys. The backward pass has twice as many (Kaplan et
al. 2020, section 2.1; Hoffmann et al. 2022, appendix F).
Embedding look-ups, layer norms and activations are not counted, nor is what Longformer's windows save; one token has
its queries of global attention.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import nn
from transformers import PreTrainedModel

from biosqueeze.models.families import family_of
from biosqueeze.models.heads import classifies_sequences

_PER_SEQUENCE = ("pooler", "seq_relationship", "sop_classifier")
_PER_POSITION = ("discriminator_predictions",)
_HEADS_ON_MASKED = ("mlm", "pretraining")


class Work(NamedTuple):
    """What a model computes, of one sequence."""

    length: int  # positions, padding included
    masked: float  # positions that are predicted
    paired: bool = False  # whether a loss reads the first token, or the mean of all


def training_flops(model: PreTrainedModel, work: Work) -> float:
    """Return the operations of forward and backward passes over one sequence.

    Args:
        model: with its head; its weights need no storage.
        work: what is computed.
    """
    return 3 * forward_flops(model, work)


def forward_flops(model: PreTrainedModel, work: Work) -> float:
    """Return the operations of the forward pass over one sequence."""
    attention = _attention_flops(model, work.length) + _relative_position_flops(model, work.length)
    return sum(_product_flops(model, work)) + attention


def _product_flops(model: PreTrainedModel, work: Work) -> Iterator[float]:
    family = family_of(model.config)
    of_positions = [family.position_key, family.position_query]
    of_global_tokens = [] if _has_global_tokens(model) else family.extra_projections
    left_out = tuple(f".{path}" for path in (*of_positions, *of_global_tokens) if path)
    for name, module in model.named_modules():
        if not isinstance(module, nn.Linear | nn.Conv1d) or name.endswith(left_out):
            continue
        yield 2 * module.weight.numel() * _positions(model, name, work) * _repeats(model, name)


def _has_global_tokens(model: PreTrainedModel) -> bool:
    """Return whether a Longformer's head has some tokens attend globally: the first, or those of a question."""
    return classifies_sequences(model) or type(model).__name__.endswith("ForQuestionAnswering")


def _positions(model: PreTrainedModel, name: str, work: Work) -> float:
    """Return the number of positions that a module is computed at."""
    if any(part in _PER_SEQUENCE for part in name.split(".")):
        return float(work.paired)
    if name.endswith(family_of(model.config).extra_projections[:1]):
        return 1.0
    if name.startswith((f"{model.base_model_prefix}.", *_PER_POSITION)):
        return float(work.length)
    if classifies_sequences(model):
        return float(work.paired)
    head = family_of(model.config).head_of(type(model).__name__)
    return work.masked if head in _HEADS_ON_MASKED else float(work.length)


def _attention_flops(model: PreTrainedModel, length: int) -> float:
    family = family_of(model.config)
    parts = 3 if family.fuses_projections else 1  # queries, keys and values
    layers = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and f".{name}".endswith(f".{family.query}")
    ]
    return sum(4 * module.out_features / parts * length**2 * _repeats(model, name) for name, module in layers)


def _relative_position_flops(model: PreTrainedModel, length: int) -> float:
    """Return the operations of DeBERTa's relative positions (He et al. 2021, equation 4), in a batch of one sequence.

    Their embeddings are projected once in a batch; of each kind of attention between content and position, every
    position is multiplied with every relative position.
    """
    config: Any = model.config
    if not (family_of(config).attention_bias and config.relative_attention):
        return 0.0
    rows, hidden = 2 * _relative_positions(config), config.hidden_size
    kinds = len(config.pos_att_type or ())
    projections = 2 if getattr(config, "share_att_key", False) else kinds
    each = 2 * hidden * hidden * rows * projections + 2 * length * rows * hidden * kinds
    return float(config.num_hidden_layers * each)


def _relative_positions(config: Any) -> int:
    """Return the distances in one direction that a DeBERTa has an embedding of."""
    buckets = getattr(config, "position_buckets", -1)
    sizes = (buckets, config.max_relative_positions, config.max_position_embeddings)
    return int(next(size for size in sizes if size > 0))


def _repeats(model: PreTrainedModel, name: str) -> float:
    """Return how often a module runs in a forward pass: ALBERT's layers share their weights."""
    family = family_of(model.config)
    if not (family.shares_layers and f".{family.layers}." in f".{name}"):
        return 1.0
    config = model.config
    return float(config.num_hidden_layers / config.num_hidden_groups)
