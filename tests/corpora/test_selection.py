"""Versions, duplicates, near duplicates and samples, against naive references."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.corpora.article import KINDS
from biosqueeze.corpora.parts import minhash
from biosqueeze.corpora.selection import ArticleTable, Decision, NearDuplicates, decide, rows_of_band
from biosqueeze.corpora.settings import CorpusSettings, SampleSize

ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.booleans()), min_size=1, max_size=30)


Noted = Sequence[tuple[int, int]]
NOTED = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 30)), max_size=5)


def table(rows: list[tuple[int, int, bool]], withdrawn: Noted = (), dropped: Noted = ()) -> ArticleTable:
    """Return a table of (id, text, damaged); id 0 is none."""
    generator = np.random.default_rng(0)
    ids, texts, damaged = (np.array(column) for column in zip(*rows, strict=True))
    deletions, filtered = (np.array(noted, dtype=np.uint64).reshape(-1, 2) for noted in (withdrawn, dropped))
    sizes = np.full(len(rows), 10, dtype=np.uint32)
    return ArticleTable(
        ids=ids.astype(np.uint64),
        texts=texts.astype(np.uint64),
        priorities=generator.integers(0, 2**63, len(rows), dtype=np.uint64),
        bytes=sizes,
        sentences=sizes,
        words=sizes,
        kinds=np.arange(len(rows), dtype=np.uint8) % 2,
        damaged=damaged.astype(bool),
        withdrawn=deletions[:, 0],
        withdrawn_at=deletions[:, 1].astype(np.int64),
        dropped=filtered[:, 0],
        dropped_at=filtered[:, 1].astype(np.int64),
    )


@given(ROWS, NOTED, NOTED)
def test_versions_and_duplicates(rows: list[tuple[int, int, bool]], withdrawn: Noted, dropped: Noted) -> None:
    decisions = decide(table(rows, withdrawn, dropped), CorpusSettings())
    kept: list[int] = []
    for place, (name, _, damaged) in enumerate(rows):
        later = any(other == name and not broken for other, _, broken in rows[place + 1 :])
        gone = any(other == name and before > place for other, before in (*withdrawn, *dropped))
        if not damaged and not (name and (later or gone)):
            kept.append(place)
    seen: set[int] = set()
    for place in kept:
        expected = Decision.DUPLICATE if rows[place][1] in seen else Decision.KEPT
        seen.add(rows[place][1])
        assert decisions[place] == expected
    assert all(decisions[place] != Decision.KEPT for place in range(len(rows)) if place not in kept)


def test_held_out_share_and_sample() -> None:
    rows = [(0, number, False) for number in range(20_000)]
    settings = CorpusSettings(held_out=0.1, samples=(SampleSize.parse(f"{KINDS[1]}=4000"),))
    decisions = decide(table(rows), settings)
    assert (decisions == Decision.NOT_SAMPLED).sum() == 6_000
    assert (decisions == Decision.HELD_OUT).sum() == pytest.approx(1_400, rel=0.1)
    # The sample does not change the share that is held out of it.
    sampled = decisions[np.arange(20_000) % 2 == 1]
    assert (sampled == Decision.HELD_OUT).sum() == pytest.approx(400, rel=0.2)


@pytest.mark.parametrize(("amount", "kept"), [("1500", 1500), ("70B", 7), ("pubmed", 2000), ("1.5K", 1500)])
def test_sample_sizes(amount: str, kept: int) -> None:
    rows = [(0, number, False) for number in range(4_000)]
    decisions = decide(table(rows), CorpusSettings(samples=(SampleSize.parse(f"pmc={amount}"),)))
    assert (decisions[1::2] == Decision.KEPT).sum() == kept
    assert (decisions[::2] == Decision.KEPT).all()


@pytest.mark.parametrize("sizes", permutations(["bioc=pmc", "pmc=pubmed", "pubmed=300"]))
def test_the_order_of_samples_is_no_matter(sizes: tuple[str, ...]) -> None:
    rows = [(0, number, False) for number in range(6_000)]
    kinds = np.array([KINDS.index(kind) for kind in ("pubmed", "pmc", "bioc")] * 2_000, dtype=np.uint8)
    settings = CorpusSettings(samples=tuple(map(SampleSize.parse, sizes)))
    decisions = decide(replace(table(rows), kinds=kinds), settings)
    assert [(decisions[kind::3] == Decision.KEPT).sum() for kind in (0, 1, 2)] == [300, 300, 300]


@pytest.mark.parametrize("text", ["pmc", "pmc=", "web=3", "pmc=0", "pmc=0.5", "pmc=pmc", "pmc=3X"])
def test_sample_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        SampleSize.parse(text)


def shingles(text: str) -> set[str]:
    words = text.split()
    return {" ".join(words[i : i + 5]) for i in range(len(words) - 4)}


def test_near_duplicates_against_jaccard() -> None:
    generator = random.Random(0)
    words = [f"w{n}" for n in range(300)]
    texts = [" ".join(generator.choices(words, k=200)) for _ in range(40)]
    for share in (0.0, 0.005, 0.3):  # of the words changed: near, near, far
        changed = [w if generator.random() >= share else "new" for w in texts[0].split()]
        texts.append(" ".join([*changed, "end"]))
    signatures = np.stack([minhash(text) for text in texts])
    near = NearDuplicates([signatures[:25], signatures[25:]], 0.8)
    repeated = near.repeated(np.ones(len(texts), dtype=bool))
    similar = [
        any(len(shingles(a) & shingles(b)) / len(shingles(a) | shingles(b)) >= 0.8 for b in texts[:place])
        for place, a in enumerate(texts)
    ]
    assert repeated.tolist() == similar
    assert sum(similar) == 2


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.8, 0.9, 1.0])
def test_bands_find_pairs_at_the_threshold(threshold: float) -> None:
    width = rows_of_band(threshold, 128)
    assert 1 - (1 - threshold**width) ** (128 // width) >= 0.99
