"""What is kept of the articles of a source."""

import re
from dataclasses import dataclass

from biosqueeze.corpora.article import KINDS, WHOLE, ArticlePart

_UNITS = {"": 1, "K": 1_000, "M": 1_000_000, "G": 1_000_000_000}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([KMG]?)(B?)", re.IGNORECASE)


@dataclass(frozen=True)
class SampleSize:
    """How much of one kind of source to keep: a number of articles, bytes of text, or as many bytes as another kind."""

    kind: str
    articles: int | None = None
    bytes: int | None = None
    as_kind: str | None = None

    @property
    def amount(self) -> str:
        """The size in words."""
        if self.articles is not None:
            return f"{self.articles:,} articles"
        return f"{self.bytes:,} bytes" if self.bytes is not None else f"as many bytes as {self.as_kind}"

    @classmethod
    def parse(cls, text: str) -> "SampleSize":
        """Parse KIND=AMOUNT: pmc=1000000, pmc=1M, pmc=6GB or pmc=pubmed.

        Raises:
            ValueError: there is no such kind, or the amount is none of these.
        """
        kind, equals, amount = text.partition("=")
        if kind not in KINDS or not equals:
            raise ValueError(f"expected KIND=AMOUNT with one of {', '.join(KINDS)}")
        if amount in KINDS and amount != kind:
            return cls(kind, as_kind=amount)
        match = _AMOUNT.fullmatch(amount)
        count = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
        if match is None or not count:
            raise ValueError(f"{amount!r} is neither a number of articles (1M), a size (6GB), nor another kind")
        return cls(kind, bytes=count) if match[3] else cls(kind, articles=count)


@dataclass(frozen=True)
class CorpusSettings:
    """The text to keep, and the filters that every article has to pass."""

    parts: tuple[ArticlePart, ...] = WHOLE
    field: str = "text"
    least_words: int = 1
    most_words: int | None = None
    language: str | None = None
    """As `parse_language` returns it."""
    drop_retracted: bool = False
    near_duplicates: float | None = None
    """Jaccard similarity of the sets of five words in succession, from which two articles count as one."""
    samples: tuple[SampleSize, ...] = ()
    held_out: float = 0.0
    seed: int = 0
