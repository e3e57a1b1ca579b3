"""Run a model on the same batches again and again, each time beginning behind the layers whose output is known."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from biosqueeze.models.families import family_of
from biosqueeze.models.layers import encoder_layers

MOST_BYTES = 512 * 2**20
"""Of the outputs that are kept. Batches beyond that run from the first layer."""


class PartialRuns:
    """Keeps the outputs of layers, for every batch those of the last two layers that ran to their end."""

    def __init__(self, model: PreTrainedModel, most_bytes: int = MOST_BYTES) -> None:
        """Begin without outputs; a model whose layers share their weights runs whole.

        Args:
            model: of an encoder.
            most_bytes: memory for the outputs.
        """
        self._layers = [] if family_of(model.config).shares_layers else list(encoder_layers(model))
        self._left = most_bytes
        self._outputs: dict[int, deque[tuple[int, Any]]] = {}

    @contextmanager
    def beginning_at(self, layer: int, batch: int, last: int | None = None) -> Iterator[None]:
        """Let forward passes inside the block begin as late as they can, and keep outputs for later passes.

        Args:
            layer: number of the first layer that has to run; the weights before it no longer change.
            batch: number of the batch that is run.
            last: number of the last layer whose output may be kept; default: the one before `layer`.
        """
        known = max((found for found in self._outputs.get(batch, ()) if found[0] < layer), default=None, key=_number)
        begin = 0 if known is None else known[0] + 1
        end = min(layer if last is None else last + 1, len(self._layers))
        skipped = self._layers[:begin]
        handles = [
            self._layers[number].register_forward_hook(partial(self._keep, number, batch))
            for number in range(max(begin, layer - 1), end)
        ]
        for module in skipped:
            module.forward = partial(_known_output, known and known[1])
        try:
            yield
        finally:
            for module in skipped:
                del module.forward
            for handle in handles:
                handle.remove()

    def has_output(self, layer: int, batch: int) -> bool:
        """Return whether the output of a layer is kept for a batch."""
        return any(number == layer for number, _ in self._outputs.get(batch, ()))

    def _keep(self, number: int, batch: int, _module: nn.Module, _inputs: Any, output: Any) -> None:
        size = sum(part.nbytes for part in _tensors(output))
        outputs = self._outputs.setdefault(batch, deque())
        if self.has_output(number, batch):
            return
        if len(outputs) == 2:
            self._left += sum(part.nbytes for part in _tensors(outputs.popleft()[1]))
        if size <= self._left:
            self._left -= size
            outputs.append((number, output))


def _number(found: tuple[int, Any]) -> int:
    return found[0]


def _known_output(output: Any, *_: Any, **__: Any) -> Any:
    return output


def _tensors(output: Any) -> list[Tensor]:
    return [part for part in (output if isinstance(output, tuple) else (output,)) if isinstance(part, Tensor)]
