"""--fit-head: give teachers that were saved without a masked-language-model head a fitted one, from a cache on disk."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.cache import cache_folder, load_or_build
from biosqueeze.distillation.models import DistillationModels
from biosqueeze.distillation.teachers.head_fitting import FittedHead, HeadFitting, fit_head, head_parameters
from biosqueeze.errors import SqueezeError
from biosqueeze.progress import note
from biosqueeze.system import processes
from biosqueeze.training.precision import precision_of
from biosqueeze.training.resuming.hashes import checkpoint_hash, source_hash

FORMAT = 1  # part of each key: heads of another format are not read
_FILE = "head.safetensors"


def fit_missing_heads(
    models: DistillationModels, teachers: Sequence[Checkpoint], fitting: HeadFitting | None
) -> dict[str, dict[str, Any]]:
    """Fit a head to each teacher that lacks one; a student without a head starts from the first teacher's, if it fits.

    Args:
        models: plain encoders; changed in place.
        teachers: their checkpoints.
        fitting: how and on what; None without --fit-head.

    Returns:
        facts of each fitted head by the name of its teacher.

    Raises:
        SqueezeError: the corpus is too small, or the cache cannot be written.
    """
    facts: dict[str, dict[str, Any]] = {}
    if fitting is None:
        return facts
    for model, checkpoint, has_head in zip(models.teachers, teachers, models.teachers_have_head, strict=True):
        if not has_head:
            head = load_or_fit_head(model, checkpoint, fitting)
            copy_head(model, head.weights)
            facts[checkpoint.name] = head.facts
    if not models.student_has_head and copy_head(models.student, head_parameters(models.teachers[0])):
        note(f"the student starts with the head of {teachers[0].name}")
    return facts


def load_or_fit_head(model: PreTrainedModel, teacher: Checkpoint, fitting: HeadFitting) -> FittedHead:
    """Load a teacher's head from the cache, or fit and store it.

    Args:
        model: the teacher, with a newly initialized head.
        teacher: its checkpoint.
        fitting: how and on what.

    Raises:
        SqueezeError: the corpus is too small, or the cache cannot be written.
    """
    folder = cache_folder() / "heads" / f"{checkpoint_hash(teacher)[:12]}-{_key(fitting)}"
    load = partial(_load, {name: tensor.shape for name, tensor in head_parameters(model).items()})
    cached = load(folder)
    if cached is not None:
        note(
            f"the head of {teacher.name} is read from {folder}: perplexity {cached.after:,.1f} on held-out masked "
            "tokens when it was fitted"
        )
        return cached
    head = fit_head(model, teacher.name, fitting)
    if processes.is_main():
        load_or_build(folder, load, partial(_save, head), "head")
        note(f"the head is stored in {folder}")
    processes.barrier()
    cached = load(folder)
    if cached is None:
        raise SqueezeError(
            f"the fitted head in {folder} cannot be read by every process; set BIOSQUEEZE_CACHE to a shared disk"
        )
    return cached


def _key(fitting: HeadFitting) -> str:
    """Hash everything that the head depends on beside the teacher."""
    training = fitting.training
    batch_size = training.batch_size * training.accumulate * processes.count()
    content = [FORMAT, fitting.steps, training.seed, batch_size, precision_of(training), source_hash(fitting.source)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


@torch.no_grad()
def copy_head(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> bool:
    """Copy a head into a model; return False, with nothing changed, where names or shapes differ."""
    head = head_parameters(model)
    if {name: p.shape for name, p in head.items()} != {name: tensor.shape for name, tensor in weights.items()}:
        return False
    for name, parameter in head.items():
        parameter.copy_(weights[name])
    return True


def _save(head: FittedHead, folder: Path) -> None:
    perplexities = {"before": str(head.before), "after": str(head.after)}
    save_file(head.weights, folder / _FILE, {"format": "pt", **perplexities})


def _load(shapes: Mapping[str, torch.Size], folder: Path) -> FittedHead | None:
    """Read the head; None where it is missing, damaged or of other shapes."""
    try:
        with safe_open(folder / _FILE, "pt") as file:
            facts = file.metadata()
            # Copies: the tensors are views of the mapped file, and would change with it.
            weights = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - it is no mapping
            head = FittedHead(weights, float(facts["before"]), float(facts["after"]))
    except (OSError, SafetensorError, KeyError, ValueError, TypeError):
        return None
    return head if {name: tensor.shape for name, tensor in weights.items()} == dict(shapes) else None
