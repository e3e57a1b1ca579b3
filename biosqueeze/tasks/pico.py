"""PICO elements (EBM-NLP; Nye et al. 2018): tagged like entities, scored word by word.

The PubMedBERT paper (section 4.2): "For each of the PIO elements in an abstract, we tally the F1 score at the word
level, and then compute the final score as the average among PIO elements in the dataset."
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from biosqueeze.tasks import ner
from biosqueeze.tasks.metrics.entities import score_words_by_type


@dataclass(frozen=True)
class Kind(ner.Kind):
    """PICO elements: participants (PAR), interventions (INT) and outcomes (OUT), or whatever types the data have."""

    METRIC: ClassVar[str] = "macro_f1"

    def score(self, gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
        """Return F1 over words, for each element and as their mean: see `score_words_by_type`."""
        return score_words_by_type(gold, predicted)
