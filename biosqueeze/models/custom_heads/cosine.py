"""Similarity of two texts: encode each alone, and compare the mean hidden states by their cosine (Sentence-BERT)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from biosqueeze.data.feature_keys import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS
from biosqueeze.tasks.encoding.entities import FIRST, SECOND


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

    def forward(self, hidden: Tensor, attention_mask: Tensor, _entities: Tensor | None = None) -> Tensor:
        """Return scores (pairs, 1) from hidden states (2 x pairs, length, hidden) in the order of `stack_texts`."""
        first, second = mean_state(hidden, attention_mask).float().chunk(2)
        cosine = functional.cosine_similarity(first, second).unsqueeze(-1)
        return self.low + (self.high - self.low) * cosine


def stack_texts(batch: Mapping[str, Tensor], padding: int) -> dict[str, Tensor]:
    """Return a batch of pairs of texts as a batch of texts: all first ones, and then all second ones.

    Args:
        batch: `input_ids` and `entities` (pairs, length), FIRST or SECOND on the tokens of each text, with its special
            tokens; a batch without `entities` is returned as it is.
        padding: id of the pad token.

    Returns:
        `input_ids` and `attention_mask` (2 x pairs, longest text), left-aligned, and what the batch has for each pair.
    """
    if "entities" not in batch:
        return dict(batch)
    entities = batch["entities"]
    selected = torch.cat([entities.bitwise_and(bit) != 0 for bit in (FIRST, SECOND)])  # (2 x pairs, length)
    longest = int(selected.sum(dim=1).max())
    order = selected.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :longest]
    mask = selected.gather(1, order)
    ids = batch[INPUT_IDS].repeat(2, 1).gather(1, order).masked_fill(~mask, padding)
    of_tokens = (INPUT_IDS, ATTENTION_MASK, TOKEN_TYPE_IDS, "entities")
    rest = {name: tensor for name, tensor in batch.items() if name not in of_tokens}
    return rest | {INPUT_IDS: ids, ATTENTION_MASK: mask.long()}


def mean_state(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over unmasked tokens: hidden (batch, length, hidden), mask (batch, length) -> (batch, hidden)."""
    weights = mask.to(hidden.dtype) / mask.sum(dim=1, keepdim=True)
    return torch.einsum("bl,blh->bh", weights, hidden)
