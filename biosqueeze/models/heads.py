"""Outputs of model heads, and the vocabulary projection of selected rows only."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from biosqueeze.models.families import family_of


def main_output(output: Any) -> Tensor:
    """Return a model's main output tensor: logits, the two of a span head stacked, or the last hidden states.

    Returns:
        (batch, length, labels); (batch, labels) of a sequence classifier; (batch, length, 2) of a span head, starts
        first; (batch, length, hidden) of an encoder without a head.
    """
    if "start_logits" in output:
        return torch.stack([output.start_logits, output.end_logits], dim=-1)
    first: Tensor = output[0]
    return first


def classifies_sequences(model: PreTrainedModel) -> bool:
    """Return whether a classifier has one row for each sequence, and not the mean of one for each position."""
    head = family_of(model.config).head_of(type(model).__name__)
    return head == "sequence-classification" and getattr(model.config, "classifier_pooling", None) != "late"


def mlm_logits(model: PreTrainedModel, hidden: Tensor) -> Tensor:
    """Compute logits over the vocabulary from last hidden states: (rows, hidden) -> (rows, vocabulary).

    Applying the head to the masked rows only saves the projection of all others, most of a small student's work.

    Raises:
        SqueezeError: the model's family is not supported.
    """
    published: Any = getattr(model, "lm_predictions", None)  # DeBERTa-v2's head reads the embeddings themselves
    if published is not None:
        logits: Tensor = published(hidden, model.get_input_embeddings())
        return logits
    family = family_of(model.config)
    modules: list[Any] = [model.get_submodule(path) for path in family.mlm_head]
    if family.has_bottleneck:
        return _two_part_logits(modules[0], hidden)
    for module in modules:
        hidden = module(hidden)
    return hidden


def decoder_inputs(model: PreTrainedModel, hidden: Tensor) -> tuple[Tensor, nn.Linear]:
    """Run the masked-language-model head up to its last map, to the vocabulary; return (rows, width) and this map.

    Args:
        model: of a family whose head ends with one affine map, so not MobileBERT.
        hidden: (rows, hidden).
    """
    decoder: Any = model.get_output_embeddings()
    decoder.forward = lambda inputs: inputs
    try:
        return mlm_logits(model, hidden), decoder
    finally:
        del decoder.forward


def pair_logits(model: PreTrainedModel, pooled: Tensor) -> Tensor:
    """Compute the two logits of a pair of texts from the pooled first token: (batch, hidden) -> (batch, 2).

    Args:
        model: BERT, MobileBERT or ALBERT with its own pretraining head (`ForPreTraining`).
        pooled: the pooler's output.
    """
    parts: Any = model
    logits: Tensor = (
        parts.sop_classifier(pooled) if hasattr(parts, "sop_classifier") else parts.cls.seq_relationship(pooled)
    )
    return logits


def vocabulary_parameters(model: PreTrainedModel) -> list[nn.Parameter]:
    """Return the trained parameters that the vocabulary's logits depend on: the head's own and the tied embedding."""
    encoder = {id(parameter) for parameter in model.base_model.parameters()}
    own = [parameter for parameter in model.parameters() if id(parameter) not in encoder]
    reads_embedding = getattr(model, "lm_predictions", None) is not None  # see `mlm_logits`
    output: Any = model.get_input_embeddings() if reads_embedding else model.get_output_embeddings()
    tied = [output.weight] if output is not None and id(output.weight) in encoder else []
    return [parameter for parameter in (*own, *tied) if parameter.requires_grad]


def _two_part_logits(head: Any, hidden: Tensor) -> Tensor:
    """Compute MobileBERT's logits: its embeddings are narrower than its layers, so a second matrix extends them.

    transformers concatenates the two matrices in every call, which for few rows takes longer than all the rest.
    """
    states = head.transform(hidden)  # (rows, hidden)
    tied, extra = states.split([head.decoder.in_features, head.dense.out_features], dim=-1)
    return torch.addmm(head.decoder(tied), extra, head.dense.weight)
