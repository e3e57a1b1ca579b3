"""Training with cached outputs equals training with the live teacher, which runs only once."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from biosqueeze.distillation.learner import Distiller
from biosqueeze.distillation.losses.config import LossConfig
from biosqueeze.distillation.options import DistillationOptions
from biosqueeze.distillation.teachers.cache.fill import fill_cache
from biosqueeze.distillation.teachers.cache.plan import (
    CacheRequest,
    _needed_items,
    build_cache_spec,
    open_teacher_cache,
)
from biosqueeze.distillation.teachers.cache.store import CacheStore
from biosqueeze.distillation.teachers.sources import CachedTeacher, LiveTeacher
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.training.batches import BatchSchedule, loader, longest_batch, single_item_batch
from tests import pico
from tests.distillation.teachers.cache.caching import (
    TOKENIZER,
    UNUSED_TEACHER,
    CountingTeacher,
    cache_request,
    distil,
    labelled,
    live,
    masked,
    mlm_losses,
    model_of,
    task_losses,
)


def compare(
    tmp_path: Path, request: CacheRequest, teacher: LiveTeacher, student_of: Callable[[], PreTrainedModel]
) -> None:
    """Compare the logs of training with the live teacher and with cached outputs."""
    beside = distil(tmp_path / "live", request, request.source, teacher, student_of())
    cache = open_teacher_cache(request)
    fill_cache(cache, teacher)
    assert cache.complete
    alone = distil(
        tmp_path / "cached", request, cache.source, CachedTeacher(request.loss_config.output_spec), student_of()
    )
    assert len(beside) == len(alone) > 3
    for first, second in zip(beside, alone, strict=True):
        assert set(first) == set(second) >= set(request.loss_config.weights)
        for name in (*request.loss_config.weights, "loss"):
            assert second[name] == pytest.approx(first[name], rel=2e-3, abs=1e-4), name
    assert max(line["loss"] for line in alone) > 1.01 * min(line["loss"] for line in alone)


def student() -> PreTrainedModel:
    return model_of(seed=1)


@pytest.mark.parametrize("pack", [False, True])
def test_all_classes_but_one_equal_the_live_teacher(pack: bool, text: Path, tmp_path: Path) -> None:
    top = len(TOKENIZER) - 1
    config = mlm_losses()
    request = cache_request(tmp_path / "cache", masked(text, pack=pack), config, cache_top=top, maskings=2, epochs=3)
    compare(tmp_path, request, live(config), student)


@pytest.mark.parametrize("output_type", ["tokens", "single", "multi", "score"])
def test_cached_task_logits_equal_the_live_teacher(output_type: str, tmp_path: Path) -> None:
    head = "token-classification" if output_type == "tokens" else "sequence-classification"
    labels = ("one",) if output_type == "score" else pico.LABELS

    def model(seed: int) -> PreTrainedModel:
        return pico.model_of("bert", len(TOKENIZER), head, labels, seed=seed)

    config = task_losses(output_type)
    request = cache_request(tmp_path / "cache", labelled(output_type), config, epochs=2)
    compare(tmp_path, request, live(config, model(0)), lambda: model(1))


def test_fewer_stored_classes_give_a_lower_loss(text: Path, tmp_path: Path) -> None:
    config, source = mlm_losses(weights={"kl": 1.0}), masked(text)
    learner, teacher = student(), live(config)
    bounds = []
    for top in (1, 8, 64):
        request = cache_request(tmp_path / "cache", source, config, cache_top=top)
        cache = open_teacher_cache(request)
        fill_cache(cache, teacher)
        [batch] = loader(replace(request.schedule, source=cache.source, total=1), 0)
        cached = Distiller(learner, CachedTeacher(config.output_spec), config, teacher_width=pico.HIDDEN).eval()
        bounds.append(float(cached(**batch)["kl"].detach()))
    beside = Distiller(learner, teacher, config, teacher_width=pico.HIDDEN).eval()
    whole = float(beside(**{n: t for n, t in batch.items() if not n.startswith("answer")})["kl"].detach())
    assert 0 < bounds[0] < bounds[1] < bounds[2] < whole
    assert bounds[2] > 0.3 * whole


def test_later_epochs_and_students_do_not_run_the_teacher(
    text: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = mlm_losses()
    first = cache_request(tmp_path / "cache", masked(text), config, epochs=1)
    cache, teacher = open_teacher_cache(first), CountingTeacher(live(config))
    assert not cache.complete
    fill_cache(cache, teacher)
    assert sorted(teacher.items) == list(range(len(first.source.blocks)))
    assert "kept for later epochs and students" in capfd.readouterr().err

    second = cache_request(tmp_path / "cache", masked(text), config, epochs=3, batch_size=7, lr=5e-3)
    cache = open_teacher_cache(second)
    assert cache.complete
    assert "the teacher is not run" in capfd.readouterr().err
    fill_cache(cache, UNUSED_TEACHER)
    log = distil(tmp_path / "student", second, cache.source, CachedTeacher(config.output_spec), model_of(seed=5))
    assert len(log) == 3 * second.schedule.batches_per_epoch


def test_second_masking_computes_only_its_own_outputs(text: Path, tmp_path: Path) -> None:
    config = mlm_losses()
    one_masking = cache_request(tmp_path / "cache", masked(text), config, epochs=3)
    fill_cache(open_teacher_cache(one_masking), live(config))
    two = cache_request(tmp_path / "cache", masked(text), config, epochs=3, maskings=2)
    teacher, cache = CountingTeacher(live(config)), open_teacher_cache(two)
    assert set(cache.missing()) == {1}
    fill_cache(cache, teacher)
    assert len(teacher.items) == len(two.source.blocks)
    first, second = ([cache.source.features(2, np.random.default_rng([0, 1 + m, 2]))] for m in (0, 1))
    assert first[0]["labels"].tolist() != second[0]["labels"].tolist()
    assert first[0]["teacher.ids"].tolist() != second[0]["teacher.ids"].tolist()


def test_short_run_computes_only_what_it_reads(text: Path, tmp_path: Path) -> None:
    config = mlm_losses()
    short = cache_request(tmp_path / "cache", masked(text), config, steps=2)
    cache, teacher = open_teacher_cache(short), CountingTeacher(live(config))
    fill_cache(cache, teacher)
    assert 8 <= len(teacher.items) <= 8 + 4 + 1  # its batches, the longest one, and a placeholder item
    distil(tmp_path / "short", short, cache.source, CachedTeacher(config.output_spec), model_of(seed=1))
    for make_batch in (longest_batch, single_item_batch):
        assert "teacher.ids" in make_batch(replace(short.schedule, source=cache.source))

    rest = CountingTeacher(live(config))
    fill_cache(open_teacher_cache(cache_request(tmp_path / "cache", masked(text), config, steps=40)), rest)
    assert sorted(teacher.items + rest.items) == list(range(len(short.source.blocks)))


def test_outputs_of_other_features_are_not_used(text: Path, tmp_path: Path) -> None:
    config = mlm_losses()
    request = cache_request(tmp_path / "cache", masked(text), config)
    cache = open_teacher_cache(request)
    fill_cache(cache, live(config))
    cache.source.features(3, np.random.default_rng([0, 1, 3]))
    with pytest.raises(SqueezeError, match="no teacher outputs for item 3"):
        cache.source.features(3, np.random.default_rng([0, 2, 3]))


def test_pickled_source_gives_the_same(text: Path, tmp_path: Path) -> None:
    config = mlm_losses()
    request = cache_request(tmp_path / "cache", masked(text), config)
    cache = open_teacher_cache(request)
    fill_cache(cache, live(config))
    copy = pickle.loads(pickle.dumps(cache.source))
    assert len(pickle.dumps(CacheStore(cache.store.folder))) < 1000  # the folder's path alone
    for item in range(40):
        original, copied = (s.features(item, np.random.default_rng([0, 1, item])) for s in (cache.source, copy))
        assert (
            set(original)
            == set(copied)
            >= {"teacher.ids", "teacher.rest", "teacher.log_probabilities", "teacher.hidden.0"}
        )
        assert all(np.array_equal(original[name], copied[name]) for name in original)
    assert original["teacher.ids"].dtype == np.uint16
    assert isinstance(original["teacher.hidden.0"].base, np.ndarray)  # a view of the map


def test_several_teachers_are_cached_as_their_mean(text: Path, tmp_path: Path) -> None:
    config = mlm_losses(weights={"kl": 1.0})
    both = live(config, model_of(), model_of(seed=7))
    request = replace(
        cache_request(tmp_path / "cache", masked(text), config, cache_top=len(TOKENIZER) - 1),
        teachers=["a", "b"],
        teacher_weights=[1.0, 1.0],
    )
    compare(tmp_path, request, both, student)


@pytest.mark.parametrize(
    ("config", "top", "message"),
    [
        (
            mlm_losses(weights={"kl": 1.0, "attention-kl": 1.0, "minilm": 1.0}),
            None,
            "--loss attention-kl, minilm compares",
        ),
        (task_losses("span", weights={"kl": 1.0, "cosine": 1.0}), None, "a head that marks spans"),
        (mlm_losses(weights={"mlm": 1.0}), None, "--loss mlm reads no teacher outputs"),
        (mlm_losses(weights={"mlm": 1.0, "cosine": 1.0}), 9, "--cache-top is for soft labels"),
        (task_losses("tokens"), 9, "--cache-top is for soft labels"),
    ],
)
def test_outputs_that_cannot_be_cached_raise(config: LossConfig, top: int | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build_cache_spec(config, top)


def test_hidden_states_of_spans_are_cached() -> None:
    assert build_cache_spec(task_losses("span", weights={"hard": 1.0, "cosine": 1.0})).depths == (3,)


def test_no_logits_are_cached_for_losses_without_them(text: Path, tmp_path: Path) -> None:
    config = mlm_losses(weights={"mlm": 1.0, "cosine": 1.0})
    request = cache_request(tmp_path / "cache", masked(text), config)
    compare(tmp_path, request, live(config), student)
    output = open_teacher_cache(request).store.find(0, 0)
    assert output is not None
    assert set(output.arrays) == {"hidden.3"}


def test_unused_cache_options_raise() -> None:
    with pytest.raises(UsageError, match="--cache-top needs --cache-teacher"):
        DistillationOptions(cache_top=5)
    with pytest.raises(UsageError, match="--maskings must be at least 1"):
        DistillationOptions(maskings=0)
    assert DistillationOptions().repeated_maskings is None
    assert DistillationOptions(maskings=4).repeated_maskings == 4
    assert DistillationOptions(cache_teacher="cache").repeated_maskings == 1


def test_unusable_directory_raises(text: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(SqueezeError, match=r"--cache-teacher .* cannot be used .*; name a directory of yours"):
        open_teacher_cache(cache_request(file, masked(text), mlm_losses()))


@dataclass(frozen=True)
class Drawn:
    """A sample of many items, another in each epoch."""

    count: int
    pad_token_id: int = 0

    def draw(self, epoch: int, rng: np.random.Generator) -> np.ndarray:
        return rng.choice(10 * self.count, size=self.count, replace=False)

    def length(self, items: np.ndarray) -> np.ndarray:
        return items % 7


@given(st.integers(1, 40), st.sampled_from([1, 4, 6, 16]), st.integers(1, 30), st.sampled_from([1, 3]))
@settings(max_examples=60, deadline=None)
def test_needed_items_cover_every_auto_batch_split(count: int, size: int, total: int, maskings: int) -> None:
    schedule = BatchSchedule(Drawn(count), size, 0, total, maskings=maskings)
    needed = _needed_items(schedule, whole_epochs=True)
    for parts in (part for part in range(1, size + 1) if size % part == 0):
        cut = replace(schedule, batch_size=size // parts, total=total * parts)
        for epoch, item in chain.from_iterable(cut):
            assert item in needed[epoch % maskings]
