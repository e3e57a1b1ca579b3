"""States of the residual stream of an encoder, captured while a model runs on calibration text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from biosqueeze.models.cuts.token_states import at_tokens
from biosqueeze.models.families import Family

Part = tuple[nn.Module, str]
"""A module, and whether its "input" or its "output" is meant."""


@dataclass(frozen=True)
class CalibrationText:
    """How both models are run on text."""

    batches: Sequence[Any]
    """With `attention_mask`, bool or int (batch, length)."""
    run: Callable[[PreTrainedModel, Any], object]
    """Run a model on a batch."""


def parts_of_stream(family: Family, layer: nn.Module, path: str) -> tuple[Part, ...]:
    """Return the parts of the residual stream behind a module that writes to it; of any other, its output."""
    module = layer.get_submodule(path)
    if path == family.attention_output:
        return (layer, "input"), (module, "output")
    if path != family.ffn_output:
        return ((module, "output"),)
    if family.input_norm:
        return (layer, "input"), (layer.get_submodule(family.attention_output), "output"), (module, "output")
    return (layer.get_submodule(family.ffn_input), "input"), (module, "output")


def captured(
    text: CalibrationText, number: int, model: PreTrainedModel, wanted: Sequence[Sequence[Part]]
) -> list[list[Tensor]]:
    """Return the states of some parts in one forward pass on a batch, which stops when all are known."""
    batch = text.batches[number]
    real = batch["attention_mask"].bool()
    places = [(i, j, *part) for i, parts in enumerate(wanted) for j, part in enumerate(parts)]
    found: list[list[Any]] = [[None] * len(parts) for parts in wanted]
    left = set(range(len(places)))
    handles: list[Any] = []

    def keep(place: int, states: Any) -> None:
        i, j, *_ = places[place]
        found[i][j] = at_tokens(states[0] if isinstance(states, tuple) else states, real)
        left.discard(place)
        if not left:
            raise _ReachedError

    for place, (_, _, module, side) in enumerate(places):
        if side == "output":
            handles.append(module.register_forward_hook(lambda _m, _a, output, n=place: keep(n, output)))
        else:
            handles.append(
                module.register_forward_pre_hook(
                    lambda _m, args, kwargs, n=place: keep(n, args or kwargs["hidden_states"]), with_kwargs=True
                )
            )
    try:
        text.run(model, batch)
    except _ReachedError:
        return found
    finally:
        for handle in handles:
            handle.remove()
    raise RuntimeError("a module was not run")


class _ReachedError(Exception):
    """All states of a forward pass that are wanted are known."""
