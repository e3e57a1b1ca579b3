"""Differences of float32 outputs that count as rounding."""

import pytest
import torch

from biosqueeze.errors import SqueezeError
from biosqueeze.models.verify import check_same_outputs


@pytest.mark.parametrize(("size", "difference"), [(1.0, 0.9e-4), (30.0, 2e-3), (0.01, 0.9e-4)])
def test_rounding_grows_with_the_size_of_values(size: float, difference: float) -> None:
    reference = (torch.tensor([[size, 0.0]]), torch.zeros(2, 3))
    outputs = (reference[0] + torch.tensor([[0.0, difference]]), reference[1])
    assert check_same_outputs("a cut", outputs, reference) == pytest.approx(difference, rel=1e-3)


@pytest.mark.parametrize(("size", "difference"), [(1.0, 1.1e-4), (30.0, 4e-3), (1.0, float("nan"))])
def test_larger_differences_are_refused(size: float, difference: float) -> None:
    reference = (torch.tensor([[size, 0.0]]),)
    with pytest.raises(SqueezeError, match="a cut changes the outputs by"):
        check_same_outputs("a cut", (reference[0] + torch.tensor([[0.0, difference]]),), reference)


def test_large_hidden_states_do_not_hide_wrong_logits() -> None:
    hidden, logits = torch.tensor([[3000.0, 0.0]]), torch.zeros(1, 3)
    with pytest.raises(SqueezeError, match=r"changes the outputs by 0\.25, and at most 0\.0001"):
        check_same_outputs("a cut", (hidden, logits + 0.25), (hidden, logits))


@pytest.mark.parametrize("reference", [(torch.zeros(1, 3),), (torch.zeros(1, 2), torch.zeros(1, 2))])
def test_other_shapes_are_refused(reference: tuple[torch.Tensor, ...]) -> None:
    with pytest.raises(SqueezeError, match="a cut changes the outputs by inf"):
        check_same_outputs("a cut", (torch.zeros(1, 2),), reference)


@pytest.mark.parametrize("place", [0, 1])
def test_nan_in_any_output_is_refused(place: int) -> None:
    reference = (torch.zeros(1, 2), torch.zeros(1, 2))
    outputs = tuple(part + float("nan") if number == place else part for number, part in enumerate(reference))
    with pytest.raises(SqueezeError, match="a cut changes the outputs by nan"):
        check_same_outputs("a cut", outputs, reference)
