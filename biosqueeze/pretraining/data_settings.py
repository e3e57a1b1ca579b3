"""Which text a pretraining reads, and how it is masked and paired. Torch-free."""

import dataclasses
from dataclasses import dataclass
from typing import Literal

from biosqueeze.data.text.mask_rate import MaskRate, MaskUnit


@dataclass(frozen=True, kw_only=True)
class PretrainingDataSettings:
    """The options of the data."""

    corpus: tuple[str, ...]
    field: str = "text"  # of a JSONL corpus
    pairs: Literal["nsp", "sop"] | None = None  # None: single texts
    mask_unit: MaskUnit = "piece"
    mask_rate: MaskRate = dataclasses.field(default_factory=MaskRate)
    for_generator: bool = False  # mask as ELECTRA's generator needs it
    held_out: float | None = None
    """The share of the documents to hold out; None: the held-out share that `biosqueeze corpus` made, if any."""
    maskings: int | None = None  # epochs after which pairs repeat, as masks do; None: they never do
    pack: bool = True  # single texts into blocks of the full length
    seed: int = 0
