"""Named shapes of encoders that are trained from random weights, one row each. Torch-free."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from biosqueeze.errors import UsageError
from biosqueeze.models.presets import PRESETS
from biosqueeze.registry import closest


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of an encoder; the vocabulary comes from the tokenizer."""

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    ffn: int
    positions: int = 512
    """Longest input, special tokens included."""
    embedding: int | None = None
    """Width of the embeddings, where the family has one of its own (ELECTRA, ALBERT)."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Other values in config.json that differ from the family's defaults."""
    source: str
    """The paper or model that the shape comes from."""

    def __str__(self) -> str:
        """Return the sizes in words."""
        embedding = f", embeddings {self.embedding:,}" if self.embedding else ""
        sizes = f"{self.layers} layers x {self.hidden:,}, {self.heads} heads, ffn {self.ffn:,}{embedding}"
        return f"{self.family}, {sizes}, {self.positions:,} positions"


_BERT = "Devlin et al. 2019, BERT, section 3"
_ROBERTA = "Liu et al. 2019, RoBERTa, appendix D"
_ELECTRA = "Clark et al. 2020, ELECTRA, appendix A"
_ALBERT = "Lan et al. 2020, ALBERT, table 1"
_MODERNBERT = "Warner et al. 2024, ModernBERT, section 2.1.3"
_BASE: Mapping[str, Any] = {"layers": 12, "hidden": 768, "heads": 12, "ffn": 3072}
_LARGE: Mapping[str, Any] = {"layers": 24, "hidden": 1024, "heads": 16, "ffn": 4096}

_DISENTANGLED = {
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_buckets": 256,
    "position_biased_input": False,
}

SHAPES: Mapping[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape(name="bert-base", family="bert", **_BASE, source=_BERT),
        Shape(name="bert-large", family="bert", **_LARGE, source=_BERT),
        Shape(name="roberta-base", family="roberta", **_BASE, source=_ROBERTA),
        Shape(name="roberta-large", family="roberta", **_LARGE, source=_ROBERTA),
        Shape(
            name="electra-small",
            family="electra",
            layers=12,
            hidden=256,
            heads=4,
            ffn=1024,
            embedding=128,
            source=_ELECTRA,
        ),
        Shape(name="electra-base", family="electra", **_BASE, embedding=768, source=_ELECTRA),
        Shape(name="electra-large", family="electra", **_LARGE, embedding=1024, source=_ELECTRA),
        Shape(name="albert-base", family="albert", **_BASE, embedding=128, source=_ALBERT),
        Shape(
            name="albert-xxlarge",
            family="albert",
            layers=12,
            hidden=4096,
            heads=64,
            ffn=16384,
            embedding=128,
            source=_ALBERT,
        ),
        Shape(
            name="distilbert-base",
            family="distilbert",
            layers=6,
            hidden=768,
            heads=12,
            ffn=3072,
            source="Sanh et al. 2019, DistilBERT, section 3",
        ),
        Shape(
            name="xlm-roberta-base",
            family="xlm-roberta",
            **_BASE,
            settings={"type_vocab_size": 1, "layer_norm_eps": 1e-5},
            source="Conneau et al. 2020, XLM-R, section 3",
        ),
        Shape(
            name="deberta-v3-base",
            family="deberta-v2",
            **_BASE,
            settings=_DISENTANGLED,
            source="He et al. 2021, DeBERTaV3; config.json of microsoft/deberta-v3-base",
        ),
        Shape(
            name="modernbert-base",
            family="modernbert",
            layers=22,
            hidden=768,
            heads=12,
            ffn=1152,
            positions=8192,
            source=_MODERNBERT,
        ),
        Shape(
            name="modernbert-large",
            family="modernbert",
            layers=28,
            hidden=1024,
            heads=16,
            ffn=2624,
            positions=8192,
            source=_MODERNBERT,
        ),
        *(
            Shape(
                name=preset.name,
                family="bert",
                layers=preset.layers,
                hidden=preset.hidden,
                heads=preset.heads,
                ffn=preset.ffn,
                positions=preset.positions or 512,
                source=preset.source,
            )
            for preset in PRESETS.values()
            if preset.layers and preset.hidden and preset.heads and preset.ffn
        ),
    )
}


@dataclass(frozen=True, kw_only=True)
class ShapeChanges:
    """--layers, --hidden and so on: sizes in place of the named shape's."""

    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    ffn: int | None = None
    positions: int | None = None
    embedding: int | None = None


def find_shape(name: str, changes: ShapeChanges = ShapeChanges()) -> Shape:
    """Return the named shape with other sizes in place of its own.

    A changed hidden size changes the sizes that follow from it and were not given: the heads keep their size, the FFN
    its ratio to the hidden size, and embeddings as wide as the layers stay so.

    Raises:
        UsageError: there is no such shape, or the sizes do not fit together.
    """
    if name not in SHAPES:
        raise UsageError(f"--shape: there is no shape {name!r}.{closest(name, SHAPES)} Known: {', '.join(SHAPES)}")
    shape = SHAPES[name]
    given = {size: value for size, value in vars(changes).items() if value is not None}
    if "embedding" in given and shape.embedding is None:
        raise UsageError(f"--embedding: the embeddings of {shape.family} are as wide as its layers; leave it out")
    changed = replace(shape, **{**_following(shape, changes.hidden), **given})
    if changed.hidden % changed.heads:
        raise UsageError(
            f"--hidden {changed.hidden} cannot be divided into {changed.heads} heads; give a multiple of the heads, "
            f"such as {max(1, changed.hidden // changed.heads) * changed.heads}, or other --heads"
        )
    return changed


def _following(shape: Shape, hidden: int | None) -> dict[str, int | None]:
    """Return the sizes that follow from another hidden size."""
    if hidden is None:
        return {}
    heads = max(1, hidden * shape.heads // shape.hidden)
    embedding = hidden if shape.embedding == shape.hidden else shape.embedding
    return {"heads": heads, "ffn": hidden * shape.ffn // shape.hidden, "embedding": embedding}
