"""The shape that a cut keeps, and the guide that chooses its units."""

from dataclasses import dataclass

from transformers import PreTrainedConfig

from biosqueeze.importance.guide import Guide
from biosqueeze.importance.sources import CalibrationRequest
from biosqueeze.models.cuts.depth import parse_layers_of
from biosqueeze.models.cuts.width import Widths, narrowed_config


@dataclass(frozen=True)
class KeptShape:
    """What is kept, checked against the checkpoint's config; None keeps all."""

    layers: tuple[int, ...] | int | None
    """Which, or how many: the importance chooses them."""
    widths: Widths
    guide: Guide
    steps: tuple[str, ...]
    """What is kept, as it is known without weights."""
    choice: tuple[str, ...] = ()
    """How layers are chosen, for the plan; a run says which they are."""
    embedding_data: CalibrationRequest | None = None
    """Whose tokens count for smaller embeddings."""

    def layer_numbers(self) -> tuple[int, ...] | None:
        """The layers that are kept, or as many of the first ones, for the shape."""
        return tuple(range(self.layers)) if isinstance(self.layers, int) else self.layers


def described(
    guide: Guide, config: PreTrainedConfig, kept_layers: str | None, widths: Widths, rounding: str = ""
) -> KeptShape:
    """Return what is kept, with the steps for the plan.

    Args:
        guide: of the cut.
        config: of the model that is cut.
        kept_layers: in the form of --layers.
        widths: that are kept.
        rounding: how the neurons were rounded.
    """
    steps, choice, total = list[str](), list[str](), config.num_hidden_layers
    layers = parse_layers_of(config, kept_layers) if kept_layers is not None else None
    if layers is not None and guide.chooses_layers(kept_layers):
        removed = "the one without which the repaired rest loses least" if guide.tries_layers else "the least important"
        choice.append(f"keep {len(layers)} of {total} layers: remove {removed}, one at a time")
    elif layers is not None:
        steps.append(f"keep layers {', '.join(map(str, layers))} of 0 to {total - 1}")
    if widths.ffn is not None:
        steps.append(f"keep {widths.ffn} feed-forward neurons in each layer{rounding}")
    steps.extend(_head_steps(config, widths))
    chosen = len(layers) if layers is not None and guide.chooses_layers(kept_layers) else layers
    return KeptShape(chosen, widths, guide, tuple(steps), tuple(choice))


def _head_steps(config: PreTrainedConfig, widths: Widths) -> list[str]:
    if widths.heads is None and widths.head_size is None:
        return []
    has, size = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    narrower = f", {widths.head_size} of {size} dimensions of each" if widths.head_size else ""
    hidden = narrowed_config(config, widths).hidden_size
    return [f"keep {widths.heads or has} of {has} heads{narrower}: hidden size {hidden}"]
