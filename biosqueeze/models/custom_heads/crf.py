"""A linear-chain conditional random field over the words of a window (Lafferty, McCallum and Pereira 2001)."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from biosqueeze.data.feature_keys import LABELS

# The scores of a CRF start at zero and must reach several units, while an encoder's weights change by thousandths: at
# the encoder's learning rate they would hardly change. A power of two, so that the multiplication is exact.
LEARNING_RATE_FACTOR = 64


class CrfScores(NamedTuple):
    """The scores that a CRF adds to the emissions."""

    transitions: Tensor  # (labels, labels) from the row's label to the column's
    start: Tensor  # (labels,) of the first word
    end: Tensor  # (labels,) of the last word


class Crf(nn.Module):
    """The transition scores between labels. Before training they are zero, and the tagger is a linear one.

    The parameters are the scores divided by `LEARNING_RATE_FACTOR`, so that an optimiser whose step size does not
    depend on the size of the gradients (Adam) changes the scores that many times faster than the encoder's weights.
    """

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(labels, labels))
        self.transitions.is_bias = True  # type: ignore[attr-defined] # read by LAMB
        self.start = nn.Parameter(torch.zeros(labels))
        self.end = nn.Parameter(torch.zeros(labels))

    def forward(self, emissions: Tensor, _attention_mask: Tensor, _entities: Tensor | None) -> Tensor:
        """Return the emissions (batch, length, labels) unchanged: the scores enter in the loss and in the decoding."""
        return emissions

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Compute `negative_log_likelihood` of logits (batch, length, labels) and batch["labels"] (batch, length)."""
        return negative_log_likelihood(logits, batch[LABELS], self.scores())

    def scores(self) -> CrfScores:
        """Return the scores: the parameters times `LEARNING_RATE_FACTOR`."""
        scaled: Callable[[Tensor], Tensor] = _ScaledForward.apply
        return CrfScores(scaled(self.transitions), scaled(self.start), scaled(self.end))

    def saved_scores(self) -> dict[str, Tensor]:
        """Return the scores by name, to be written to a file."""
        return {name: tensor.detach().contiguous() for name, tensor in self.scores()._asdict().items()}

    def load_scores(self, tensors: Mapping[str, Tensor]) -> None:
        """Set the parameters from `saved_scores`."""
        self.load_state_dict({name: tensor / LEARNING_RATE_FACTOR for name, tensor in tensors.items()})


class _ScaledForward(torch.autograd.Function):
    """Multiply by `LEARNING_RATE_FACTOR`, with the gradient unscaled, so that clipping sees no larger gradient norm."""

    @staticmethod
    def forward(_ctx: Any, parameter: Tensor) -> Tensor:
        return parameter * LEARNING_RATE_FACTOR

    @staticmethod
    def backward(_ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


def negative_log_likelihood(emissions: Tensor, labels: Tensor, scores: CrfScores) -> Tensor:
    """Compute the mean over labelled tokens of -log p(labels | emissions), with one chain of labelled tokens per row.

    p(y | x) = exp(start[y1] + sum of emissions[t, yt] + sum of transitions[yt-1, yt] + end[yT]) / Z(x), with Z(x) the
    sum over all label sequences by the forward algorithm (Lafferty et al. 2001, equations 1 and 2). Tokens without a
    label, padding above all, contribute nothing, whatever their emissions are.

    Args:
        emissions: (batch, length, labels).
        labels: (batch, length), an id, or negative for an unlabelled token.
        scores: of the CRF.

    Returns:
        scalar; 0 where no token has a label.
    """
    rows = (labels >= 0).any(dim=1)
    if not rows.any():
        return sum((0.0 * score.sum() for score in scores), start=emissions.sum() * 0.0)
    chain, tags, real = _left_aligned(emissions[rows], labels[rows])
    total = _log_partition(chain, real, scores).sum() - _path_score(chain, tags, real, scores)
    return total / real.sum()


def _left_aligned(emissions: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Move the labelled tokens of each row to its front; as many columns as the longest chain has.

    Returns:
        emissions (rows, steps, labels), 0 after the end of a chain; tags (rows, steps), 0 there; and which steps are
        real (rows, steps).
    """
    labelled = labels >= 0  # (rows, length)
    steps = int(labelled.sum(dim=1).max())
    order = (~labelled).long().argsort(dim=1, stable=True)[:, :steps]
    real = labelled.gather(1, order)
    chain = emissions.gather(1, order.unsqueeze(-1).expand(-1, -1, emissions.shape[-1]))
    return chain.masked_fill(~real.unsqueeze(-1), 0.0), labels.gather(1, order).clamp(min=0), real


def _log_partition(chain: Tensor, real: Tensor, scores: CrfScores) -> Tensor:
    """Compute log Z of each row by the forward algorithm: (rows,)."""
    forward = scores.start + chain[:, 0]  # (rows, labels) log-sum-exp over all prefixes that end in the label
    for step in range(1, chain.shape[1]):
        extended = (forward.unsqueeze(2) + scores.transitions).logsumexp(dim=1) + chain[:, step]
        forward = torch.where(real[:, step, None], extended, forward)
    return (forward + scores.end).logsumexp(dim=1)


def _path_score(chain: Tensor, tags: Tensor, real: Tensor, scores: CrfScores) -> Tensor:
    """Compute the unnormalised log score of the gold tags, summed over all rows: scalar.

    It is linear in the scores, so they are multiplied by how often each occurs: exact, and with a deterministic
    gradient, which that of an indexed sum on several threads is not.
    """
    labels = len(scores.start)
    last = tags.gather(1, real.sum(dim=1, keepdim=True) - 1).squeeze(1)
    moves = (tags[:, :-1] * labels + tags[:, 1:])[real[:, 1:]]
    emitted = chain.gather(2, tags.unsqueeze(-1)).sum()  # 0 after the end of a chain
    counts = (moves.bincount(minlength=labels * labels).view(labels, labels), *_end_counts(tags[:, 0], last, labels))
    return emitted + torch.stack([(n * score).sum() for n, score in zip(counts, scores, strict=True)]).sum()


def _end_counts(first: Tensor, last: Tensor, labels: int) -> tuple[Tensor, Tensor]:
    """Count the rows that begin, and the rows that end, with each label: (labels,) each."""
    return first.bincount(minlength=labels), last.bincount(minlength=labels)
