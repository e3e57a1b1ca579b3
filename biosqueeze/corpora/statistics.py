"""Statistics of a corpus: sizes, lengths of documents, and repeated texts."""

import hashlib
from array import array
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.text.corpus import read_text_documents
from biosqueeze.progress import track

HISTOGRAM_EDGES = (0, 25, 50, 100, 150, 200, 300, 500, 1000, 5000)  # words of a document, the lower ends


@dataclass(frozen=True)
class CorpusStatistics:
    """What `corpus inspect` shows; words are separated by white space."""

    documents: int
    sentences: int
    words: int
    bytes: int
    repeated_documents: int
    repeated_sentences: int
    words_by_document: dict[str, float]
    histogram: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        """Return the statistics for --json."""
        return asdict(self)


def corpus_statistics(source: str, field: str) -> CorpusStatistics:
    """Read a corpus once; 16 bytes by document and 8 by sentence are kept in memory.

    Args:
        source: as every --corpus takes it.
        field: the field of a JSONL record that holds the text.

    Raises:
        SqueezeError: it cannot be read, or holds no text.
    """
    words, documents, sentences = array("L"), array("Q"), array("Q")
    size = 0  # as corpus.json counts: with the line ends, and a blank line after each document
    with track("reading (documents)") as bar:
        for lines in read_text_documents(source, field):
            words.append(sum(len(line.split()) for line in lines))
            documents.append(_hash("\n".join(lines)))
            sentences.extend(map(_hash, lines))
            size += sum(len(line.encode()) + 1 for line in lines) + 1
            bar.advance()
    counts = np.array(words)
    return CorpusStatistics(
        documents=len(documents),
        sentences=len(sentences),
        words=int(counts.sum()),
        bytes=size,
        repeated_documents=_repeated(documents),
        repeated_sentences=_repeated(sentences),
        words_by_document=_quantiles(counts),
        histogram=_histogram(counts),
    )


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.casefold().encode(errors="replace"), digest_size=8).digest())


def _repeated(hashes: "array[int]") -> int:
    values = np.frombuffer(hashes, dtype=np.uint64)
    return len(values) - len(np.unique(values))


def _quantiles(words: NDArray[Any]) -> dict[str, float]:
    quantiles = {"least": 0.0, "5%": 0.05, "median": 0.5, "95%": 0.95, "most": 1.0}
    values = {name: round(float(np.quantile(words, share)), 1) for name, share in quantiles.items()}
    return {**values, "mean": round(float(words.mean()), 1)}


def _histogram(words: NDArray[Any]) -> dict[str, int]:
    edges = np.array(HISTOGRAM_EDGES)
    numbers = np.bincount(np.searchsorted(edges, words, side="right") - 1, minlength=len(edges))
    names = [f"{low:,} to {high - 1:,}" for low, high in pairwise(HISTOGRAM_EDGES)]
    names.append(f"{HISTOGRAM_EDGES[-1]:,} or more")
    return {name: int(count) for name, count in zip(names, numbers, strict=True)}
