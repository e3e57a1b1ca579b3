"""Chunked sums and gradients equal those of all rows at once."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from biosqueeze.training.chunked_loss import ChunkedTerms, chunk_rows, sum_in_chunks

ROWS, WIDTH, CLASSES = 23, 8, 50
WEIGHTS = (2.0, 5.0)


@pytest.fixture
def head() -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(WIDTH, CLASSES)


def sums_of(head: torch.nn.Linear, labels: torch.Tensor):
    def sums(hidden: torch.Tensor, part: slice) -> torch.Tensor:
        logits = head(hidden)
        return torch.stack([cross_entropy(logits, labels[part], reduction="sum"), logits.square().mean(dim=1).sum()])

    return sums


def gradients(head: torch.nn.Linear, rows: int, weights: tuple[float, ...] = WEIGHTS) -> list[torch.Tensor]:
    torch.manual_seed(1)
    hidden = torch.randn(ROWS, WIDTH, requires_grad=True)
    labels = torch.randint(CLASSES, (ROWS,))
    head.zero_grad()
    sums = sum_in_chunks(ChunkedTerms(sums_of(head, labels), WEIGHTS, rows), hidden, list(head.parameters()))
    (torch.tensor(weights) * sums / 7).sum().backward()
    return [sums.detach(), hidden.grad, head.weight.grad, head.bias.grad]


@pytest.mark.parametrize("rows", [1, 4, 22, 23])
def test_chunks_equal_whole(head: torch.nn.Linear, rows: int) -> None:
    for chunked, whole in zip(gradients(head, rows), gradients(head, 1000), strict=True):
        assert torch.allclose(chunked, whole, rtol=1e-5, atol=1e-6)


def test_other_weights_in_backward_raise(head: torch.nn.Linear) -> None:
    with pytest.raises(ValueError, match="ratio of the weights"):
        gradients(head, 4, weights=(2.0, 1.0))


def test_no_graph_without_gradients(head: torch.nn.Linear) -> None:
    labels = torch.randint(CLASSES, (ROWS,))
    with torch.no_grad():
        sums = sum_in_chunks(
            ChunkedTerms(sums_of(head, labels), WEIGHTS, 4), torch.randn(ROWS, WIDTH), list(head.parameters())
        )
    assert not sums.requires_grad


@pytest.mark.parametrize(("classes", "rows"), [(30_522, 1024), (65_536, 1024), (250_002, 268), (1 << 40, 1)])
def test_many_classes_have_smaller_chunks(classes: int, rows: int) -> None:
    assert chunk_rows(classes) == rows
