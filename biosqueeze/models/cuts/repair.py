"""Repair a cut model without training: least squares on calibration text, one linear layer after the other.

After a cut, the linear layers that read what is left are fitted to what the original computes there (He et al. 2017,
"Channel Pruning", equation 4, for convolutions). The inputs are those of the cut model whose earlier layers are already
repaired, so that later layers make up for the errors of earlier ones. A layer that writes to the residual stream is
fitted to the difference between the original's stream and the cut model's (Park et al. 2024, "K-prune", section 4.2).

The streams of a few tokens, of MiniLM that of [CLS], are up to ten times as large as the others' (Sun et al. 2024,
"Massive Activations"), and their squared errors would decide a fit alone. So after a cut of width the error of a token
counts relative to the standard deviation of its stream, by which the next norm divides. After a cut of depth it counts
as it is: that keeps more, see examples/benchmarks/results/shrinking.md.

* Fewer neurons: the FFN's output layer.
* Fewer heads and hidden dimensions: the linear layers of the encoder's layers, the scale and bias of its norms, and the
  classifier, if it is one linear layer. What lies between the two, a pooler or a dense layer, stays as it was cut, and
  so does a classifier of sequences, which has one row for each of them, where they are few.
* Fewer layers: the FFN's output layer of each layer before a gap, fitted to the stream after the gap, and the output
  layers of attention and FFN of every layer after it.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from biosqueeze.models.cuts.kept_rows import kept_rows
from biosqueeze.models.cuts.normal_equations import NormalEquations
from biosqueeze.models.cuts.partial_runs import MOST_BYTES, PartialRuns
from biosqueeze.models.cuts.streams import CalibrationText, Part, captured, parts_of_stream
from biosqueeze.models.cuts.unit_scores import KeptUnits
from biosqueeze.models.families import Family, family_of
from biosqueeze.models.heads import classifies_sequences
from biosqueeze.models.layers import encoder_layers
from biosqueeze.progress import note, track

DAMPING = 1e-3
"""Of the ridge regression, see `NormalEquations.solve`."""
_SEQUENCES_PER_INPUT = 2
"""With fewer, a fitted classifier of sequences is worse on others than the one that was cut."""
_ROUNDING = 1e-12  # of sums in float64


@dataclass(frozen=True)
class _Site:
    """A module that is fitted: the sum of some states in the cut model is to be that in the original."""

    module: Any
    parts: tuple[Part, ...]
    """Of the cut model: the module's output last, after the rest of the residual stream if it writes to that."""
    reference: tuple[Part, ...]
    """The same of the original."""
    rows: Tensor | None
    """Which of the original's dimensions the sum has; None for all."""
    layer: int = 0
    """The number of the first layer of the cut model that has to run for the states."""
    reference_layer: int = 0
    """The same of the original."""
    relative: bool = False
    """How errors of the residual stream count: see the module's docstring."""


def repair_width(
    model: PreTrainedModel, original: PreTrainedModel, kept: KeptUnits, text: CalibrationText
) -> PreTrainedModel:
    """Repair a narrower model, in place.

    Args:
        model: narrower, with whole heads.
        original: that it was cut from.
        kept: the units that it has.
        text: to calibrate on.
    """
    if kept.hidden is None:
        site_groups = _ffn_groups(model, original)
    else:
        site_groups = _narrowed_groups(model, original, kept) + _classifier_groups(model, original, text)
    site_groups = [[replace(site, relative=True) for site in sites] for sites in site_groups]
    return _repair(model, Targets(original, text), site_groups)


def repair_depth(
    model: PreTrainedModel, targets: "Targets", layers: Sequence[int], *, first: int = 0, shows_progress: bool = True
) -> PreTrainedModel:
    """Repair a shallower model, in place: what writes to the stream is fitted to the original's stream at its place.

    The FFN of a layer before a gap is fitted to the stream after the gap, and gets the norm there in post-norm layers.
    Layers after a gap read a stream that is no longer the original's, so their attention and FFN are fitted too.

    Args:
        model: with some layers of the original.
        targets: of the original that it was cut from.
        layers: the original's layers that it has, ascending.
        first: number of its layers that are repaired already.
        shows_progress: whether there is a bar.
    """
    family, stack = family_of(model.config), encoder_layers(targets.original)
    ends = [*(layer - 1 for layer in layers[1:]), len(stack) - 1]
    site_groups = []
    pairs = enumerate(zip(encoder_layers(model), layers, ends, strict=True))
    for index, (layer, number, end) in islice(pairs, first, None):
        if number != end and not family.input_norm:
            _copy_last_norm(layer, stack[end])
        if number != index:
            site_groups.append([_stream_site(family.attention_output, family, (layer, index), (stack[number], number))])
        if number != index or number != end:
            site_groups.append([_stream_site(family.ffn_output, family, (layer, index), (stack[end], end))])
    return _repair(model, targets, site_groups, shows_progress=shows_progress)


def _copy_last_norm(layer: nn.Module, other: nn.Module) -> None:
    name = [name for name, module in layer.named_modules() if _is_norm(module)][-1]
    layer.get_submodule(name).load_state_dict(other.get_submodule(name).state_dict())


def _is_norm(module: nn.Module) -> bool:
    return "Norm" in type(module).__name__ and getattr(module, "weight", None) is not None


def _ffn_groups(model: PreTrainedModel, original: PreTrainedModel) -> list[list[_Site]]:
    family = family_of(model.config)
    pairs = zip(encoder_layers(model), encoder_layers(original), strict=True)
    return [
        [_stream_site(family.ffn_output, family, (layer, index), (reference, index))]
        for index, (layer, reference) in enumerate(pairs)
    ]


def _stream_site(path: str, family: Family, layer: tuple[nn.Module, int], reference: tuple[nn.Module, int]) -> _Site:
    """Return a module that writes to the stream in a layer, fitted to the stream at its place in another."""
    parts, reference_parts = (parts_of_stream(family, each, path) for each, _ in (layer, reference))
    return _Site(layer[0].get_submodule(path), parts, reference_parts, None, layer[1], reference[1])


def _narrowed_groups(model: PreTrainedModel, original: PreTrainedModel, kept: KeptUnits) -> list[list[_Site]]:
    """Return the modules that read or write a narrower residual stream, in the order of execution."""
    family = family_of(model.config)
    hidden = torch.tensor(kept.hidden)
    trunk, other, depth = model.base_model, original.base_model, len(encoder_layers(model))
    norms = [(name, module) for name, module in _outer_norms(trunk, len(hidden))]
    outer = {
        name: [_site(module, other.get_submodule(name), hidden, depth if name == family.final_norm else 0)]
        for name, module in norms
    }
    last = [outer.pop(family.final_norm)] if family.final_norm in outer else []
    site_groups = list(outer.values())
    for index, layer in enumerate(encoder_layers(model)):
        reference = encoder_layers(original)[index]
        for paths in _order(family, layer):
            site_groups.append(
                [
                    _Site(
                        layer.get_submodule(path),
                        parts_of_stream(family, layer, path),
                        parts_of_stream(family, reference, path),
                        kept_rows(original.config, kept, index, path),
                        index,
                        index,
                    )
                    for path in paths
                ]
            )
    return site_groups + last


def _classifier_groups(model: PreTrainedModel, original: PreTrainedModel, text: CalibrationText) -> list[list[_Site]]:
    """Return the classifier, if it is one linear layer, and the text has enough rows for it."""
    depth, groups = len(encoder_layers(model)), []
    for name, module in model.named_modules():
        if name not in ("classifier", "qa_outputs") or not isinstance(module, nn.Linear):
            continue
        sequences = sum(len(batch["attention_mask"]) for batch in text.batches)
        if classifies_sequences(model) and sequences < _SEQUENCES_PER_INPUT * module.in_features:
            note(f"the {name} is not repaired: {sequences:,} sequences are too few for its {module.in_features} inputs")
        else:
            groups.append([_site(module, original.get_submodule(name), None, depth)])
    return groups


def _site(module: nn.Module, reference: nn.Module, rows: Tensor | None, layer: int) -> _Site:
    return _Site(module, ((module, "output"),), ((reference, "output"),), rows, layer, layer)


def _outer_norms(trunk: nn.Module, size: int) -> list[tuple[str, nn.Module]]:
    """Return the norms of the residual stream before the first layer and after the last."""
    layers = [module for module in trunk.modules() if isinstance(module, nn.ModuleList)]
    inner = {id(part) for stack in layers for part in stack.modules()}
    norms = ((name, module) for name, module in trunk.named_modules() if _is_norm(module) and id(module) not in inner)
    return [(name, module) for name, module in norms if module.weight.numel() == size]


def _order(family: Family, layer: nn.Module) -> list[tuple[str, ...]]:
    """Return the modules of a layer in the order of execution; those of one group do not depend on each other.

    Longformer's projections and DeBERTa's, which project relative positions too, stay as they were cut.
    """
    norms = [name for name, module in layer.named_modules() if _is_norm(module)]
    projections = () if family.attention_bias or family.in_windows else (family.query, family.key, family.value)
    inputs = tuple(dict.fromkeys(path for path in (family.ffn_input, family.ffn_gate) if path))
    attention = [tuple(dict.fromkeys(projections)), (family.attention_output,)]
    ffn = [inputs, (family.ffn_output,)]
    before = [name for name in norms if family.input_norm and name == family.input_norm]
    middle, *after = [name for name in norms if name not in before]
    steps = [*((name,) for name in before), *attention, (middle,), *ffn, *((name,) for name in after)]
    return [step for step in steps if step]


def _repair(
    model: PreTrainedModel, targets: "Targets", site_groups: Sequence[Sequence[_Site]], *, shows_progress: bool = True
) -> PreTrainedModel:
    """Repair a model group by group."""
    runs, text = PartialRuns(model), targets.text
    progress = track("repair", len(site_groups) * len(text.batches)) if shows_progress else nullcontext()
    with torch.no_grad(), progress as bar:
        for place, sites in enumerate(site_groups):
            fits = [_Rescaling(site) if _is_norm(site.module) else _Refit(site) for site in sites]
            wanted = [(*site.parts, (site.module, "input")) for site in sites]
            later = [site for group in site_groups[place + 1 :] for site in group]
            for number in range(len(text.batches)):
                expected = targets.take(sites, later, number)
                with runs.beginning_at(sites[0].layer, number):
                    found = captured(text, number, model, wanted)
                for fit, (*parts, inputs), target in zip(fits, found, expected, strict=True):
                    fit.add(inputs, parts, target)
                if bar:
                    bar.advance()
            for fit in fits:
                fit.finish()
    return model


class Targets:
    """What an original computes on text at sites. One forward pass serves all sites of a layer, up to `MOST_BYTES`."""

    def __init__(self, original: PreTrainedModel, text: CalibrationText, *, serves_again: bool = False) -> None:
        """Begin without states.

        Args:
            original: that models are cut from.
            text: that they are repaired on.
            serves_again: whether states are kept for the repairs of other cuts.
        """
        self.original, self.text, self._serves_again = original, text, serves_again
        self._runs, self._layers = PartialRuns(original), list(encoder_layers(original))
        self._held: dict[tuple[int, tuple[Part, ...]], Tensor] = {}
        self._bytes_left = MOST_BYTES

    def take(self, sites: Sequence[_Site], later: Sequence[_Site], number: int) -> list[Tensor]:
        """Return the targets of sites in one layer for a batch, each (tokens, outputs).

        Args:
            sites: of one layer. Unless they serve again, their targets are not kept after this call.
            later: sites of later calls; the same forward pass computes the targets of those in this layer.
            number: of the batch.
        """
        keys = [(number, site.reference) for site in sites]
        if any(key not in self._held for key in keys):
            layer = sites[0].reference_layer
            rest = [site for site in later if site.reference_layer == layer] if self._bytes_left > 0 else []
            self._compute([*sites, *rest], layer, number)
        targets = [self._held[key].double() for key in keys]
        if not self._serves_again or self._bytes_left < 0:
            self._bytes_left += sum(self._held.pop(key).nbytes for key in keys)
        return targets

    def _compute(self, sites: Sequence[_Site], layer: int, number: int) -> None:
        """Hold the targets of sites in one layer for a batch, as precise as the model's outputs are."""
        wanted = [site.reference for site in sites]
        if not self._runs.has_output(layer, number):
            wanted += [((module, "output"),) for module in self._layers[layer : layer + 1]]  # the pass ends there
        with self._runs.beginning_at(layer, number, last=layer):
            states = captured(self.text, number, self.original, wanted)
        for site, parts in zip(sites, states[: len(sites)], strict=True):
            target = torch.stack(parts).sum(0).float()
            target = target if site.rows is None else target[:, site.rows]
            previous = self._held.get((number, site.reference))
            self._held[number, site.reference] = target
            self._bytes_left -= target.nbytes - (0 if previous is None else previous.nbytes)


class _Refit:
    """A linear layer: its weights change by the least-squares fit of what is missing in the stream."""

    def __init__(self, site: _Site) -> None:
        self.module = site.module
        self.relative = site.relative and len(site.parts) > 1  # the others do not write to the stream
        has_bias = site.module.bias is not None
        self.equations = NormalEquations(site.module.in_features, site.module.out_features, bias=has_bias)

    def add(self, inputs: Tensor, parts: Sequence[Tensor], target: Tensor) -> None:
        """Add a batch: inputs (tokens, inputs); parts and target (tokens, outputs)."""
        weights = target.std(dim=1).reciprocal().nan_to_num(posinf=0.0) if self.relative else None
        self.equations.add(inputs, target - torch.stack(list(parts)).sum(0), weights)

    def finish(self) -> None:
        """Change the weights."""
        weight, bias = self.equations.solve(DAMPING)
        self.module.weight += weight
        if bias is not None:
            self.module.bias += bias


class _Rescaling:
    """A norm: its scale and bias are fitted to each dimension of the original's output."""

    def __init__(self, site: _Site) -> None:
        self.module = site.module
        self.sums = torch.zeros(5, site.module.weight.numel(), dtype=torch.float64)

    def add(self, inputs: Tensor, parts: Sequence[Tensor], target: Tensor) -> None:  # noqa: ARG002 - of a norm
        """Add a batch: the norm's output and the target (tokens, hidden)."""
        (x,) = parts
        self.sums += torch.stack(
            [torch.ones_like(x).sum(0), x.sum(0), target.sum(0), (x * x).sum(0), (x * target).sum(0)]
        )

    def finish(self) -> None:
        """Change scale and bias. The scale of a dimension whose output is constant stays as it is."""
        count, x, y, xx, xy = self.sums
        if getattr(self.module, "bias", None) is None:
            self.module.weight *= torch.where(xx > 0, xy / xx, 1.0)
            return
        spread = xx - x * x / count
        slope = torch.where(spread > _ROUNDING * xx, (xy - x * y / count) / spread, 1.0)
        self.module.weight *= slope
        self.module.bias *= slope
        self.module.bias += (y - slope * x) / count
