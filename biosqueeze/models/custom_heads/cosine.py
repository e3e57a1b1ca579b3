"""Similarity of two texts: encode each alone, and compare the mean hidden states by their cosine (Sentence-BERT)."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class CosineHead(nn.Module):
    """The cosine of the mean hidden states of two texts, scaled to the range of the scores in train.

    Reimers and Gurevych 2019 (Sentence-BERT, section 3): mean pooling, and a regression of the cosine by its squared
    error. The head has no parameters: an encoder that was trained for similarity needs few pairs or none.
    """

    low: Tensor
    high: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("low", torch.tensor(0.0))
        self.register_buffer("high", torch.tensor(1.0))

    def set_range(self, low: float, high: float) -> None:
        """Set the scores for cosines of 0 and of 1."""
        self.low.fill_(low)
        self.high.fill_(high)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Return scores (batch, 1) from mean hidden states (batch, hidden) each."""
        cosine = functional.cosine_similarity(first.float(), second.float()).unsqueeze(-1)
        return self.low + (self.high - self.low) * cosine


def select_text(input_ids: Tensor, selected: Tensor, padding: int) -> tuple[Tensor, Tensor]:
    """Return one of the texts of each row, left-aligned and padded.

    Args:
        input_ids: (batch, length).
        selected: bool (batch, length), True on the pieces of that text and its special tokens.
        padding: id of the pad token.

    Returns:
        ids and attention mask, int64 (batch, longest such text) each.
    """
    longest = int(selected.sum(dim=1).max())
    order = selected.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :longest]
    mask = selected.gather(1, order)
    return input_ids.gather(1, order).masked_fill(~mask, padding), mask.long()


def mean_state(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over unmasked tokens: hidden (batch, length, hidden), mask (batch, length) -> (batch, hidden)."""
    weights = mask.to(hidden.dtype) / mask.sum(dim=1, keepdim=True)
    return torch.einsum("bl,blh->bh", weights, hidden)
