"""The key of the cache changes with everything that the outputs depend on, and with nothing else."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from biosqueeze.distillation.teachers.cache.plan import CacheRequest
from tests.distillation.teachers.cache.caching import (
    cache_request,
    labelled,
    masked,
    mlm_losses,
    task_losses,
)

CHANGES: dict[str, Callable[[CacheRequest, Path], CacheRequest]] = {
    "teacher": lambda a, _: replace(a, teachers=["b"]),
    "two teachers": lambda a, _: replace(a, teachers=["a", "b"], teacher_weights=[1.0, 1.0]),
    "shares": lambda a, _: replace(a, teachers=["a", "b"], teacher_weights=[2.0, 1.0]),
    "mask rate": lambda a, text: replace(a, source=masked(text, rate=0.3)),
    "packing": lambda a, text: replace(a, source=masked(text, pack=True)),
    "text": lambda a, text: replace(a, source=masked(other_text(text))),
    "seed": lambda a, _: replace(a, training=replace(a.training, seed=1)),
    "top": lambda a, _: replace(a, settings=replace(a.settings, top=7)),
    "precision": lambda a, _: replace(a, training=replace(a.training, precision="bf16")),
    "temperature": lambda a, _: replace(a, loss_config=replace(a.loss_config, temperature=1.0)),
    "depths": lambda a, _: replace(a, loss_config=replace(a.loss_config, layer_map=((4, 4),))),
    "no rows": lambda a, _: replace(a, loss_config=replace(a.loss_config, weights={"mlm": 1.0, "cosine": 1.0})),
    "task": lambda a, _: replace(a, source=labelled("tokens"), loss_config=task_losses("tokens")),
    "labels": lambda a, _: replace(a, source=labelled("tokens", seed=1), loss_config=task_losses("tokens")),
    "output type": lambda a, _: replace(a, source=labelled("tokens"), loss_config=task_losses("multi")),
    "teachers of a task": lambda a, _: replace(
        a, source=labelled("tokens"), loss_config=task_losses("tokens"), teachers=["a", "b"], teacher_weights=[1.0, 1.0]
    ),
    "their temperature": lambda a, _: replace(
        a,
        source=labelled("tokens"),
        loss_config=replace(task_losses("tokens"), temperature=1.0),
        teachers=["a", "b"],
        teacher_weights=[1.0, 1.0],
    ),
}


def other_text(text: Path) -> Path:
    other = text.with_name("other.txt")
    other.write_text(text.read_text().replace("the", "of"))
    return other


def test_key_changes_with_the_inputs_of_the_teacher(text: Path, tmp_path: Path) -> None:
    request = cache_request(tmp_path, masked(text), mlm_losses())
    keys = {name: change(request, text).key for name, change in CHANGES.items()}
    keys["unchanged"] = request.key
    assert len(set(keys.values())) == len(keys), keys


def test_key_ignores_length_of_run_and_directory(text: Path, tmp_path: Path) -> None:
    request = cache_request(tmp_path, masked(text), mlm_losses())
    moved = tmp_path / "moved.txt"
    moved.write_text(text.read_text())
    for same in (
        replace(request, source=masked(moved)),
        replace(request, training=replace(request.training, epochs=9, batch_size=2), maskings=3),
        replace(request, settings=replace(request.settings, directory="elsewhere")),
        replace(request, teacher_weights=[3.0]),
        replace(request, loss_config=mlm_losses(weights={"kl": 7.0, "mse": 1.0, "embedding": 2.0})),
    ):
        assert same.key == request.key
    task = replace(request, source=labelled("tokens"), loss_config=task_losses("tokens"))
    mixed = replace(labelled("tokens"), ratio=2.0)
    for same in (
        replace(task, source=mixed),
        replace(task, training=replace(task.training, seed=3)),
        replace(task, loss_config=replace(task.loss_config, temperature=1.0)),
    ):
        assert same.key == task.key
