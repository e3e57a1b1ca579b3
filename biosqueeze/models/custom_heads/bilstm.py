"""A BiLSTM tagger over the last hidden states."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import PreTrainedConfig

from biosqueeze.models.custom_heads.classifier import classifier_dropout, new_linear


class BiLstm(nn.Module):
    """One BiLSTM over the last hidden states and a linear layer, as the PubMedBERT study compares (table 10)."""

    def __init__(self, config: PreTrainedConfig, labels: int) -> None:
        super().__init__()
        width = config.hidden_size // 2
        self.lstm = _UnflattenedLstm(config.hidden_size, width, batch_first=True, bidirectional=True)
        self.dropout = classifier_dropout(config)
        self.classifier = new_linear(config, 2 * width, labels)

    def forward(self, hidden: Tensor, attention_mask: Tensor, _entities: Tensor | None) -> Tensor:
        """Compute logits (batch, length, labels) from hidden states (batch, length, hidden); padding is skipped."""
        lengths = attention_mask.sum(dim=1).cpu()
        # In float32 under autocast too: not every device has an LSTM in a lower precision.
        with torch.autocast(hidden.device.type, enabled=False):
            packed = pack_padded_sequence(hidden.float(), lengths, batch_first=True, enforce_sorted=False)
            states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=hidden.shape[1])
        logits: Tensor = self.classifier(self.dropout(states))
        return logits


class _UnflattenedLstm(nn.LSTM):
    """An LSTM with one tensor per weight, not one block of GPU memory, which would be saved as a shared tensor."""

    def flatten_parameters(self) -> None:
        """Do nothing."""
