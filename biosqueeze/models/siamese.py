"""Two texts read apart by one encoder, and compared by the cosine of their mean states (Sentence-BERT)."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class CosineHead(nn.Module):
    """The cosine of two texts' mean states, stretched to the range of the scores in train.

    Reimers and Gurevych 2019 (Sentence-BERT, section 3): mean pooling, and a regression of the cosine by its squared
    error. There is nothing to learn in it: an encoder that was trained for similarity needs few pairs or none.
    """

    low: Tensor
    high: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("low", torch.tensor(0.0))
        self.register_buffer("high", torch.tensor(1.0))

    def stretch(self, low: float, high: float) -> None:
        """Set the scores that cosines of 0 and of 1 stand for."""
        self.low.fill_(low)
        self.high.fill_(high)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Scores (batch, 1) of mean states (batch, hidden) each."""
        cosine = functional.cosine_similarity(first.float(), second.float()).unsqueeze(-1)
        return self.low + (self.high - self.low) * cosine


def one_text(input_ids: Tensor, own: Tensor, padding: int) -> tuple[Tensor, Tensor]:
    """One of the texts of each row, moved to the left.

    Args:
        input_ids: (batch, length).
        own: bool (batch, length), the pieces of that text with its special tokens.
        padding: id of the pad token.

    Returns:
        ids and attention mask, int64 (batch, longest such text) each.
    """
    longest = int(own.sum(dim=1).max())
    order = own.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :longest]
    mask = own.gather(1, order)
    return input_ids.gather(1, order).masked_fill(~mask, padding), mask.long()


def mean_state(hidden: Tensor, mask: Tensor) -> Tensor:
    """The mean over real tokens: hidden (batch, length, hidden), mask (batch, length) -> (batch, hidden)."""
    share = mask.to(hidden.dtype) / mask.sum(dim=1, keepdim=True)
    return torch.einsum("bl,blh->bh", share, hidden)
