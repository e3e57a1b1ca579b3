"""PICO elements (EBM-NLP; Nye et al. 2018): tagged like entities, scored word by word.

The PubMedBERT paper (section 4.2): "For each of the PIO elements in an abstract, we tally the F1 score at the word
level, and then compute the final score as the average among PIO elements in the dataset."
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from biosqueeze.data.records.sample import SourceSample
from biosqueeze.tasks import Dataset, ner
from biosqueeze.tasks.encoding.tag_schemes import split_tag
from biosqueeze.tasks.metrics.entities import score_words_by_type
from biosqueeze.tasks.readers import tagged_sources as _sources

_NAMES = (("par", "p", "participants"), ("int", "i", "interventions"), ("out", "o", "outcomes"))
_RANKS = {name: rank for rank, names in enumerate(_NAMES) for name in names}


@dataclass(frozen=True)
class Kind(ner.Kind):
    """PICO elements: participants (PAR), interventions (INT) and outcomes (OUT), or whatever types the data have."""

    FORM: ClassVar[str] = "words or texts with PICO elements"
    METRIC: ClassVar[str] = "macro_f1"
    CONFIDENCE: ClassVar[float] = 0.9

    def sniff(self, sample: SourceSample) -> float:
        """Return `CONFIDENCE` if all types are PICO elements, and 0.45 for entities of other types."""
        confidence = super().sniff(sample)
        tags = _sources.sniff_tags(sample, self.formulation)
        types = {split_tag(tag)[1].casefold() for sentence in tags for tag in sentence} - {""}
        return confidence if types and types <= _RANKS.keys() else min(confidence, 0.45)

    def read(self, source: str, splits: Sequence[str]) -> Dataset:
        """Read tagged sentences; a word of several elements is of the last of participants, interventions, outcomes.

        So it is in the corpus's own script, which BLURB uses: of its test split 16,364 words are counted, as in table 3
        of the PubMedBERT paper.
        """
        return _sources.read(source, splits, self.formulation, _RANKS)

    def score(self, gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
        """Return F1 over words, for each element and as their mean: see `score_words_by_type`."""
        return score_words_by_type(gold, predicted)
