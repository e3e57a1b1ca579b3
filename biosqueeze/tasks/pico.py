"""PICO elements (EBM-NLP; Nye et al. 2018): tagged as entities are, scored word by word.

The PubMedBERT paper (section 4.2): "For each of the PIO elements in an abstract, we tally the F1 score at the word
level, and then compute the final score as the average among PIO elements in the dataset."
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from biosqueeze.tasks import ner
from biosqueeze.tasks.encoding.tag_schemes import OUTSIDE, parts


@dataclass(frozen=True)
class Kind(ner.Kind):
    """PICO elements: participants (PAR), interventions (INT) and outcomes (OUT), or whatever types the data have."""

    METRIC: ClassVar[str] = "macro_f1"

    def score(self, gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
        """F1 over words, for each element and as their mean; where in an element a word stands does not matter.

        Args:
            gold: for each sentence, the tag of every word, in any scheme.
            predicted: as gold.

        Returns:
            macro_f1 (mean over the elements that occur in either; 0 where none does), support (gold words in
            elements), and for each element precision-TYPE, recall-TYPE, f1-TYPE and support-TYPE.
        """
        true, guessed = list(_elements(gold)), list(_elements(predicted))
        hits = Counter(kind for kind, guess in zip(true, guessed, strict=True) if kind == guess)
        real, found = Counter(true), Counter(guessed)
        kinds = sorted((real | found).keys() - {OUTSIDE})
        rows = {kind: _row(hits[kind], real[kind], found[kind]) for kind in kinds}
        by_kind = {f"{name}-{kind}": value for kind, row in rows.items() for name, value in row.items()}
        return {
            "macro_f1": sum(row["f1"] for row in rows.values()) / max(len(rows), 1),
            "support": real.total() - real[OUTSIDE],
            **by_kind,
        }


def _elements(sentences: Sequence[Sequence[str]]) -> Iterator[str]:
    """The element of every word, O for none; tags without a type are all of the element "_"."""
    return (OUTSIDE if tag == OUTSIDE else parts(tag)[1] or "_" for tags in sentences for tag in tags)


def _row(hits: int, real: int, found: int) -> dict[str, float]:
    """Scores of one element, 0 where they are not defined."""
    return {
        "precision": hits / max(found, 1),
        "recall": hits / max(real, 1),
        "f1": 2 * hits / max(real + found, 1),
        "support": real,
    }
