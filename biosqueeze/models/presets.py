"""Student presets by name, one row each. Torch-free; `students.py` builds the models."""

from collections.abc import Mapping
from dataclasses import dataclass

from biosqueeze.errors import UsageError
from biosqueeze.registry import closest


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Shape of a student. Family, vocabulary, tokenizer and labels are the teacher's."""

    name: str
    kept_layers: str | None = None
    """The teacher's layers to copy, in the syntax of `shrink --layers`; None for random weights."""
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    ffn: int | None = None
    positions: int | None = None
    """Longest input, special tokens included; None for the teacher's."""
    losses: str | None = None
    """The loss preset of the paper, for distillation on plain text; see `distillation.loss_presets`."""
    source: str
    """The paper or model that the shape comes from."""

    @property
    def summary(self) -> str:
        """One line for help and messages."""
        if self.kept_layers:
            return f"{self.kept_layers} layers of the teacher, of the same width ({self.source})"
        return f"{self.layers} x {self.hidden}, {self.heads} heads, ffn {self.ffn}, from random weights ({self.source})"


_COMPACT = "Rohanian et al. 2023, compact biomedical transformers"
_BIOFORMER = "Fang et al. 2023, Bioformer"
_MINILM = "Wang et al. 2020, MiniLM"
_MINIATURES = "Turc et al. 2019, well-read students"

PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(name="distil", kept_layers="every-other", losses="distilbert", source=f"DistilBioBERT, {_COMPACT}"),
        Preset(name="compact", kept_layers="odd", losses="compact", source=f"CompactBioBERT, {_COMPACT}"),
        Preset(
            name="tiny",
            layers=4,
            hidden=312,
            heads=12,
            ffn=1200,
            losses="tinybiobert",
            source=f"TinyBioBERT, {_COMPACT}",
        ),
        Preset(name="bioformer-8l", layers=8, hidden=512, heads=8, ffn=2048, positions=512, source=f"8L, {_BIOFORMER}"),
        Preset(
            name="bioformer-16l", layers=16, hidden=384, heads=6, ffn=1536, positions=1024, source=f"16L, {_BIOFORMER}"
        ),
        Preset(name="minilm-l6", layers=6, hidden=384, heads=12, ffn=1536, source=_MINILM),
        Preset(name="minilm-l3", layers=3, hidden=384, heads=12, ffn=1536, source=f"half of it, {_MINILM}"),
        Preset(name="bert-mini", layers=4, hidden=256, heads=4, ffn=1024, source=_MINIATURES),
        Preset(name="bert-small", layers=4, hidden=512, heads=8, ffn=2048, source=_MINIATURES),
        Preset(name="bert-medium", layers=8, hidden=512, heads=8, ffn=2048, source=_MINIATURES),
    )
}


def find_preset(name: str) -> Preset:
    """Return the preset of that name.

    Raises:
        UsageError: there is none; the message names the nearest.
    """
    if name not in PRESETS:
        raise UsageError(f"there is no student called {name!r}.{closest(name, PRESETS)} Known: {', '.join(PRESETS)}")
    return PRESETS[name]
