"""The CRF's loss, gradient, decoding and marginals, against sums and maxima over every path."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from torch import Tensor

from biosqueeze.models.custom_heads.crf import LEARNING_RATE_FACTOR, Crf, CrfScores, negative_log_likelihood
from biosqueeze.tasks.encoding.crf_decoding import marginals, viterbi


def path_scores(emissions: np.ndarray, scores: dict[str, np.ndarray]) -> dict[tuple[int, ...], float]:
    """Compute the score of every path of labels, one by one."""
    words, labels = emissions.shape
    scored = {}
    for path in itertools.product(range(labels), repeat=words):
        total = scores["start"][path[0]] + scores["end"][path[-1]]
        total += sum(emissions[word, label] for word, label in enumerate(path))
        scored[path] = total + sum(scores["transitions"][a, b] for a, b in itertools.pairwise(path))
    return scored


def random_scores(labels: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {"transitions": (labels, labels), "start": labels, "end": labels}
    return {name: 2 * rng.standard_normal(shape) for name, shape in shapes.items()}


def as_tensors(scores: dict[str, np.ndarray]) -> CrfScores:
    return CrfScores(**{name: torch.from_numpy(values).requires_grad_() for name, values in scores.items()})


def ragged(labels: int, lengths: tuple[int, ...], seed: int) -> tuple[Tensor, Tensor]:
    """Random emissions (batch, width, labels), and tags with gaps: -100 on the first, the last, and some in between."""
    rng = np.random.default_rng(seed)
    width = 2 * max(lengths) + 2
    tags = np.full((len(lengths), width), -100)
    for row, length in enumerate(lengths):
        places = np.sort(rng.choice(np.arange(1, width - 1), size=length, replace=False))
        tags[row, places] = rng.integers(0, labels, length)
    return torch.from_numpy(rng.standard_normal((*tags.shape, labels))), torch.from_numpy(tags)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(0, 1000))
def test_loss_is_minus_log_of_the_share_of_all_paths(labels: int, lengths: list[int], seed: int) -> None:
    scores = random_scores(labels, seed)
    emissions, tags = ragged(labels, (*lengths, 1), seed)
    expected = 0.0
    for row, true in zip(emissions.numpy(), tags.numpy(), strict=True):
        if (true >= 0).any():
            paths = path_scores(row[true >= 0], scores)
            expected += logsumexp(list(paths.values())) - paths[tuple(true[true >= 0])]
    loss = negative_log_likelihood(emissions, tags, as_tensors(scores))
    assert loss.item() == pytest.approx(expected / int((tags >= 0).sum()), rel=1e-12, abs=1e-12)


def test_gradient_of_the_loss() -> None:
    emissions, tags = ragged(3, (4, 1, 3, 0), seed=1)
    scores = as_tensors(random_scores(3, seed=1))
    emissions.requires_grad_()

    def loss(emissions: Tensor, *scores: Tensor) -> Tensor:
        return negative_log_likelihood(emissions, tags, CrfScores(*scores))

    assert torch.autograd.gradcheck(loss, (emissions, *scores))


@pytest.mark.parametrize("padding", [0.0, 1e30, float("inf"), float("nan")])
def test_unlabelled_tokens_contribute_exactly_nothing(padding: float) -> None:
    emissions, tags = ragged(3, (5, 2, 1), seed=2)
    results = []
    for fill in (0.5, padding):
        filled = emissions.masked_fill((tags < 0).unsqueeze(-1), fill).requires_grad_()
        scores = as_tensors(random_scores(3, seed=2))
        loss = negative_log_likelihood(filled, tags, scores)
        loss.backward()
        results.append([loss.detach(), filled.grad, *(score.grad for score in scores)])
    assert all(torch.equal(first, second) for first, second in zip(*results, strict=True))
    assert (results[1][1][tags < 0] == 0).all()


def test_batch_loss_is_the_sum_over_its_windows() -> None:
    emissions, tags = ragged(4, (6, 2, 4), seed=3)
    scores = as_tensors(random_scores(4, seed=3))
    counts = (tags >= 0).sum(dim=1)
    alone = [negative_log_likelihood(emissions[i : i + 1], tags[i : i + 1], scores) for i in range(3)]
    together = negative_log_likelihood(emissions, tags, scores) * counts.sum()
    assert together.item() == pytest.approx(sum((n * loss).item() for n, loss in zip(counts, alone, strict=True)))


def test_unlabelled_windows_have_zero_loss_and_gradient() -> None:
    emissions, scores = torch.randn(2, 5, 3, requires_grad=True), as_tensors(random_scores(3, seed=4))
    loss = negative_log_likelihood(emissions, torch.full((2, 5), -100), scores)
    loss.backward()
    assert loss.item() == 0
    assert not emissions.grad.any() and not scores.transitions.grad.any()


def test_untrained_crf_is_a_linear_tagger() -> None:
    emissions, tags = ragged(3, (4, 2), seed=5)
    emissions = emissions.float()
    softmax = torch.nn.functional.cross_entropy(emissions[tags >= 0], tags[tags >= 0])
    loss = Crf(3).loss(emissions, {"labels": tags})
    assert loss.item() == pytest.approx(softmax.item(), rel=1e-5)


def test_scores_move_faster_with_unscaled_gradients() -> None:
    crf, (emissions, tags) = Crf(3), ragged(3, (4, 2), seed=6)
    optimiser = torch.optim.AdamW(crf.parameters(), lr=1e-3, weight_decay=0.0)
    crf.loss(emissions.float(), {"labels": tags}).backward()
    direct = as_tensors({"transitions": np.zeros((3, 3)), "start": np.zeros(3), "end": np.zeros(3)})
    negative_log_likelihood(emissions, tags, direct).backward()
    assert torch.allclose(crf.transitions.grad.double(), direct.transitions.grad, atol=1e-6)
    optimiser.step()
    moved = crf.scores().transitions[direct.transitions.grad.abs() > 1e-3].abs()
    assert torch.allclose(moved, torch.full_like(moved, LEARNING_RATE_FACTOR * 1e-3), rtol=1e-3)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 1000))
def test_viterbi_finds_the_best_path(labels: int, words: int, seed: int) -> None:
    emissions = np.random.default_rng(seed).standard_normal((words, labels)).astype(np.float32)
    scores = random_scores(labels, seed)
    paths = path_scores(emissions.astype(np.float64), scores)
    actual = tuple(viterbi(emissions, scores).tolist())
    assert paths[actual] == pytest.approx(max(paths.values()), rel=1e-12)


def test_viterbi_takes_the_first_of_equal_paths() -> None:
    zeros = {"transitions": np.zeros((2, 2)), "start": np.zeros(2), "end": np.zeros(2)}
    assert viterbi(np.zeros((3, 2)), zeros).tolist() == [0, 0, 0]
    assert viterbi(np.zeros((0, 2)), zeros).tolist() == []


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 1000))
def test_marginals_are_shares_of_paths_through_a_label(labels: int, words: int, seed: int) -> None:
    emissions, scores = np.random.default_rng(seed).standard_normal((words, labels)), random_scores(labels, seed)
    paths = path_scores(emissions, scores)
    whole = logsumexp(list(paths.values()))
    expected = np.zeros((words, labels))
    for path, score in paths.items():
        expected[np.arange(words), path] += np.exp(score - whole)
    assert np.allclose(marginals(emissions, scores), expected, atol=1e-12)


def test_marginals_of_no_words() -> None:
    assert marginals(np.zeros((0, 3)), random_scores(3, 0)).shape == (0, 3)
