"""Relation classification from the hidden states of the two entities."""

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from biosqueeze.models.custom_heads.classifier import classifier_dropout, new_linear
from biosqueeze.tasks.encoding.entities import FIRST, SECOND


class MentionHead(nn.Module):
    """A linear layer over the concatenated representations of the two entities (the PubMedBERT study's table 12).

    "mentions" represents an entity by the maximum of its pieces' last hidden states in each dimension (section 6.5
    pools by the maximum; zeros where it has no piece in this window). "entity-starts" takes the last hidden state of
    its first piece, which is its opening marker.
    """

    def __init__(self, config: PreTrainedConfig, labels: int, *, starts: bool) -> None:
        super().__init__()
        self.starts = starts
        self.dropout = classifier_dropout(config, "seq_classif_dropout")
        self.classifier = new_linear(config, 2 * config.hidden_size, labels)

    def forward(self, hidden: Tensor, _attention_mask: Tensor, entities: Tensor) -> Tensor:
        """Compute logits (batch, labels).

        Args:
            hidden: (batch, length, hidden).
            entities: (batch, length), the bits of `tasks.encoding.entities` on each entity's pieces; 0 on padding.
        """
        pair = [self._represent(hidden, entities.bitwise_and(bit) != 0) for bit in (FIRST, SECOND)]
        logits: Tensor = self.classifier(self.dropout(torch.cat(pair, dim=-1)))  # (batch, 2 x hidden) before
        return logits

    def _represent(self, hidden: Tensor, pieces: Tensor) -> Tensor:
        """Represent one entity: hidden (batch, length, hidden) and its pieces (batch, length) -> (batch, hidden)."""
        if self.starts:
            pieces = pieces & (pieces.cumsum(dim=1) == 1)
        selected = pieces.unsqueeze(-1)  # (batch, length, 1)
        highest = hidden.masked_fill(~selected, torch.finfo(hidden.dtype).min).amax(dim=1)
        return torch.where(selected.any(dim=1), highest, 0.0)
