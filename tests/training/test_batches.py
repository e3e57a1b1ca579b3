"""The schedule is a pure function of the position, covers every item once per epoch, and buckets by length."""

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from biosqueeze.training.batches import Schedule, loader


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
    Schedule,
    source=st.builds(Numbers, lengths=st.lists(st.integers(1, 9), min_size=1, max_size=40).map(tuple)),
    batch_size=st.integers(1, 7),
    seed=st.integers(0, 5),
    total=st.integers(1, 30),
)


@given(schedules, st.data())
@settings(max_examples=60, deadline=None)
def test_starting_late_gives_the_same_batches(schedule: Schedule, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, schedule.total))
    assert list(replace(schedule, start=start)) == list(schedule)[start:]
    assert len(list(schedule)) == schedule.total


@given(schedules)
@settings(max_examples=60, deadline=None)
def test_each_epoch_has_every_item_once(schedule: Schedule) -> None:
    whole = replace(schedule, total=2 * schedule.batches_per_epoch)
    items = len(schedule.source.lengths)
    seen = sorted(position for batch in whole for position in batch)
    assert seen == [(epoch, item) for epoch in (0, 1) for item in range(items)]


def test_epochs_differ_and_seeds_differ() -> None:
    source = Numbers(tuple([5] * 30))
    first = list(Schedule(source, 5, 0, 12))
    assert [[i for _, i in b] for b in first[:6]] != [[i for _, i in b] for b in first[6:]]
    assert first != list(Schedule(source, 5, 1, 12))


def test_buckets_save_padding() -> None:
    rng = np.random.default_rng(0)
    source = Numbers(tuple(rng.integers(1, 100, size=400).tolist()))
    padded = sum(max(source.lengths[i] for _, i in b) * len(b) for b in Schedule(source, 8, 0, 50))
    assert padded < 1.1 * sum(source.lengths)


def test_worker_processes_give_the_same_batches() -> None:
    schedule = Schedule(Numbers((3, 5, 2, 5, 4)), 2, 7, 6)
    pairs = zip(loader(schedule, workers=0), loader(schedule, workers=2), strict=True)
    assert all((a[name] == b[name]).all() for a, b in pairs for name in a)


def test_loader_pads_and_draws_randomness_by_position() -> None:
    schedule = Schedule(Numbers((3, 5, 2, 5, 4)), 2, 7, 6)
    batches = list(loader(schedule, workers=0))
    resumed = list(loader(replace(schedule, start=4), workers=0))
    assert all((b["input_ids"] == a["input_ids"]).all() for a, b in zip(batches[4:], resumed, strict=True))
    assert all((b["labels"] == a["labels"]).all() for a, b in zip(batches[4:], resumed, strict=True))
    for batch in batches:
        assert (batch["labels"][batch["attention_mask"] == 0] == -100).all()
        assert (batch["input_ids"][batch["attention_mask"] == 0] == 0).all()
