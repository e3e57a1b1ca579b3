"""Student presets by name, one row each. Torch-free; `students.py` builds the models."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from biosqueeze.errors import UsageError
from biosqueeze.models.named.shapes import SHAPES, Shape
from biosqueeze.registry import closest

_PLAIN = ("bert", "roberta")


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A student: layers of the teacher, or a new shape. Vocabulary, tokenizer and labels are the teacher's."""

    name: str
    kept_layers: str | None = None
    """The teacher's layers to copy, in the syntax of `shrink --layers`; None for random weights."""
    shape: Shape | None = None
    """Sizes of a student with random weights."""
    own_positions: bool = False
    """Whether the longest input is the shape's; otherwise it is the teacher's."""
    losses: str | None = None
    """The loss preset of the paper, for distillation on plain text; see `distillation.losses.presets`."""
    vocabulary: int = 30_522
    """Tokens of the published model."""
    millions: float
    """Its parameters as they were published."""
    counted_in: str = ""
    """Where this number is from, if not from `source`, whose own is rounded or counts another model."""
    source: str
    """The paper or model that the shape comes from."""

    @property
    def own_family(self) -> str | None:
        """The family of all its students; None if they are of the teacher's.

        A BERT or RoBERTa has only sizes that all families have, so its shape can be built in each of them.
        """
        return self.shape.family if self.shape and self.shape.family not in _PLAIN else None

    @property
    def summary(self) -> str:
        """One line for help and messages."""
        if self.shape is None:
            return f"{self.kept_layers} layers of the teacher, of the same width ({self.source})"
        shape = self.shape
        family = f"{self.own_family} of " if self.own_family else ""
        sizes = f"{family}{shape.layers} x {shape.hidden}, {shape.heads} heads, ffn {shape.ffn}"
        return f"{sizes}, from random weights ({self.source})"


def _of_shape(name: str, millions: float, *, shape: str = "", **others: Any) -> Preset:
    """Return the row of a named shape."""
    row = SHAPES[shape or name]
    return Preset(**{"name": name, "shape": row, "millions": millions, "source": row.source, **others})


_COMPACT = "Rohanian et al. 2023, compact biomedical transformers, section 4"
_CASED, _BIOFORMER, _BYTES, _MODERN = 28_996, 32_768, 50_265, 50_368  # tokens of published vocabularies

PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="distil",
            kept_layers="every-other",
            losses="distilbert",
            vocabulary=_CASED,
            millions=65,
            source=f"DistilBioBERT, {_COMPACT}",
        ),
        Preset(
            name="compact",
            kept_layers="odd",
            losses="compact",
            vocabulary=_CASED,
            millions=65,
            source=f"CompactBioBERT, {_COMPACT}",
        ),
        _of_shape(
            "tiny",
            14.35,
            losses="tinybiobert",
            counted_in="weights of huawei-noah/TinyBERT_General_4L_312D; its paper prints 14.5M, and Rohanian et al. "
            "15M, although their cased vocabulary of 28,996 tokens gives 13.9M",
        ),
        _of_shape("mobile", 25),
        _of_shape("bioformer-8l", 43, own_positions=True, vocabulary=_BIOFORMER),
        _of_shape("bioformer-16l", 42, own_positions=True, vocabulary=_BIOFORMER),
        _of_shape(
            "biolm-base",
            125,
            shape="roberta-base",
            vocabulary=_BYTES,
            losses="biolm",
            source="Lewis et al. 2020, bio-lm, sections 4.1 and 7",
        ),
        _of_shape("minilm-l12", 33),
        _of_shape(
            "minilm-l6",
            22.71,
            counted_in="weights of sentence-transformers/all-MiniLM-L6-v2; the paper of MiniLM prints 22M",
        ),
        _of_shape("minilm-l3", 17.39, counted_in="weights of sentence-transformers/paraphrase-MiniLM-L3-v2"),
        _of_shape("bert-tiny", 4.4),
        _of_shape("bert-mini", 11.3),
        _of_shape("bert-small", 29.1),
        _of_shape("bert-medium", 41.7),
        _of_shape(
            "electra-small",
            13.55,
            counted_in="KerasHub's electra_small_discriminator_uncased_en, with a dense layer of 0.07M on top; the "
            "paper prints 14M",
        ),
        _of_shape("electra-base", 110),
        _of_shape("modernbert-17m", 17, vocabulary=_MODERN),
        _of_shape("modernbert-32m", 32, vocabulary=_MODERN),
        _of_shape("modernbert-68m", 68, vocabulary=_MODERN),
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
