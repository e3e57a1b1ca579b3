"""Training with a teacher's kept answers is training with the live teacher, which is asked only once."""

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
from biosqueeze.distillation.loss_config import LossConfig
from biosqueeze.distillation.options import DistillationOptions
from biosqueeze.distillation.teacher_cache.fill import ask
from biosqueeze.distillation.teacher_cache.plan import CacheRequest, _needed, kept_of, open_answers
from biosqueeze.distillation.teacher_cache.store import Store
from biosqueeze.distillation.teachers import CachedTeacher, LiveTeacher
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.training.batches import BatchSchedule, loader, longest_batch, single_item_batch
from tests import pico
from tests.distillation.teacher_cache.caching import (
    NOBODY,
    TOKENIZER,
    Counting,
    distil,
    inquiry,
    labelled,
    live,
    masked,
    mlm_recipe,
    model_of,
    task_recipe,
)


def compare(
    tmp_path: Path, asked: CacheRequest, teacher: LiveTeacher, student_of: Callable[[], PreTrainedModel]
) -> None:
    """Training beside the teacher and training with its kept answers log the same."""
    beside = distil(tmp_path / "live", asked, asked.source, teacher, student_of())
    answers = open_answers(asked)
    ask(answers, teacher)
    assert answers.complete
    alone = distil(tmp_path / "cached", asked, answers.source, CachedTeacher(asked.recipe.question), student_of())
    assert len(beside) == len(alone) > 3
    for first, second in zip(beside, alone, strict=True):
        assert set(first) == set(second) >= set(asked.recipe.weights)
        for name in (*asked.recipe.weights, "loss"):
            assert second[name] == pytest.approx(first[name], rel=2e-3, abs=1e-4), name
    assert max(line["loss"] for line in alone) > 1.01 * min(line["loss"] for line in alone)


def student() -> PreTrainedModel:
    return model_of(seed=1)


@pytest.mark.parametrize("pack", [False, True])
def test_all_classes_but_one_are_as_good_as_the_live_teacher(pack: bool, text: Path, tmp_path: Path) -> None:
    top = len(TOKENIZER) - 1
    recipe = mlm_recipe()
    asked = inquiry(tmp_path / "kept", masked(text, pack=pack), recipe, cache_top=top, maskings=2, epochs=3)
    compare(tmp_path, asked, live(recipe), student)


@pytest.mark.parametrize("output_type", ["tokens", "single", "multi", "score"])
def test_logits_of_a_task_are_as_good_as_the_live_teacher(output_type: str, tmp_path: Path) -> None:
    head = "token-classification" if output_type == "tokens" else "sequence-classification"
    labels = ("one",) if output_type == "score" else pico.LABELS

    def made(seed: int) -> PreTrainedModel:
        return pico.model_of("bert", len(TOKENIZER), head, labels, seed=seed)

    recipe = task_recipe(output_type)
    asked = inquiry(tmp_path / "kept", labelled(output_type), recipe, epochs=2)
    compare(tmp_path, asked, live(recipe, made(0)), lambda: made(1))


def test_few_classes_give_a_lower_bound(text: Path, tmp_path: Path) -> None:
    recipe, source = mlm_recipe(weights={"kl": 1.0}), masked(text)
    learner, teacher = student(), live(recipe)
    bounds = []
    for top in (1, 8, 64):
        asked = inquiry(tmp_path / "kept", source, recipe, cache_top=top)
        answers = open_answers(asked)
        ask(answers, teacher)
        [batch] = loader(replace(asked.schedule, source=answers.source, total=1), 0)
        recorded = Distiller(learner, CachedTeacher(recipe.question), recipe, teacher_width=pico.HIDDEN).eval()
        bounds.append(float(recorded(**batch)["kl"].detach()))
    beside = Distiller(learner, teacher, recipe, teacher_width=pico.HIDDEN).eval()
    whole = float(beside(**{n: t for n, t in batch.items() if not n.startswith("answer")})["kl"].detach())
    assert 0 < bounds[0] < bounds[1] < bounds[2] < whole
    assert bounds[2] > 0.3 * whole


def test_a_second_epoch_and_a_second_student_do_without_the_teacher(
    text: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recipe = mlm_recipe()
    first = inquiry(tmp_path / "kept", masked(text), recipe, epochs=1)
    answers, teacher = open_answers(first), Counting(live(recipe))
    assert not answers.complete
    ask(answers, teacher)
    assert sorted(teacher.items) == list(range(len(first.source.blocks)))
    assert "kept for later epochs and students" in capfd.readouterr().err

    second = inquiry(tmp_path / "kept", masked(text), recipe, epochs=3, batch_size=7, lr=5e-3)
    answers = open_answers(second)
    assert answers.complete
    assert "the teacher is not needed" in capfd.readouterr().err
    ask(answers, NOBODY)
    log = distil(tmp_path / "student", second, answers.source, CachedTeacher(recipe.question), model_of(seed=5))
    assert len(log) == 3 * second.schedule.batches_per_epoch


def test_another_masking_asks_for_that_one_alone(text: Path, tmp_path: Path) -> None:
    recipe = mlm_recipe()
    one_masking = inquiry(tmp_path / "kept", masked(text), recipe, epochs=3)
    ask(open_answers(one_masking), live(recipe))
    two = inquiry(tmp_path / "kept", masked(text), recipe, epochs=3, maskings=2)
    teacher, answers = Counting(live(recipe)), open_answers(two)
    assert set(answers.missing()) == {1}
    ask(answers, teacher)
    assert len(teacher.items) == len(two.source.blocks)
    first, second = ([answers.source.features(2, np.random.default_rng([0, 1 + m, 2]))] for m in (0, 1))
    assert first[0]["labels"].tolist() != second[0]["labels"].tolist()
    assert first[0]["teacher.ids"].tolist() != second[0]["teacher.ids"].tolist()


def test_a_short_run_asks_for_what_it_sees_and_a_longer_one_for_the_rest(text: Path, tmp_path: Path) -> None:
    recipe = mlm_recipe()
    short = inquiry(tmp_path / "kept", masked(text), recipe, steps=2)
    answers, teacher = open_answers(short), Counting(live(recipe))
    ask(answers, teacher)
    assert 8 <= len(teacher.items) <= 8 + 4 + 1  # its batches, the longest one, and one for idle processes
    distil(tmp_path / "short", short, answers.source, CachedTeacher(recipe.question), model_of(seed=1))
    for make_batch in (longest_batch, single_item_batch):
        assert "teacher.ids" in make_batch(replace(short.schedule, source=answers.source))

    rest = Counting(live(recipe))
    ask(open_answers(inquiry(tmp_path / "kept", masked(text), recipe, steps=40)), rest)
    assert sorted(teacher.items + rest.items) == list(range(len(short.source.blocks)))


def test_answers_to_something_else_are_not_taken(text: Path, tmp_path: Path) -> None:
    recipe = mlm_recipe()
    asked = inquiry(tmp_path / "kept", masked(text), recipe)
    answers = open_answers(asked)
    ask(answers, live(recipe))
    answers.source.features(3, np.random.default_rng([0, 1, 3]))
    with pytest.raises(SqueezeError, match="lacks what the teacher says about item 3 as it is now"):
        answers.source.features(3, np.random.default_rng([0, 2, 3]))


def test_pickled_for_a_worker_it_gives_the_same(text: Path, tmp_path: Path) -> None:
    recipe = mlm_recipe()
    asked = inquiry(tmp_path / "kept", masked(text), recipe)
    answers = open_answers(asked)
    ask(answers, live(recipe))
    copy = pickle.loads(pickle.dumps(answers.source))
    assert len(pickle.dumps(Store(answers.store.folder))) < 1000  # the folder's name, and no answer
    for item in range(40):
        mine, its = (s.features(item, np.random.default_rng([0, 1, item])) for s in (answers.source, copy))
        assert set(mine) == set(its) >= {"teacher.ids", "teacher.rest", "teacher.log_probabilities", "teacher.hidden.0"}
        assert all(np.array_equal(mine[name], its[name]) for name in mine)
    assert mine["teacher.ids"].dtype == np.uint16
    assert isinstance(mine["teacher.hidden.0"].base, np.ndarray)  # a view of the map


def test_several_teachers_are_kept_as_their_mean(text: Path, tmp_path: Path) -> None:
    recipe = mlm_recipe(weights={"kl": 1.0})
    both = live(recipe, model_of(), model_of(seed=7))
    asked = replace(
        inquiry(tmp_path / "kept", masked(text), recipe, cache_top=len(TOKENIZER) - 1),
        teachers=["a", "b"],
        shares=[1.0, 1.0],
    )
    compare(tmp_path, asked, both, student)


@pytest.mark.parametrize(
    ("recipe", "top", "message"),
    [
        (
            mlm_recipe(weights={"kl": 1.0, "attention-kl": 1.0, "minilm": 1.0}),
            None,
            "--loss attention-kl, minilm compares",
        ),
        (task_recipe("span", weights={"kl": 1.0, "cosine": 1.0}), None, "a head that marks spans"),
        (mlm_recipe(weights={"mlm": 1.0}), None, "--loss mlm asks the teacher nothing"),
        (mlm_recipe(weights={"mlm": 1.0, "cosine": 1.0}), 9, "--cache-top is for soft labels"),
        (task_recipe("tokens"), 9, "--cache-top is for soft labels"),
    ],
)
def test_what_cannot_be_kept_is_said(recipe: LossConfig, top: int | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        kept_of(recipe, top)


def test_hidden_states_of_spans_are_kept() -> None:
    assert kept_of(task_recipe("span", weights={"hard": 1.0, "cosine": 1.0})).depths == (3,)


def test_losses_that_read_rows_of_the_student_alone_need_no_logits(text: Path, tmp_path: Path) -> None:
    recipe = mlm_recipe(weights={"mlm": 1.0, "cosine": 1.0})
    asked = inquiry(tmp_path / "kept", masked(text), recipe)
    compare(tmp_path, asked, live(recipe), student)
    entry = open_answers(asked).store.find(0, 0)
    assert entry is not None
    assert set(entry.arrays) == {"hidden.3"}


def test_idle_options_are_refused() -> None:
    with pytest.raises(UsageError, match="--cache-top is for --cache-teacher"):
        DistillationOptions(cache_top=5)
    with pytest.raises(UsageError, match="--maskings must be at least 1"):
        DistillationOptions(maskings=0)
    assert DistillationOptions().repeated_maskings is None
    assert DistillationOptions(maskings=4).repeated_maskings == 4
    assert DistillationOptions(cache_teacher="kept").repeated_maskings == 1


def test_an_unusable_directory_is_said(text: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(SqueezeError, match=r"--cache-teacher .* cannot be used .*; name a directory of yours"):
        open_answers(inquiry(file, masked(text), mlm_recipe()))


@dataclass(frozen=True)
class Drawn:
    """Some items of many, others in each epoch."""

    count: int
    pad_token_id: int = 0

    def draw(self, epoch: int, rng: np.random.Generator) -> np.ndarray:
        return rng.choice(10 * self.count, size=self.count, replace=False)

    def length(self, items: np.ndarray) -> np.ndarray:
        return items % 7


@given(st.integers(1, 40), st.sampled_from([1, 4, 6, 16]), st.integers(1, 30), st.sampled_from([1, 3]))
@settings(max_examples=60, deadline=None)
def test_all_is_asked_for_whatever_auto_batch_cuts(count: int, size: int, total: int, maskings: int) -> None:
    schedule = BatchSchedule(Drawn(count), size, 0, total, maskings=maskings)
    needed = _needed(schedule, whole=True)
    for parts in (part for part in range(1, size + 1) if size % part == 0):
        cut = replace(schedule, batch_size=size // parts, total=total * parts)
        for epoch, item in chain.from_iterable(cut):
            assert item in needed[epoch % maskings]
