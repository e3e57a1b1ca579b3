"""Named shapes of encoders, one row each. Torch-free; `new_config.py` makes configs of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
_COMPACT = "Rohanian et al. 2023, compact biomedical transformers, section 4"
_BIOFORMER = "Fang et al. 2023, Bioformer, table 1"
_MINILM = "Wang et al. 2020, MiniLM"
_MINIATURES = "Turc et al. 2019, well-read students, table 1"
_MODERNBERT = "Warner et al. 2024, ModernBERT, section 2.1.3"
_BASE: Mapping[str, Any] = {"layers": 12, "hidden": 768, "heads": 12, "ffn": 3072}
_LARGE: Mapping[str, Any] = {"layers": 24, "hidden": 1024, "heads": 16, "ffn": 4096}
_NARROW: Mapping[str, Any] = {"hidden": 384, "heads": 12, "ffn": 1536}
_ETTIN: Mapping[str, Any] = {
    "positions": 8192,
    "source": "Weller et al. 2025, Ettin: ModernBERT's layers in small, with the positions and rotations of ModernBERT",
}

_FAIRSEQ: Mapping[str, Any] = {"type_vocab_size": 1, "layer_norm_eps": 1e-5}
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
        Shape(name="roberta-base", family="roberta", **_BASE, settings=_FAIRSEQ, source=_ROBERTA),
        Shape(name="roberta-large", family="roberta", **_LARGE, settings=_FAIRSEQ, source=_ROBERTA),
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
            settings=_FAIRSEQ,
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
        Shape(name="tiny", family="bert", layers=4, hidden=312, heads=12, ffn=1200, source=f"TinyBioBERT, {_COMPACT}"),
        Shape(
            name="bioformer-8l",
            family="bert",
            layers=8,
            hidden=512,
            heads=8,
            ffn=2048,
            source=f"8L, {_BIOFORMER}",
        ),
        Shape(
            name="bioformer-16l",
            family="bert",
            layers=16,
            hidden=384,
            heads=6,
            ffn=1536,
            positions=1024,
            source=f"16L, {_BIOFORMER}",
        ),
        Shape(name="minilm-l12", family="bert", layers=12, **_NARROW, source=_MINILM),
        Shape(name="minilm-l6", family="bert", layers=6, **_NARROW, source=_MINILM),
        Shape(name="minilm-l3", family="bert", layers=3, **_NARROW, source=f"half the layers of minilm-l6, {_MINILM}"),
        Shape(name="bert-tiny", family="bert", layers=2, hidden=128, heads=2, ffn=512, source=_MINIATURES),
        Shape(name="bert-mini", family="bert", layers=4, hidden=256, heads=4, ffn=1024, source=_MINIATURES),
        Shape(name="bert-small", family="bert", layers=4, hidden=512, heads=8, ffn=2048, source=_MINIATURES),
        Shape(name="bert-medium", family="bert", layers=8, hidden=512, heads=8, ffn=2048, source=_MINIATURES),
        Shape(
            name="mobile",
            family="mobilebert",
            layers=24,
            hidden=512,
            heads=4,
            ffn=512,
            embedding=128,
            settings={"intra_bottleneck_size": 128, "num_feedforward_networks": 4},
            source=f"BioMobileBERT, {_COMPACT}; Sun et al. 2020, MobileBERT, table 1",
        ),
        Shape(name="modernbert-17m", family="modernbert", layers=7, hidden=256, heads=4, ffn=384, **_ETTIN),
        Shape(name="modernbert-32m", family="modernbert", layers=10, hidden=384, heads=6, ffn=576, **_ETTIN),
        Shape(name="modernbert-68m", family="modernbert", layers=19, hidden=512, heads=8, ffn=768, **_ETTIN),
    )
}
