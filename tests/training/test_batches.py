"""The schedule is a pure function of the position, covers every item once per epoch, and buckets by length."""

from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from biosqueeze.training.batches import BatchSchedule, group_batches, loader, longest_batch, single_item_batch


@dataclass(frozen=True)
class Numbers:
    lengths: tuple[int, ...]
    pad_token_id: int = 0

    def draw(self, epoch: int, rng: np.random.Generator) -> np.ndarray:
        return np.arange(len(self.lengths))

    def length(self, items: np.ndarray) -> np.ndarray:
        return np.array(self.lengths)[items]

    def features(self, item: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        ids = np.full(self.lengths[item], item + 1)
        return {"input_ids": ids, "labels": rng.integers(0, 1000, size=len(ids))}


schedules = st.builds(
    BatchSchedule,
    source=st.builds(Numbers, lengths=st.lists(st.integers(1, 9), min_size=1, max_size=40).map(tuple)),
    batch_size=st.integers(1, 7),
    processes=st.integers(1, 3),
    process=st.just(0),
    seed=st.integers(0, 5),
    total=st.integers(1, 30),
)


@given(schedules, st.data())
@settings(max_examples=60, deadline=None)
def test_starting_late_gives_the_same_batches(schedule: BatchSchedule, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, schedule.total))
    assert list(replace(schedule, start=start)) == list(schedule)[start:]
    assert len(list(schedule)) == schedule.total


@given(schedules)
@settings(max_examples=60, deadline=None)
def test_each_epoch_has_every_item_once(schedule: BatchSchedule) -> None:
    whole = replace(schedule, total=2 * schedule.batches_per_epoch)
    items = len(schedule.source.lengths)
    seen = sorted(position for p in range(whole.processes) for batch in replace(whole, process=p) for position in batch)
    assert seen == [(epoch, item) for epoch in (0, 1) for item in range(items)]


@given(schedules)
@settings(max_examples=60, deadline=None)
def test_processes_share_the_batches_of_a_single_one(schedule: BatchSchedule) -> None:
    shares = [list(replace(schedule, process=p)) for p in range(schedule.processes)]
    alone = replace(schedule, processes=1, batch_size=schedule.batch_size * schedule.processes)
    together = [sorted(chain.from_iterable(parts)) for parts in zip(*shares, strict=True)]
    assert together == [sorted(batch) for batch in alone]
    for parts in zip(*shares, strict=True):
        sizes = [len(part) for part in parts]
        assert max(sizes) <= schedule.batch_size and max(sizes) - min(sizes) <= 1


def test_a_process_without_an_item_gets_an_empty_batch() -> None:
    schedule = BatchSchedule(Numbers((3, 5, 2)), 1, 0, 4, process=1, processes=2)
    for workers in (0, 2):
        assert [len(batch.get("input_ids", ())) for batch in loader(schedule, workers)] == [len(b) for b in schedule]
    assert [] in list(schedule)


def test_the_longest_batch_is_as_long_as_any() -> None:
    schedule = BatchSchedule(Numbers((3, 9, 2, 7, 4)), 2, 0, 3)
    assert (longest_batch(schedule)["input_ids"].numpy() == [[2] * 9, [4] * 7 + [0] * 2]).all()
    assert single_item_batch(schedule)["input_ids"].shape[0] == 1


def test_maskings_repeat_after_their_number() -> None:
    schedule = BatchSchedule(Numbers((6, 6)), 2, 0, 4, maskings=2)
    labels = [batch["labels"][batch["input_ids"][:, 0].argsort()] for batch in loader(schedule, 0)]
    assert not (labels[0] == labels[1]).all()
    assert (labels[0] == labels[2]).all() and (labels[1] == labels[3]).all()
    fresh = [batch["labels"] for batch in loader(replace(schedule, maskings=None), 0)]
    assert len({tuple(sorted(batch.flatten().tolist())) for batch in fresh}) == 4


@given(st.lists(st.integers(), max_size=20), st.integers(1, 5))
def test_groups_keep_all_and_only_the_last_is_short(batches: list[int], size: int) -> None:
    groups = list(group_batches(batches, size))
    assert list(chain.from_iterable(groups)) == batches
    assert all(len(part) == size for part in groups[:-1])


def test_epochs_differ_and_seeds_differ() -> None:
    source = Numbers(tuple([5] * 30))
    first = list(BatchSchedule(source, 5, 0, 12))
    assert [[i for _, i in b] for b in first[:6]] != [[i for _, i in b] for b in first[6:]]
    assert first != list(BatchSchedule(source, 5, 1, 12))


def test_buckets_save_padding() -> None:
    rng = np.random.default_rng(0)
    source = Numbers(tuple(rng.integers(1, 100, size=400).tolist()))
    padded = sum(max(source.lengths[i] for _, i in b) * len(b) for b in BatchSchedule(source, 8, 0, 50))
    assert padded < 1.1 * sum(source.lengths)


def test_worker_processes_give_the_same_batches() -> None:
    schedule = BatchSchedule(Numbers((3, 5, 2, 5, 4)), 2, 7, 6)
    pairs = zip(loader(schedule, workers=0), loader(schedule, workers=2), strict=True)
    assert all((a[name] == b[name]).all() for a, b in pairs for name in a)


def test_loader_pads_and_draws_randomness_by_position() -> None:
    schedule = BatchSchedule(Numbers((3, 5, 2, 5, 4)), 2, 7, 6)
    batches = list(loader(schedule, workers=0))
    resumed = list(loader(replace(schedule, start=4), workers=0))
    assert all((b["input_ids"] == a["input_ids"]).all() for a, b in zip(batches[4:], resumed, strict=True))
    assert all((b["labels"] == a["labels"]).all() for a, b in zip(batches[4:], resumed, strict=True))
    for batch in batches:
        assert (batch["labels"][batch["attention_mask"] == 0] == -100).all()
        assert (batch["input_ids"][batch["attention_mask"] == 0] == 0).all()


@dataclass(frozen=True)
class Changing(Numbers):
    """Its features hold the share of the training that was done."""

    done: float = 0.0

    def at(self, done: float) -> "Changing":
        return replace(self, done=done)

    def features(self, item: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return super().features(item, rng) | {"done": np.array(self.done)}


def test_features_change_with_the_share_that_is_done() -> None:
    schedule = BatchSchedule(Changing((3, 5, 2, 5, 4)), 2, 7, 6)
    shares = [float(batch["done"][0]) for batch in loader(schedule, 0)]
    assert shares == [number / 6 for number in range(6)]
    resumed = [float(batch["done"][0]) for batch in loader(replace(schedule, start=4), 0)]
    assert resumed == shares[4:]
    last_tenth = replace(schedule, done_from=0.9)
    assert np.allclose([float(b["done"][0]) for b in loader(last_tenth, 0)], [0.9 + i / 60 for i in range(6)])
    # The memory that a training needs is that of its end.
    assert float(longest_batch(schedule)["done"][0]) == 1.0
