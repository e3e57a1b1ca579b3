"""Find the teacher layers and heads that a student was cut from, by the manifests of both. Torch-free."""

from collections.abc import Sequence

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.manifest import Manifest


def layers_in_teacher(student: Checkpoint, teacher: Checkpoint) -> tuple[int, ...] | None:
    """Return for each student layer the teacher layer, counted from 0, that it was cut from.

    The student may have been cut from the teacher, or from a checkpoint that the teacher was fine-tuned from.

    Returns:
        None where the student was not cut from either, the teacher lacks one of its layers, or the manifests do not
        record it.
    """
    found = _common_ancestor(student, teacher)
    return found[1] if found else None


def heads_in_teacher(student: Checkpoint, teacher: Checkpoint) -> tuple[tuple[int, ...], ...] | None:
    """Return for each student layer the teacher's attention heads, counted from 0, that it kept.

    Returns:
        None where all are kept, where the teacher has lost heads of their common ancestor itself, or where the
        manifests record neither.
    """
    found = _common_ancestor(student, teacher)
    if found is None:
        return None
    ancestor, layers = found
    if ancestor != teacher.weights_sha256() and _source_heads(ancestor, teacher.manifest) is not None:
        return None
    heads = _source_heads(ancestor, student.manifest)
    return heads if heads is not None and len(heads) == len(layers) else None


def _common_ancestor(student: Checkpoint, teacher: Checkpoint) -> tuple[str, tuple[int, ...]] | None:
    """Return the hash of the ancestor that both have layers of, and the teacher's layers that the student has."""
    if student.manifest is None:
        return None
    teacher_hash = teacher.weights_sha256()
    # A model from random weights has no parent: "" is no common ancestor of two of them.
    for ancestor in filter(None, (teacher_hash, *reversed(_ancestors(teacher.manifest)))):
        student_layers = _source_layers(ancestor, student.manifest)
        total = max(student_layers, default=0) + 1 if student_layers else 0
        teacher_layers = tuple(range(total)) if ancestor == teacher_hash else _source_layers(ancestor, teacher.manifest)
        if student_layers and teacher_layers and set(student_layers) <= set(teacher_layers):
            return ancestor, tuple(teacher_layers.index(layer) for layer in student_layers)
    return None


def _ancestors(manifest: Manifest | None) -> list[str]:
    """Return the weight hashes of all checkpoints in a manifest's history, oldest first; "" for random weights."""
    return [entry.parent.sha256 if entry.parent else "" for entry in manifest.history] if manifest else []


def _source_layers(ancestor: str, manifest: Manifest | None) -> tuple[int, ...] | None:
    """Return the layers of an ancestor, given by the hash of its weights, that a checkpoint consists of."""
    if manifest is None or ancestor not in _ancestors(manifest):
        return None
    source: Sequence[int] | None = None  # all of them
    for entry in manifest.history[_ancestors(manifest).index(ancestor) :]:
        layers = entry.layers
        if layers is None and (entry.options.get("layers") or entry.options.get("student")):
            return None  # this stage cut layers and recorded none
        if layers is not None:
            source = layers if source is None else [source[layer] for layer in layers if layer < len(source)]
    depth = manifest.model.shape.layers
    if source is None:
        return tuple(range(depth)) if depth is not None else None
    return tuple(source) if len(source) == depth else None


def _source_heads(ancestor: str, manifest: Manifest | None) -> tuple[tuple[int, ...], ...] | None:
    """Return for each layer the heads of an ancestor, given by the hash of its weights, that it has; None for all."""
    if manifest is None or ancestor not in _ancestors(manifest):
        return None
    heads: tuple[tuple[int, ...], ...] | None = None
    for entry in manifest.history[_ancestors(manifest).index(ancestor) :]:
        if heads is not None and entry.layers is not None:
            heads = tuple(heads[layer] for layer in entry.layers if layer < len(heads))
        if entry.heads is not None:
            before = heads or tuple(tuple(range(max(layer, default=0) + 1)) for layer in entry.heads)
            rows = zip(before, entry.heads, strict=False)
            heads = tuple(tuple(row[head] for head in kept if head < len(row)) for row, kept in rows)
    return heads
