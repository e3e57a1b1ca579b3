"""A stock encoder with a custom head: a CRF or a BiLSTM over words, a relation from two mentions, or a cosine.

The encoder is saved as a stock model, which AutoModel loads completely; the head is saved beside it in
head.safetensors.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import TokenClassifierOutput

from biosqueeze.model_facts import HEAD_FILE, HEAD_MARK
from biosqueeze.models.custom_heads.cosine import CosineHead, stack_texts
from biosqueeze.models.custom_heads.crf import Crf
from biosqueeze.models.custom_heads.specs import HEAD_SPECS
from biosqueeze.models.longformer import global_tokens

Loss = Callable[[Tensor, Mapping[str, Tensor]], Tensor]


class HeadedEncoder(nn.Module):
    """A stock encoder with a custom head, with the interface of a transformers model."""

    def __init__(self, encoder: PreTrainedModel, name: str, labels: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.name = name
        self.extra_inputs = HEAD_SPECS[name].extra_inputs
        self.head: Any = HEAD_SPECS[name].build(encoder.config, labels)

    @property
    def config(self) -> PreTrainedConfig:
        """The encoder's config."""
        config: PreTrainedConfig = self.encoder.config
        return config

    @property
    def base_model(self) -> nn.Module:
        """The encoder without any head."""
        base: nn.Module = self.encoder.base_model
        return base

    def forward(self, *, entities: Tensor | None = None, **inputs: Tensor) -> TokenClassifierOutput:
        """Compute logits: (batch, length, labels) of a tagger, (batch, labels) of a relation or a similarity.

        Args:
            entities: (batch, length), if it is one of the head's extra inputs. A cosine head takes batches as of
                `as_texts` too, without it.
            inputs: the encoder's, (batch, length) each.
        """
        if isinstance(self.head, CosineHead) and entities is not None:
            inputs, entities = self.as_texts({**inputs, "entities": entities}), None
        if entities is not None and self.config.model_type == "longformer":
            inputs["global_attention_mask"] = global_tokens(entities)
        hidden = self.encoder(**inputs)[0]  # (batch, length, hidden), or the emissions of a CRF
        return TokenClassifierOutput(logits=self.head(hidden, inputs["attention_mask"], entities))

    def as_texts(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return a batch as the encoder reads it: with a cosine head one row for each text, see `stack_texts`."""
        if not isinstance(self.head, CosineHead):
            return dict(batch)
        return stack_texts(batch, self.config.pad_token_id or 0)

    @property
    def supports_gradient_checkpointing(self) -> bool:
        """Whether the encoder's activations can be recomputed in the backward pass."""
        return bool(self.encoder.supports_gradient_checkpointing)

    def gradient_checkpointing_enable(self, arguments: dict[str, Any]) -> None:
        """Recompute the encoder's activations in the backward pass."""
        # transformers 5.2x renamed it, and warns about the older name.
        current: Any = getattr(self.encoder, "activation_checkpointing_enable", None)
        (current or self.encoder.gradient_checkpointing_enable)(arguments)

    def get_input_embeddings(self) -> nn.Module:
        """Return the encoder's word embedding."""
        embedding: nn.Module = self.encoder.get_input_embeddings()
        return embedding

    def _init_weights(self, module: nn.Module) -> None:
        """Initialise a part of the encoder randomly, as transformers does."""
        initialise: Any = self.encoder._init_weights
        initialise(module)

    def save_pretrained(self, directory: Path) -> None:
        """Write the encoder as a stock model, and the head beside it."""
        self.encoder.save_pretrained(directory)
        tensors = self.head.saved_scores() if isinstance(self.head, Crf) else self.head.state_dict()
        # A single metadata entry: several are written in random order, which would change the file's hash.
        save_file(tensors, directory / HEAD_FILE, {HEAD_MARK: self.name})


def head_loss(model: PreTrainedModel | HeadedEncoder) -> Loss | None:
    """Return the head's own loss; None where the loss of the output type applies."""
    head = model.head if isinstance(model, HeadedEncoder) else None
    return head.loss if isinstance(head, Crf) else None
