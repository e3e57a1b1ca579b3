"""A linear-chain conditional random field over the words of a window (Lafferty, McCallum and Pereira 2001)."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from biosqueeze.data.feature_keys import LABELS

# A CRF's few scores start at zero and must reach several units, where an encoder's weights move by thousandths: at the
# encoder's learning rate they would stay where they are. A power of two, so that multiplying by it is exact.
FASTER = 64


class Scores(NamedTuple):
    """What a CRF adds to the emissions."""

    transitions: Tensor  # (labels, labels) from the row's label to the column's
    start: Tensor  # (labels,) of the first word
    end: Tensor  # (labels,) of the last word


class Crf(nn.Module):
    """The scores between tags. Without training they are zero, and the tagger is a linear one.

    Parameters are held divided by `FASTER`, so that an optimiser whose steps do not depend on the size of gradients
    (Adam) moves the scores so many times faster than the encoder's weights.
    """

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(labels, labels))
        self.start = nn.Parameter(torch.zeros(labels))
        self.end = nn.Parameter(torch.zeros(labels))

    def forward(self, emissions: Tensor, _attention_mask: Tensor, _entities: Tensor | None) -> Tensor:
        """The emissions (batch, length, labels) as they are: the chain is in the loss and in the decoding."""
        return emissions

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """See `negative_log_likelihood`: logits (batch, length, labels), labels (batch, length)."""
        return negative_log_likelihood(logits, batch[LABELS], self.scores())

    def scores(self) -> Scores:
        """The scores that the parameters stand for."""
        faster: Callable[[Tensor], Tensor] = _Faster.apply
        return Scores(faster(self.transitions), faster(self.start), faster(self.end))

    def to_save(self) -> dict[str, Tensor]:
        """The scores by name, for a file."""
        return {name: tensor.detach().contiguous() for name, tensor in self.scores()._asdict().items()}

    def fill(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `to_save` gave."""
        self.load_state_dict({name: tensor / FASTER for name, tensor in tensors.items()})


class _Faster(torch.autograd.Function):
    """Multiply by `FASTER`, but hand the gradient on as it is: clipping by the norm then sees no larger gradients."""

    @staticmethod
    def forward(_ctx: Any, parameter: Tensor) -> Tensor:
        return parameter * FASTER

    @staticmethod
    def backward(_ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


def negative_log_likelihood(emissions: Tensor, labels: Tensor, scores: Scores) -> Tensor:
    """Mean over the scored tokens of -log p(tags | words), the chain of a window being its tokens with a label.

    p(y | x) = exp(start[y1] + sum of emissions[t, yt] + sum of transitions[yt-1, yt] + end[yT]) / Z(x), with Z(x) the
    sum over all tag sequences by the forward algorithm (Lafferty et al. 2001, equations 1 and 2). All the rest of a
    window, padding above all, contributes nothing, whatever it holds.

    Args:
        emissions: (batch, length, labels).
        labels: (batch, length), an id, or negative where nothing is asked.
        scores: of the chain.

    Returns:
        scalar; 0 where no token has a label.
    """
    rows = (labels >= 0).any(dim=1)
    if not rows.any():
        return sum((0.0 * score.sum() for score in scores), start=emissions.sum() * 0.0)
    chain, tags, real = _chains(emissions[rows], labels[rows])
    total = _log_partition(chain, real, scores).sum() - _path_score(chain, tags, real, scores)
    return total / real.sum()


def _chains(emissions: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The scored tokens of each row moved to its front, as many columns as the longest chain has.

    Returns:
        emissions (rows, steps, labels), 0 beyond a chain's end; tags (rows, steps), 0 there; and which steps are real
        (rows, steps).
    """
    scored = labels >= 0  # (rows, length)
    steps = int(scored.sum(dim=1).max())
    order = (~scored).long().argsort(dim=1, stable=True)[:, :steps]
    real = scored.gather(1, order)
    chain = emissions.gather(1, order.unsqueeze(-1).expand(-1, -1, emissions.shape[-1]))
    return chain.masked_fill(~real.unsqueeze(-1), 0.0), labels.gather(1, order).clamp(min=0), real


def _log_partition(chain: Tensor, real: Tensor, scores: Scores) -> Tensor:
    """Log Z of each row by the forward algorithm: (rows,)."""
    ahead = scores.start + chain[:, 0]  # (rows, labels) log sum over all beginnings that end in the label
    for step in range(1, chain.shape[1]):
        longer = (ahead.unsqueeze(2) + scores.transitions).logsumexp(dim=1) + chain[:, step]
        ahead = torch.where(real[:, step, None], longer, ahead)
    return (ahead + scores.end).logsumexp(dim=1)


def _path_score(chain: Tensor, tags: Tensor, real: Tensor, scores: Scores) -> Tensor:
    """The unnormalised log score of the true tags, summed over all rows: scalar.

    It is linear in the scores, so they are multiplied with how often each occurs: exact, and the gradient is the same
    in every run, which that of an indexed sum on several threads is not.
    """
    labels = len(scores.start)
    last = tags.gather(1, real.sum(dim=1, keepdim=True) - 1).squeeze(1)
    moves = (tags[:, :-1] * labels + tags[:, 1:])[real[:, 1:]]
    emitted = chain.gather(2, tags.unsqueeze(-1)).sum()  # beyond a chain's end these are 0
    counts = (moves.bincount(minlength=labels * labels).view(labels, labels), *_ends(tags[:, 0], last, labels))
    return emitted + torch.stack([(n * score).sum() for n, score in zip(counts, scores, strict=True)]).sum()


def _ends(first: Tensor, last: Tensor, labels: int) -> tuple[Tensor, Tensor]:
    """How many rows begin and end with each label: (labels,) each."""
    return first.bincount(minlength=labels), last.bincount(minlength=labels)
