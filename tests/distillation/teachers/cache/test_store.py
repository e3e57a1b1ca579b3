"""Stored outputs are read back unchanged, for all shapes and numbers of files."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from biosqueeze.distillation.teachers.cache.store import CachedOutput, CacheStore, checksum


def output(masking: int, item: int, rows: int, tokens: int) -> CachedOutput:
    rng = np.random.default_rng([masking, item])
    arrays = {
        "ids": rng.integers(0, 1 << 16, size=(rows, 5)).astype(np.uint16),
        "rest": rng.normal(size=rows).astype(np.float16),
        "hidden.4": rng.normal(size=(tokens, 3)).astype(np.float16),
    }
    return CachedOutput(masking, item, int(rng.integers(1 << 32)), arrays)


places = st.tuples(st.integers(0, 2), st.integers(0, 300))
sizes = st.tuples(st.integers(0, 4), st.integers(1, 6))


@given(st.dictionaries(places, sizes, min_size=1, max_size=25), st.integers(1, 10))
@settings(max_examples=40, deadline=None)
def test_round_trip(stored: dict[tuple[int, int], tuple[int, int]], in_a_file: int) -> None:
    outputs = [output(*place, *size) for place, size in stored.items()]
    with TemporaryDirectory() as folder:
        store = CacheStore(Path(folder))
        for start in range(0, len(outputs), in_a_file):
            store.write(outputs[start : start + in_a_file])
        for opened in (store, CacheStore(Path(folder))):
            assert len(opened) == len(outputs)
            for was in outputs:
                found = opened.find(was.masking, was.item)
                assert found is not None
                assert (found.masking, found.item, found.checksum) == (was.masking, was.item, was.checksum)
                assert list(found.arrays) == list(was.arrays)
                for name, array in was.arrays.items():
                    assert found.arrays[name].dtype == array.dtype
                    np.testing.assert_array_equal(found.arrays[name], array)
            every = np.arange(320)
            for masking in range(4):
                known = opened.has(masking, every)
                assert every[known].tolist() == sorted(item for m, item in stored if m == masking)
                assert all((opened.find(masking, item) is not None) == known[item] for item in (0, 5, 299, 319))


def test_output_stored_twice(tmp_path: Path) -> None:
    """Two runs may compute the same item at the same time."""
    store = CacheStore(tmp_path)
    store.write([output(0, 3, 2, 4), output(0, 4, 2, 4)])
    store.write([output(0, 3, 2, 4)])
    assert CacheStore(tmp_path).find(0, 3) is not None
    assert store.has(0, np.array([3, 4, 5])).tolist() == [True, True, False]


def test_checksum_depends_on_names_values_and_types() -> None:
    ids = np.arange(4)
    known = [
        {"input_ids": ids},
        {"labels": ids},
        {"input_ids": ids, "labels": ids},
        {"input_ids": ids[::-1]},
        {"input_ids": ids[:3]},
        {"input_ids": ids.astype(np.int32)},
    ]
    assert len({checksum(features) for features in known}) == len(known)
    assert checksum({"b": ids, "a": ids + 1}) == checksum({"a": ids + 1, "b": ids})


def test_files_are_memory_mapped(tmp_path: Path) -> None:
    store = CacheStore(tmp_path)
    store.write([output(0, item, 3, 6) for item in range(9)])
    found = CacheStore(tmp_path).find(0, 7)
    assert found is not None
    assert all(not array.flags.owndata and not array.flags.writeable for array in found.arrays.values())
