"""Replaced-token detection: the model finds tokens that a small generator filled in (Clark et al. 2020, ELECTRA).

The generator is trained by masked language modelling; tokens drawn from its predictions replace the masked ones, and
the discriminator, which is the model that results, predicts for every token whether it was replaced. The loss is that
of the generator and 50 times that of the discriminator (section 2). No gradient flows through the drawn tokens.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.checkpoint_files import GENERATOR
from biosqueeze.data.feature_keys import ATTENTION_MASK, INPUT_IDS, LABELS
from biosqueeze.errors import UsageError
from biosqueeze.models.families import family_of
from biosqueeze.models.fast_training.fast_layers import encode_rows
from biosqueeze.models.full_precision import full
from biosqueeze.models.heads import mlm_logits
from biosqueeze.models.inputs import model_inputs
from biosqueeze.models.loading.load import load_config, load_model, new_model, skeleton
from biosqueeze.pretraining.learner import WORD_INDEX, PretrainingLearner, Sums, whole_words
from biosqueeze.pretraining.masked_loss import masked_loss


@dataclass(frozen=True)
class Replaced:
    """A batch in which drawn tokens are in the places of the masked ones."""

    input_ids: Tensor  # (batch, length)
    is_replaced: Tensor  # (batch, length) bool; a drawn token that equals the original is not replaced

    @classmethod
    def of(cls, batch: Mapping[str, Tensor], drawn: Tensor) -> "Replaced":
        """Put the drawn tokens, (masked tokens,) in the order of the batch, in place."""
        masked = batch[LABELS] >= 0
        original = torch.where(masked, batch[LABELS], batch[INPUT_IDS])
        ids = original.masked_scatter(masked, drawn)
        return cls(ids, ids != original)


class ReplacedTokenLearner(PretrainingLearner):
    """ELECTRA's discriminator (`model`) and its generator, with the same embeddings.

    As in the authors' code, all of the embeddings are shared: of tokens, positions and token types, and their layer
    norm. A matrix leads from their width to the generator's narrower layers.
    """

    def __init__(self, model: PreTrainedModel, generator: PreTrainedModel, weight: float = 50.0) -> None:
        """Take a discriminator (ElectraForPreTraining), a generator (ElectraForMaskedLM), and the weight of the first.

        The generator's embeddings are replaced by those of the discriminator.
        """
        super().__init__()
        self.model, self.generator = model, generator
        self.weights = {"mlm": 1.0, "rtd": weight}
        parts: Any = generator
        parts.electra.embeddings = model.base_model.embeddings
        parts.tie_weights()

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, int]:
        """Return the number of masked tokens, and of all tokens without padding."""
        return {"mlm": int((batch[LABELS] >= 0).sum()), "rtd": int(batch[ATTENTION_MASK].sum())}

    def encoders(self) -> tuple[Any, ...]:
        """Return the discriminator and the generator."""
        return self.model, self.generator

    def forward(self, **batch: Tensor) -> dict[str, Tensor]:
        """Compute `mlm`, the generator's mean cross entropy at the masked tokens, and `rtd`, of all tokens. Scalars."""
        labels = batch[LABELS][batch[LABELS] >= 0]  # (rows,)
        rows = self._generator_rows(batch)  # (rows, hidden)
        drawn = torch.empty_like(labels)

        def draw(probabilities: Tensor, part: slice) -> None:
            drawn[part] = draw_tokens(probabilities)

        loss = masked_loss(self.generator, rows, labels, draw)
        replaced = Replaced.of(batch, drawn)
        detected, targets = self._detection(batch, replaced)
        return {"mlm": loss / max(1, len(labels)), "rtd": detection_losses(detected, targets).mean()}

    def _generator_rows(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the generator's last hidden states of the masked tokens, (rows, hidden)."""
        real, inputs = batch[ATTENTION_MASK].bool(), model_inputs(self.generator, batch)
        return encode_rows(self.generator, inputs, real, batch[LABELS] >= 0).rows

    def _detection(self, batch: Mapping[str, Tensor], replaced: Replaced) -> tuple[Tensor, Tensor]:
        """Return the discriminator's logits of all tokens without padding, and which are replaced, (tokens,) each.

        A logit is positive where a token seems replaced.
        """
        inputs = model_inputs(self.model, {**batch, INPUT_IDS: replaced.input_ids})
        parts: Any = self.model
        real = batch[ATTENTION_MASK].bool()
        states = encode_rows(self.model, inputs, real, real).rows
        return parts.discriminator_predictions(states), replaced.is_replaced[real]

    @torch.no_grad()
    def held_out_sums(self, batch: Mapping[str, Tensor]) -> Sums:
        """Sum both losses, the words that the generator predicts, and the tokens that the discriminator classifies.

        `found` is the share of the replaced tokens that are found. The same tokens are drawn at every evaluation, as
        far as the generator's predictions are the same.
        """
        masked = batch[LABELS] >= 0
        labels = batch[LABELS][masked]
        logits = full(mlm_logits(self.generator, self._generator_rows(batch)))  # (rows, vocabulary)
        drawn = draw_tokens(logits.softmax(dim=-1), torch.Generator(logits.device).manual_seed(0))
        replaced = Replaced.of(batch, drawn)
        detected, targets = self._detection(batch, replaced)
        losses = detection_losses(detected, targets)  # (tokens,)
        right = (detected > 0) == targets  # (tokens,)
        loss = functional.cross_entropy(logits, labels, reduction="sum") if len(labels) else 0.0
        found = right[targets]
        return {
            "mlm": (float(loss), len(labels)),
            "word_accuracy": whole_words(logits.argmax(dim=-1) == labels, batch[WORD_INDEX][masked]),
            "rtd": (float(losses.sum()), len(losses)),
            "rtd_accuracy": (int(right.sum()), len(right)),
            "found": (int(found.sum()), len(found)),
        }

    def save(self, directory: Path) -> tuple[Path, ...]:
        """Write the discriminator, and the generator into a folder of its own; return both for their tokenizers."""
        self.model.save_pretrained(directory)
        self.generator.save_pretrained(directory / GENERATOR)
        return directory, directory / GENERATOR


def detection_losses(logits: Tensor, is_replaced: Tensor) -> Tensor:
    """Compute the binary cross entropy of each token (Clark et al. 2020, equation of L_Disc).

    Args:
        logits: of the tokens without padding, (tokens,).
        is_replaced: bool (tokens,).

    Returns:
        (tokens,)
    """
    logits = full(logits)
    return functional.binary_cross_entropy_with_logits(logits, is_replaced.to(logits.dtype), reduction="none")


def draw_tokens(probabilities: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draw a token of each row, by one uniform number and the cumulative distribution.

    One number per row costs far less than the one per entry of Gumbel noise. Rows are masked tokens, so what is drawn
    does not depend on padding.

    Args:
        probabilities: (rows, vocabulary).
        generator: of random numbers; None: torch's own, whose state is saved with the training.

    Returns:
        (rows,)
    """
    cumulative = probabilities.cumsum(dim=-1)
    uniform = torch.rand(len(cumulative), 1, device=cumulative.device, dtype=cumulative.dtype, generator=generator)
    drawn = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True).squeeze(1)
    return drawn.clamp(max=cumulative.shape[-1] - 1)


def new_generator(model: PreTrainedModel, share: float, seed: int) -> PreTrainedModel:
    """Build a generator with random weights: as deep as the discriminator, and a share of its width.

    Attention heads keep their size, and the FFN its ratio to the hidden size, as in the published generators.

    Args:
        model: the discriminator.
        share: of hidden size, heads and FFN.
        seed: of the weights.
    """
    config = copy.deepcopy(model.config)
    size = config.hidden_size // config.num_attention_heads
    heads = max(1, round(share * config.num_attention_heads))
    config.intermediate_size = max(1, heads * size * config.intermediate_size // config.hidden_size)
    config.num_attention_heads, config.hidden_size = heads, heads * size
    return new_model(config, family_of(config).architecture("mlm"), seed=seed)


def load_generator(checkpoint: Checkpoint, model: PreTrainedModel) -> PreTrainedModel:
    """Load a generator for a discriminator, whose embeddings it will use.

    Raises:
        UsageError: it is no ELECTRA generator, or its embeddings have another shape.
        SqueezeError: it cannot be loaded.
    """
    generator_like(checkpoint, model, meta=True)
    loaded = load_model(checkpoint, "mlm")
    if not loaded.has_head:
        raise _unfit_generator(checkpoint)
    return loaded.model


def generator_like(checkpoint: Checkpoint, model: PreTrainedModel, *, meta: bool) -> PreTrainedModel:
    """Build a generator by config.json alone, without storage (`meta`) or with random weights.

    Raises:
        UsageError: the checkpoint is no ELECTRA, or its embeddings have another shape than the discriminator's.
        SqueezeError: its config.json cannot be used.
    """
    if checkpoint.config.get("model_type") != "electra":
        raise UsageError(f"--generator {checkpoint.name}: it must be an ELECTRA generator; give one, or leave it out")
    config = load_config(checkpoint)
    architecture = family_of(config).architecture("mlm")
    generator = skeleton(config, architecture) if meta else new_model(config, architecture, seed=0)
    bases: list[Any] = [model.base_model, generator.base_model]
    shapes = [[tuple(parameter.shape) for parameter in base.embeddings.parameters()] for base in bases]
    if shapes[0] != shapes[1]:
        raise _unfit_generator(checkpoint)
    return generator


def _unfit_generator(checkpoint: Checkpoint) -> UsageError:
    return UsageError(
        f"--generator {checkpoint.name}: it needs a masked-language-model head, and embeddings of the shape of the "
        "model's, which the two share; give the generator that was trained with this model, or leave it out"
    )
