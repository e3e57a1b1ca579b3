"""Kept answers are found again where nothing that they depend on has changed, and only there."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from biosqueeze.distillation.teacher_cache.plan import CacheRequest
from tests.distillation.teacher_cache.caching import (
    inquiry,
    labelled,
    masked,
    mlm_recipe,
    task_recipe,
)

CHANGES: dict[str, Callable[[CacheRequest, Path], CacheRequest]] = {
    "teacher": lambda a, _: replace(a, teachers=["b"]),
    "two teachers": lambda a, _: replace(a, teachers=["a", "b"], shares=[1.0, 1.0]),
    "shares": lambda a, _: replace(a, teachers=["a", "b"], shares=[2.0, 1.0]),
    "mask rate": lambda a, text: replace(a, source=masked(text, rate=0.3)),
    "packing": lambda a, text: replace(a, source=masked(text, pack=True)),
    "text": lambda a, text: replace(a, source=masked(other_text(text))),
    "seed": lambda a, _: replace(a, options=replace(a.options, seed=1)),
    "top": lambda a, _: replace(a, options=replace(a.options, cache_top=7)),
    "precision": lambda a, _: replace(a, options=replace(a.options, precision="bf16")),
    "temperature": lambda a, _: replace(a, recipe=replace(a.recipe, temperature=1.0)),
    "depths": lambda a, _: replace(a, recipe=replace(a.recipe, layers=((4, 4),))),
    "no rows": lambda a, _: replace(a, recipe=replace(a.recipe, weights={"mlm": 1.0, "cosine": 1.0})),
    "task": lambda a, _: replace(a, source=labelled("tokens"), recipe=task_recipe("tokens")),
    "labels": lambda a, _: replace(a, source=labelled("tokens", seed=1), recipe=task_recipe("tokens")),
    "output type": lambda a, _: replace(a, source=labelled("tokens"), recipe=task_recipe("multi")),
    "teachers of a task": lambda a, _: replace(
        a, source=labelled("tokens"), recipe=task_recipe("tokens"), teachers=["a", "b"], shares=[1.0, 1.0]
    ),
    "their temperature": lambda a, _: replace(
        a,
        source=labelled("tokens"),
        recipe=replace(task_recipe("tokens"), temperature=1.0),
        teachers=["a", "b"],
        shares=[1.0, 1.0],
    ),
}


def other_text(text: Path) -> Path:
    other = text.with_name("other.txt")
    other.write_text(text.read_text().replace("the", "of"))
    return other


def test_the_key_tells_apart_all_that_an_answer_depends_on(text: Path, tmp_path: Path) -> None:
    asked = inquiry(tmp_path, masked(text), mlm_recipe())
    keys = {name: change(asked, text).key for name, change in CHANGES.items()}
    keys["as it was"] = asked.key
    assert len(set(keys.values())) == len(keys), keys


def test_the_key_does_not_depend_on_how_long_and_where(text: Path, tmp_path: Path) -> None:
    asked = inquiry(tmp_path, masked(text), mlm_recipe())
    moved = tmp_path / "moved.txt"
    moved.write_text(text.read_text())
    for same in (
        replace(asked, source=masked(moved)),
        replace(asked, options=replace(asked.options, epochs=9, batch_size=2, maskings=3, cache_teacher="elsewhere")),
        replace(asked, shares=[3.0]),
        replace(asked, recipe=mlm_recipe(weights={"kl": 7.0, "mse": 1.0, "embedding": 2.0})),
    ):
        assert same.key == asked.key
    task = replace(asked, source=labelled("tokens"), recipe=task_recipe("tokens"))
    mixed = replace(labelled("tokens"), ratio=2.0)
    for same in (
        replace(task, source=mixed),
        replace(task, options=replace(task.options, seed=3)),
        replace(task, recipe=replace(task.recipe, temperature=1.0)),
    ):
        assert same.key == task.key
