"""Compare tokenizers on text: counts, shared pieces and the pieces of terms, as facts, rows and tables."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from biosqueeze.data.text.prepared import megabyte_progress
from biosqueeze.options import Block
from biosqueeze.progress import note
from biosqueeze.text_table import TextTable
from biosqueeze.vocabularies.comparison import (
    NamedTokenizer,
    PieceCounts,
    count_pieces,
    is_whole,
    load_named,
    shared_pieces,
    term_pieces,
)
from biosqueeze.vocabularies.sample import TextSample, sampled
from biosqueeze.vocabularies.terms import BIOMEDICAL_TERMS, read_terms


@dataclass(frozen=True, kw_only=True)
class ComparisonRequest:
    """Tokenizers to compare on lines of corpora; `terms` is a file, None for `BIOMEDICAL_TERMS`."""

    names: tuple[str, ...]
    corpora: tuple[str, ...]
    field: str
    most_bytes: int
    max_length: int
    terms: Path | None
    seed: int


@dataclass(frozen=True)
class Comparison:
    """The facts for --json, the rows for --table, and the tables."""

    facts: dict[str, Any]
    rows: tuple[dict[str, Any], ...]
    tables: tuple[Block, ...]


def compare(request: ComparisonRequest) -> Comparison:
    """Count the pieces of the same lines by every tokenizer.

    Raises:
        SqueezeError: a tokenizer, a corpus or the file of terms cannot be read.
    """
    terms = read_terms(request.terms) if request.terms else BIOMEDICAL_TERMS
    tokenizers = [load_named(name) for name in request.names]
    with (
        tempfile.TemporaryDirectory() as folder,
        sampled(request.corpora, request.field, request.most_bytes, request.seed, Path(folder)) as (sample, read),
    ):
        note(f"compared on {sample.lines:,} of {sum(source.lines for source in read):,} lines")
        counts = [count_pieces(tokenizer, _shown(sample, tokenizer)) for tokenizer in tokenizers]
        text = {"lines": sample.lines, "bytes": sample.bytes, "corpora": [asdict(source) for source in read]}
    pieces = {term: [term_pieces(tokenizer, term) for tokenizer in tokenizers] for term in terms}
    rows = tuple(_row(*pair, request.max_length) for pair in zip(tokenizers, counts, strict=True))
    shared = shared_pieces(tokenizers)
    facts = {
        "text": {**text, "words": counts[0].words},
        "vocabularies": [
            {**row, "shared_pieces": dict(zip(request.names, common, strict=True))}
            for row, common in zip(rows, shared, strict=True)
        ],
        "terms": {term: dict(zip(request.names, of_term, strict=True)) for term, of_term in pieces.items()},
    }
    tables = (
        _count_table(rows, f"{counts[0].words:,} words in {sample.lines:,} lines", request.max_length),
        *([_shared_table(request.names, shared)] if len(tokenizers) > 1 else []),
        _term_table(tokenizers, pieces),
    )
    return Comparison(facts, rows, tables)


def _shown(sample: TextSample, tokenizer: NamedTokenizer) -> Iterator[Sequence[str]]:
    """Yield the lines of a sample, with a progress bar."""
    with megabyte_progress(tokenizer.name, sample.bytes / 1e6) as progress:
        for batch in sample.batches():
            yield batch
            progress.advance(sum(map(len, batch)) + len(batch))


def _row(tokenizer: NamedTokenizer, counts: PieceCounts, max_length: int) -> dict[str, Any]:
    facts = counts.facts(max_length)
    lengths = facts.pop("tokens_of_a_line")
    return {
        "vocabulary": tokenizer.name,
        "kind": tokenizer.kind,
        "cased": tokenizer.is_cased,
        "pieces": tokenizer.core.get_vocab_size(),
        "pieces_per_word": facts["pieces_per_word"],
        "whole_words": facts["whole_words"],
        "unknown_pieces": facts["unknown"],
        **{f"tokens_{name}".replace("%", "_percent"): value for name, value in lengths.items()},
        "longer_lines": facts["longer"],
    }


def _count_table(rows: Sequence[dict[str, Any]], title: str, max_length: int) -> TextTable:
    """Return a table with a column for each vocabulary; one of each tokenizer would not fit into a terminal."""
    lines = [
        ("kind", *(f"{row['kind']}, {'cased' if row['cased'] else 'uncased'}" for row in rows)),
        ("pieces in the vocabulary", *(f"{row['pieces']:,}" for row in rows)),
        ("pieces per word", *(f"{row['pieces_per_word']:.3f}" for row in rows)),
        ("beside the first column", *(_change(row, rows[0]) for row in rows)),
        ("words kept whole", *(f"{row['whole_words']:.1%}" for row in rows)),
        ("unknown pieces", *(f"{row['unknown_pieces']:,}" for row in rows)),
        ("tokens of a line: mean", *(f"{row['tokens_mean']:.1f}" for row in rows)),
        ("median", *(f"{row['tokens_median']:,}" for row in rows)),
        ("95%", *(f"{row['tokens_95_percent']:,}" for row in rows)),
        ("99%", *(f"{row['tokens_99_percent']:,}" for row in rows)),
        ("most", *(f"{row['tokens_most']:,}" for row in rows)),
        (f"lines above {max_length:,} tokens", *(f"{row['longer_lines']:.2%}" for row in rows)),
    ]
    return TextTable(title, ("", *(row["vocabulary"] for row in rows)), tuple(lines), right_aligned=True)


def _change(row: dict[str, Any], first: dict[str, Any]) -> str:
    if row is first or not first["pieces_per_word"]:
        return ""
    return f"{row['pieces_per_word'] / first['pieces_per_word'] - 1:+.1%}"


def _shared_table(names: Sequence[str], shared: Sequence[Sequence[int]]) -> TextTable:
    rows = tuple((name, *(f"{count:,}" for count in counts)) for name, counts in zip(names, shared, strict=True))
    return TextTable("pieces that two vocabularies share", ("", *names), rows, right_aligned=True)


def _term_table(tokenizers: Sequence[NamedTokenizer], pieces: dict[str, list[tuple[str, ...]]]) -> TextTable:
    rows = [(term, *(" ".join(parts) for parts in of_term)) for term, of_term in pieces.items()]
    columns = zip(tokenizers, zip(*pieces.values(), strict=True), strict=True)
    whole = [sum(is_whole(tokenizer, parts) for parts in column) for tokenizer, column in columns]
    counts = (f"{count} of {len(pieces)}" for count in whole)
    names = [tokenizer.name for tokenizer in tokenizers]
    return TextTable("pieces of terms", ("", *names), (*rows, ("kept whole", *counts)))
