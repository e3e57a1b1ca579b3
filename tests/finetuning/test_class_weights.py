"""Class weights equal scikit-learn's, and the losses apply them like its sample weights."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight

from biosqueeze.data.output_types import MULTI, SCORE, SINGLE, SPAN, TOKENS, OutputType
from biosqueeze.finetuning.class_weights import balanced_weights
from biosqueeze.models.output_tensors import tensors_of

CLASSES = 4
classes = st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=40)


def reference(labels: list[int]) -> np.ndarray:
    weights = np.ones(CLASSES)
    present = np.unique(labels)
    weights[present] = compute_class_weight("balanced", classes=present, y=labels)
    return weights


@given(classes)
@settings(max_examples=60, deadline=None)
def test_balanced_weights_match_scikit_learn(labels: list[int]) -> None:
    features = [{"input_ids": np.arange(3), "labels": np.array(label)} for label in labels]
    found = balanced_weights(features, SINGLE, CLASSES)
    np.testing.assert_allclose(found, reference(labels), rtol=1e-6)
    assert found[labels].mean() == pytest.approx(1.0, rel=1e-5)


@given(st.lists(classes, min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_tokens_without_a_label_do_not_count(windows: list[list[int]]) -> None:
    features = [{"labels": np.array([-100, *labels, -100])} for labels in windows]
    found = balanced_weights(features, TOKENS, CLASSES)
    np.testing.assert_allclose(found, reference([label for labels in windows for label in labels]), rtol=1e-6)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_each_label_of_many_is_balanced_by_itself(rows: list[tuple[bool, bool]]) -> None:
    targets = np.array(rows, dtype=np.float32)  # (items, labels)
    found = balanced_weights([{"targets": row} for row in targets], MULTI, 2)
    for label in range(2):
        decisions = targets[:, label].astype(int)
        weights = found[decisions, label]
        np.testing.assert_allclose(weights, compute_sample_weight("balanced", decisions), rtol=1e-6)


@pytest.mark.parametrize("output_type", [SCORE, SPAN])
def test_class_weights_need_classes(output_type: OutputType) -> None:
    with pytest.raises(ValueError, match="not classes"):
        balanced_weights([{"targets": np.array(1.0)}], output_type, 1)


def test_weighted_losses_match_a_manual_computation() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, CLASSES, generator=generator)
    labels = torch.tensor([[0, -100, 3], [1, 1, -100]])
    weights = torch.tensor([0.5, 2.0, 1.0, 4.0])
    surprise = -logits.log_softmax(-1)
    by_hand = sum(weights[c] * surprise[i, j, c] for i, j, c in [(0, 0, 0), (0, 2, 3), (1, 0, 1), (1, 1, 1)]) / 4
    assert float(tensors_of(TOKENS).loss(logits, {"labels": labels}, weights)) == pytest.approx(
        float(by_hand), rel=1e-6
    )
    rows = weights[3] * surprise[0, 0, 3] + weights[1] * surprise[1, 0, 1]
    found = tensors_of(SINGLE).loss(logits[:, 0], {"labels": torch.tensor([3, 1])}, weights)
    assert float(found) == pytest.approx(float(rows) / 2, rel=1e-6)


def test_multi_label_weights_differ_by_presence() -> None:
    logits, targets = torch.tensor([[0.3, -1.0]]), torch.tensor([[1.0, 0.0]])
    weights = torch.tensor([[9.0, 0.5], [2.0, 9.0]])  # (absent, present) x labels
    by_hand = (2.0 * math.log1p(math.exp(-0.3)) + 0.5 * math.log1p(math.exp(-1.0))) / 2
    assert float(tensors_of(MULTI).loss(logits, {"targets": targets}, weights)) == pytest.approx(by_hand, rel=1e-6)


def test_equal_weights_change_nothing() -> None:
    logits = torch.randn(2, 3, CLASSES, generator=torch.Generator().manual_seed(1))
    labels = {"labels": torch.tensor([[0, 2, 3], [1, 1, -100]])}
    torch.testing.assert_close(
        tensors_of(TOKENS).loss(logits, labels, torch.ones(CLASSES)), tensors_of(TOKENS).loss(logits, labels)
    )
