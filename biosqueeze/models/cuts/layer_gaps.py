"""How much of the stream behind a layer the layer before it could not make up for, if it was repaired."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from biosqueeze.models.cuts.normal_equations import NormalEquations
from biosqueeze.models.cuts.repair import DAMPING
from biosqueeze.models.cuts.streams import CalibrationText, captured, parts_of_stream
from biosqueeze.models.families import family_of
from biosqueeze.models.layers import encoder_layers


def gap_errors(model: PreTrainedModel, text: CalibrationText, first: int = 0) -> list[float]:
    """Return, for each layer after a first one, the error that a repair leaves in the stream right behind it.

    The error is that of the FFN's output layer of the layer before, fitted to the stream behind the layer
    (`repair.repair_depth`), as a share of that stream's variance.

    Args:
        model: whose layers do not share their weights.
        text: to calibrate on.
        first: number of the layer whose repair is the first that is looked at.
    """
    family, layers = family_of(model.config), list(encoder_layers(model))[first:]
    outputs = [layer.get_submodule(family.ffn_output) for layer in layers]
    wanted = [
        (*parts_of_stream(family, layer, family.ffn_output), (output, "input"))
        for layer, output in zip(layers, outputs, strict=True)
    ]
    gaps = [_Gap(output) for output in outputs[:-1]]
    with torch.no_grad():
        for number in range(len(text.batches)):
            states = captured(text, number, model, wanted)
            for gap, (*parts, inputs), (*goal, _) in zip(gaps, states[:-1], states[1:], strict=True):
                gap.add(inputs, parts, goal)
    return [gap.error() for gap in gaps]


class _Gap:
    """The fit of one layer to the stream behind the next."""

    def __init__(self, output: Any) -> None:
        self._equations = NormalEquations(output.in_features, output.out_features, bias=output.bias is not None)
        self._count, self._squares = 0, 0.0
        self._sums = torch.zeros(output.out_features, dtype=torch.float64)

    def add(self, inputs: Tensor, parts: Sequence[Tensor], goal: Sequence[Tensor]) -> None:
        target = torch.stack(list(goal)).sum(0)
        self._equations.add(inputs, target - torch.stack(list(parts)).sum(0))
        self._count += len(target)
        self._sums += target.sum(0)
        self._squares += float(target.square().sum())

    def error(self) -> float:
        variance = self._squares - float(self._sums.square().sum()) / self._count
        return self._equations.squared_error(DAMPING) / variance
