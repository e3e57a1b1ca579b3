import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biosqueeze.data.text import shards
from biosqueeze.data.text.blocks import EncodedLines
from biosqueeze.data.text.shards import ShardLayout, open_shard, write_shards

SHAPE = ShardLayout(length=16, special=2, vocabulary=30_000)
TEXTS = st.lists(st.lists(st.integers(0, 29_999), min_size=1, max_size=14), max_size=12)


def _part(texts: list[list[int]]) -> EncodedLines:
    ids = np.array([i for text in texts for i in text], dtype=np.int32)
    return EncodedLines(len(texts), ids, np.array([len(text) for text in texts], dtype=np.int64))


def _texts_of(shard) -> list[list[int]]:
    edges = shard.sequences
    return [shard.ids[edges[i] : edges[i + 1]].tolist() for i in range(len(edges) - 1)]


@settings(deadline=None, max_examples=40)
@given(parts=st.lists(TEXTS, max_size=6), shard_tokens=st.integers(1, 60))
def test_every_text_is_in_one_shard_and_no_block_is_too_long(tmp_path_factory, parts, shard_tokens):
    folder = tmp_path_factory.mktemp("shards")
    with patch.object(shards, "SHARD_TOKENS", shard_tokens):
        entries = write_shards(folder, (_part(texts) for texts in parts), SHAPE)
    found = [open_shard(folder / entry.name, entry) for entry in entries]
    assert sorted(t for shard in found for t in _texts_of(shard)) == sorted(t for texts in parts for t in texts)
    for shard in found:
        used = np.add.reduceat(np.diff(shard.sequences) + SHAPE.special, shard.blocks[:-1])
        assert used.max() <= SHAPE.length
        assert shard.blocks[-1] == len(shard.sequences) - 1
    assert sum(entry.texts for entry in entries) == sum(map(len, parts))
    assert all(entry.tokens >= shard_tokens for entry in entries[:-1])


@pytest.mark.parametrize(("vocabulary", "dtype"), [(1 << 16, np.uint16), ((1 << 16) + 1, np.int32)])
def test_small_vocabularies_have_ids_of_two_bytes(tmp_path, vocabulary, dtype):
    highest = vocabulary - 1
    (entry,) = write_shards(tmp_path, [_part([[0, highest, 1]])], ShardLayout(16, 2, vocabulary))
    shard = open_shard(tmp_path / entry.name, entry)
    assert shard.ids.dtype == dtype
    assert shard.ids.tolist() == [0, highest, 1]


def test_arrays_are_views_of_the_file(tmp_path):
    (entry,) = write_shards(tmp_path, [_part([[5, 6], [7]])], SHAPE)
    shard = open_shard(tmp_path / entry.name, entry)
    for array in (shard.ids, shard.sequences, shard.blocks):
        assert not array.flags.owndata
        assert not array.flags.writeable


def test_any_arrow_reader_reads_blocks_of_texts(tmp_path):
    pa = pytest.importorskip("pyarrow")
    (entry,) = write_shards(tmp_path, [_part([[5] * 10, [6] * 9, [7, 8], [9]])], SHAPE)
    rows = pa.ipc.open_file(tmp_path / entry.name).read_all()["texts"].to_pylist()
    assert sorted(map(sorted, rows)) == [[[5] * 10, [7, 8]], [[6] * 9, [9]]]


def test_no_text_is_no_shard(tmp_path):
    assert write_shards(tmp_path, [], SHAPE) == []
    assert (
        write_shards(tmp_path, [EncodedLines(3, np.array([], dtype=np.int32), np.array([], dtype=np.int64))], SHAPE)
        == []
    )
    assert list(tmp_path.iterdir()) == []


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _swap(path: Path) -> None:
    """Replace the shard by another of the same size."""
    path.rename(path.with_suffix(".former"))
    write_shards(path.parent, [_part([[5, 6, 7, 8]])], SHAPE)


@pytest.mark.parametrize("damage", [_cut, _zero, _swap])
def test_a_damaged_shard_is_not_opened(tmp_path, damage):
    (entry,) = write_shards(tmp_path, [_part([[5, 6], [7, 8]])], SHAPE)
    damage(tmp_path / entry.name)
    with pytest.raises((ValueError, OSError)):
        open_shard(tmp_path / entry.name, entry)


_READ_ALL = """
import re, sys
from pathlib import Path
from biosqueeze.data.text.prepared_corpus import Packed, open_corpus

def private_memory():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1000

blocks = Packed(open_corpus(Path(sys.argv[1])), 0)
tokens = int((blocks.features(0)["segments"] > 0).sum())
before = private_memory()
for item in range(1, len(blocks)):
    tokens += int((blocks.features(item)["segments"] > 0).sum())
print(tokens, private_memory() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_reading_a_corpus_needs_no_private_memory(tmp_path):
    from biosqueeze.files import write_json

    rng, parts, sizes = np.random.default_rng(0), 25, np.full(10_000, 100)
    stream = (EncodedLines(10_000, rng.integers(0, 30_000, 1_000_000, dtype=np.int32), sizes) for _ in range(parts))
    with patch.object(shards, "SHARD_TOKENS", 4_000_000):
        entries = write_shards(tmp_path, stream, ShardLayout(512, 2, 30_000))
    facts = {"length": 512, "before": [1], "after": [2], "shards": [vars(entry) for entry in entries]}
    write_json(tmp_path / "corpus.json", facts)
    assert sum(entry.bytes for entry in entries) > 50e6  # bytes
    done = subprocess.run([sys.executable, "-c", _READ_ALL, tmp_path], capture_output=True, text=True, check=True)
    tokens, grown = done.stdout.split()
    assert int(tokens) == parts * 10_000 * 102
    assert float(grown) < 8  # MB
