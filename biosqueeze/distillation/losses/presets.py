"""Named loss presets, one row each: the losses and weights that `--loss distilbert` selects. Torch-free."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from biosqueeze import registry
from biosqueeze.errors import UsageError
from biosqueeze.models.named.presets import PRESETS

Projection = Literal["shared", "per-layer"]


@dataclass(frozen=True, kw_only=True)
class LossPreset:
    """Weights of losses, and the settings that go with them."""

    name: str
    weights: Mapping[str, float]
    temperature: float = 1.0
    layers: str = "uniform"  # see models.layer_maps
    projection: Projection = "shared"  # where student and teacher have different widths
    source: str

    @property
    def formula(self) -> str:
        """The losses in one line, like 2 mlm + 5 kl + 1 cosine."""
        return formula(self.weights)


def formula(weights: Mapping[str, float]) -> str:
    """Return losses and weights in one line, like 2 mlm + 5 kl + 1 cosine."""
    return " + ".join(f"{weight:g} {name}" for name, weight in weights.items())


_COMPACT = "Rohanian et al. 2023, On the effectiveness of compact biomedical transformers"

LOSS_PRESETS: Mapping[str, LossPreset] = {
    preset.name: preset
    for preset in (
        LossPreset(
            name="distilbert",
            weights={"mlm": 2.0, "kl": 5.0, "cosine": 1.0},
            temperature=2.0,
            source=f"DistilBioBERT: {_COMPACT}, equation 4; weights and temperature of its published code",
        ),
        LossPreset(
            name="tinybiobert",
            weights={"embedding": 1.0, "hidden": 1.0, "attention-maps": 1.0, "soft": 1.0},
            source=f"TinyBioBERT: {_COMPACT}, equation 7; its published code compares attention after the softmax",
        ),
        LossPreset(
            name="tinybert",
            weights={"embedding": 1.0, "hidden": 1.0, "attention": 1.0, "soft": 1.0},
            source="TinyBERT: Jiao et al. 2020, equation 11, which compares attention scores before the softmax",
        ),
        LossPreset(
            name="compact",
            weights={"mlm": 1.0, "hidden-cosine": 3.0, "attention-kl-mean": 3.0, "kl": 5.0},
            layers="2i+1",
            source=f"CompactBioBERT: {_COMPACT}, equation 9; weights, temperature and means of its published code",
        ),
        LossPreset(
            name="biolm",
            weights={"mlm": 5.0, "kl": 2.0, "cosine": 1.0},
            temperature=2.0,
            source="bio-lm: Lewis et al. 2020, Pretrained Language Models for Biomedical and Clinical Tasks, sec. 7.1",
        ),
        LossPreset(
            name="mobilebert",
            weights={"mlm": 0.5, "kl": 0.5, "hidden": 1.0, "attention-kl": 1.0},
            projection="per-layer",
            source="MobileBERT: Sun et al. 2020, its feature map, attention and pretraining transfer combined",
        ),
        LossPreset(
            name="task",
            weights={"kl": 1.0, "attention-kl": 1.0},
            temperature=2.0,
            source="soft labels (Hinton et al. 2015) and attention (MobileBERT: Sun et al. 2020), which reached "
            "every target of examples/benchmarks/distill_objectives.py",
        ),
        LossPreset(
            name="text-pairs",
            weights={"kl": 1.0, "attention-kl": 1.0, "hidden": 1.0},
            temperature=2.0,
            source="the losses of `task`, and hidden states: one score of two texts says little about all their "
            "tokens; examples/benchmarks/text_pairs.py",
        ),
    )
}
DEFAULTS = {"mlm": "distilbert", "task": "task"}
TEXT_PAIRS = "text-pairs"  # the default of teachers that encode two texts separately
STUDENT_LOSSES = {name: preset.losses for name, preset in PRESETS.items() if preset.losses}  # on plain text
# The best losses on a task that do not compare attention.
WITHOUT_ATTENTION = ("kl", "hidden")


def parse_losses(items: Sequence[str], kind: str, default: str | None = None) -> LossPreset:
    """Parse --loss: losses and named presets, each with a weight; the default if there are none.

    Args:
        items: `NAME` or `NAME=WEIGHT`; a preset is scaled by its weight, and weights of the same loss are added.
        kind: "mlm" or "task".
        default: preset without items; None: that of the kind.

    Raises:
        UsageError: a name is unknown, a weight is not positive, or two presets differ in temperature, layer map or
            projection.
    """
    scaled = [_name_and_weight(text) for text in items or (default or DEFAULTS[kind],)]
    weights: dict[str, float] = {}
    for name, scale in scaled:
        for loss, weight in (LOSS_PRESETS[name].weights if name in LOSS_PRESETS else {name: 1.0}).items():
            weights[loss] = weights.get(loss, 0.0) + scale * weight
    presets = [LOSS_PRESETS[name] for name, _ in scaled if name in LOSS_PRESETS]
    if not presets:
        return LossPreset(name="own", weights=weights, temperature=2.0, source="--loss")
    first = presets[0]
    for other in presets[1:]:
        if (other.temperature, other.layers, other.projection) != (first.temperature, first.layers, first.projection):
            raise UsageError(
                f"--loss {first.name} and {other.name} differ in temperature, layer map or projection; list the losses "
                f"of one of them: {' '.join(f'--loss {loss}={weight:g}' for loss, weight in other.weights.items())}"
            )
    return LossPreset(
        name="+".join(name for name, _ in scaled),
        weights=weights,
        temperature=first.temperature,
        layers=first.layers,
        projection=first.projection,
        source="; ".join(preset.source for preset in presets),
    )


def _name_and_weight(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    if name not in LOSS_PRESETS and name not in registry.names("objectives"):
        known = (*LOSS_PRESETS, *registry.names("objectives"))
        raise UsageError(f"there is no loss called {name!r}.{registry.closest(name, known)} Known: {', '.join(known)}")
    try:
        weight = float(value) if equals else 1.0
    except ValueError:
        weight = 0.0
    if not (weight > 0 and isfinite(weight)):
        raise UsageError(f"--loss {text!r} is not NAME=WEIGHT with a positive weight, like kl=5")
    return name, weight
