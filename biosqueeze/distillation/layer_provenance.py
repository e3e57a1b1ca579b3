"""Which layer of its teacher a student's layer once was: what the manifests of both remember. Torch-free."""

from collections.abc import Sequence

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.manifest import Manifest


def layers_in_teacher(student: Checkpoint, teacher: Checkpoint) -> tuple[int, ...] | None:
    """For each layer of the student the teacher's, counted from 0, that it was cut from.

    The student may have been cut from the teacher, or from what the teacher was fine-tuned from.

    Returns:
        None where the student was not cut from either, a layer that it has is not in the teacher, or nobody knows.
    """
    if student.manifest is None:
        return None
    itself = teacher.weights_sha256()
    for ancestor in (itself, *reversed(_ancestors(teacher.manifest))):
        mine = _taken_from(ancestor, student.manifest)
        total = max(mine, default=0) + 1 if mine else 0
        its = tuple(range(total)) if ancestor == itself else _taken_from(ancestor, teacher.manifest)
        if mine and its and set(mine) <= set(its):
            return tuple(its.index(layer) for layer in mine)
    return None


def _ancestors(manifest: Manifest | None) -> list[str]:
    return [entry.parent.sha256 for entry in manifest.history] if manifest else []


def _taken_from(ancestor: str, manifest: Manifest | None) -> tuple[int, ...] | None:
    """The layers of an ancestor, named by the hash of its weights, that a checkpoint is made of."""
    if manifest is None or ancestor not in _ancestors(manifest):
        return None
    kept: Sequence[int] | None = None  # all of them
    for entry in manifest.history[_ancestors(manifest).index(ancestor) :]:
        taken = entry.layers
        if taken is None and (entry.options.get("layers") or entry.options.get("student")):
            return None  # written before manifests told which
        if taken is not None:
            kept = taken if kept is None else [kept[layer] for layer in taken if layer < len(kept)]
    depth = manifest.model.shape.layers
    if kept is None:
        return tuple(range(depth)) if depth is not None else None
    return tuple(kept) if len(kept) == depth else None
