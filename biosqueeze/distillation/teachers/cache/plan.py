"""What --cache-teacher stores and under which key, and which outputs a run needs.

Later epochs and later students read the stored outputs. For that an item must look the same whenever it comes: it is
masked in one of `maskings` ways, as the schedule repeats them.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.collate import Features
from biosqueeze.data.feature_keys import TEACHER
from biosqueeze.distillation.losses.config import LossConfig
from biosqueeze.distillation.request import CacheSettings
from biosqueeze.distillation.teachers.cache.store import CacheStore, Ids, checksum
from biosqueeze.distillation.teachers.sources import OutputSpec
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.files import write_json
from biosqueeze.manifest import now
from biosqueeze.progress import note
from biosqueeze.system import processes
from biosqueeze.training.batches import BatchSchedule, ItemSource
from biosqueeze.training.job import steps_of
from biosqueeze.training.options import TrainingOptions
from biosqueeze.training.precision import precision_of
from biosqueeze.training.resuming.hashes import source_hash
from biosqueeze.training.sources import WrappedSource

META = "meta.json"
FORMAT = 2  # part of each key: folders of another format are not read
TOP = 64


@dataclass(frozen=True, kw_only=True)
class CacheSpec:
    """Which teacher outputs are stored."""

    output_spec: OutputSpec
    rows: Literal["none", "top", "logits"]  # "top": the most probable classes and the rest
    top: int = 0
    temperature: float = 1.0  # of "top"
    depths: tuple[int, ...] = ()  # whose hidden states are stored


def build_cache_spec(loss_config: LossConfig, top: int | None = None) -> CacheSpec:
    """Determine which teacher outputs the losses read.

    Args:
        loss_config: the losses.
        top: --cache-top.

    Raises:
        UsageError: the losses read outputs that cannot be stored, or none, or --cache-top has no effect.
    """
    losses, spec = loss_config.losses, loss_config.output_spec
    attention = [name for name, loss in losses.items() if loss.READS in ("attention", "relations")]
    if attention:
        raise UsageError(
            f"--cache-teacher stores soft labels and hidden states, but --loss {', '.join(attention)} compares "
            f"attention; leave --cache-teacher out, or leave {'them' if len(attention) > 1 else 'it'} out of the losses"
        )
    reads_logits = any(loss.NEEDS_TEACHER_LOGITS for loss in losses.values())
    if reads_logits and spec.output_type.classes_are_positions:
        raise UsageError(
            "--cache-teacher does not work with a head that marks spans, whose classes are the positions of a batch; "
            "leave it out"
        )
    depths = tuple(sorted(loss_config.teacher_parts))
    if not reads_logits and not depths:
        raise UsageError(f"--cache-teacher: --loss {', '.join(losses)} reads no teacher outputs; leave it out")
    if top is not None and not (reads_logits and spec.kind == "mlm"):
        raise UsageError("--cache-top is for soft labels over a vocabulary, which no loss reads here; leave it out")
    if reads_logits and spec.kind == "mlm":
        temperature = loss_config.temperature
        return CacheSpec(output_spec=spec, rows="top", top=top or TOP, temperature=temperature, depths=depths)
    return CacheSpec(output_spec=spec, rows="logits" if reads_logits else "none", depths=depths)


@dataclass(frozen=True)
class CacheRequest:
    """Teachers, losses and training data of a run that uses the cache."""

    teachers: Sequence[str]  # a hash of each: see `training.resuming.hashes.checkpoint_hash`
    teacher_weights: Sequence[float]
    loss_config: LossConfig
    source: ItemSource
    settings: CacheSettings
    training: TrainingOptions
    maskings: int = 1  # of each item
    facts: Mapping[str, Any] = field(default_factory=dict)  # added to META for readers: the teachers' names

    @cached_property
    def spec(self) -> CacheSpec:
        """Which outputs are stored."""
        return build_cache_spec(self.loss_config, self.settings.top)

    @cached_property
    def schedule(self) -> BatchSchedule:
        """The batches of the whole run, of all processes together."""
        training = self.training
        batch_size = training.batch_size * processes.count()
        schedule = BatchSchedule(self.source, batch_size, training.seed, 0, maskings=self.maskings)
        return replace(schedule, total=steps_of(training, schedule.batches_per_epoch)[1] * training.accumulate)

    @cached_property
    def content(self) -> dict[str, Any]:
        """Everything that the stored outputs depend on."""
        spec, total = self.spec, sum(self.teacher_weights)
        kind = spec.output_spec.kind
        # The distributions of several teachers are averaged at the temperature.
        uses_temperature = spec.rows == "top" or (spec.rows == "logits" and len(self.teachers) > 1)
        weighted = zip(self.teachers, self.teacher_weights, strict=True)
        return {
            "format": FORMAT,
            "teachers": [[teacher, round(weight / total, 9)] for teacher, weight in weighted],
            "data": source_hash(self.source),
            "kind": kind,
            "output type": spec.output_spec.output_type.name,
            "masking seed": self.training.seed if kind == "mlm" else None,
            "mask rate": self.settings.mask_rate if kind == "mlm" else None,
            "rows": spec.rows,
            "top": spec.top,
            "temperature": self.loss_config.temperature if uses_temperature else None,
            "hidden": list(spec.depths),
            "precision": precision_of(self.training),
        }

    @property
    def key(self) -> str:
        """A hash of the content, which names the folder."""
        return hashlib.sha256(json.dumps(self.content).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class CachedSource(WrappedSource):
    """Training data with the teacher's outputs attached."""

    store: CacheStore
    maskings: int

    def features(self, item: int, rng: np.random.Generator) -> Features:
        """Return the source's features, and under `teacher.*` the outputs for exactly these; see `data.collate.pad`.

        Raises:
            SqueezeError: the outputs for these features are not stored.
        """
        features = self.source.features(item, rng)
        expected = checksum(features)
        for masking in range(self.maskings):
            output = self.store.find(masking, item)
            if output is not None and output.checksum == expected:
                return {**features, **{TEACHER + name: array for name, array in output.arrays.items()}}
        raise SqueezeError(
            f"{self.store.folder} has no teacher outputs for item {item} in its current form; run the command again, "
            f"and if that does not help, delete the folder"
        )


@dataclass
class TeacherCache:
    """The stored outputs of a run, complete or not."""

    request: CacheRequest
    store: CacheStore

    @cached_property
    def needed(self) -> dict[int, Ids]:
        """The items that the run reads, by masking."""
        return _needed_items(self.request.schedule, whole_epochs=self.request.training.auto_batch)

    def missing(self) -> dict[int, Ids]:
        """Return the needed items that are not stored, by masking."""
        every = ((masking, items[~self.store.has(masking, items)]) for masking, items in self.needed.items())
        return {masking: items for masking, items in every if len(items)}

    @property
    def complete(self) -> bool:
        """Whether all needed outputs are stored."""
        return not self.missing()

    @property
    def source(self) -> CachedSource:
        """The training data with the stored outputs."""
        return CachedSource(self.request.source, self.store, self.request.maskings)


def open_teacher_cache(request: CacheRequest) -> TeacherCache:
    """Open the folder of a request in --cache-teacher, and note how complete it is.

    Raises:
        UsageError: the losses read outputs that cannot be stored.
        SqueezeError: the folder cannot be read or written.
    """
    directory = Path(request.settings.directory).expanduser()
    folder = directory / request.key
    try:
        store = CacheStore(folder)
        if not (folder / META).is_file() and processes.is_main():
            folder.mkdir(parents=True, exist_ok=True)
            write_meta(request, store)
    except OSError as error:
        raise SqueezeError(
            f"--cache-teacher {directory} cannot be used ({error.strerror or error}); name a directory of yours"
        ) from error
    cache = TeacherCache(request, store)
    if cache.complete:
        note(f"teacher cache: complete, {size_text(store.bytes)} in {folder}; the teacher is not run")
    elif len(store):
        note(f"teacher cache: {size_text(store.bytes)} in {folder}; some outputs are missing")
    return cache


def write_meta(request: CacheRequest, store: CacheStore) -> None:
    """Write a summary of the folder for human readers; no code reads it.

    Raises:
        OSError: the disk is full.
    """
    summary = {"outputs": len(store), "megabytes": round(store.bytes / 1e6, 3), "written": now()}
    write_json(store.folder / META, {**request.content, **request.facts, **summary})


def size_text(count: float) -> str:
    """Format a number of bytes."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _needed_items(schedule: BatchSchedule, *, whole_epochs: bool) -> dict[int, Ids]:
    """Return the items of a run by masking, in ascending order.

    Args:
        schedule: the run, with maskings.
        whole_epochs: the batches may become smaller (--auto-batch): take whole epochs, and all that may then be begun.
    """
    maskings, per_epoch = schedule.maskings or 1, schedule.batches_per_epoch
    marks: dict[int, NDArray[np.bool_]] = {}
    for epoch in range(_most_epochs(schedule) if whole_epochs else ceil(schedule.total / per_epoch)):
        start = epoch * per_epoch
        if whole_epochs or start + per_epoch <= schedule.total:
            _mark(marks, epoch % maskings, schedule.draw(epoch))
        else:
            for batch in replace(schedule, start=start):
                _mark(marks, epoch % maskings, np.array([item for _, item in batch]))
    # The placeholder of a process without an item, and the batch that --auto-batch tries.
    _mark(marks, 0, np.array([item for _, item in (schedule.first_position(), *schedule.longest_positions())]))
    return {masking: np.flatnonzero(mark) for masking, mark in marks.items()}


def _most_epochs(schedule: BatchSchedule) -> int:
    """Return how many epochs a run begins at most, over all numbers of parts that its batches may be split into.

    The last batch of an epoch may be small and is then split into fewer parts than the others; the run makes up for it
    with batches of the next epoch.
    """
    items, size = len(schedule.draw(0)), schedule.batch_size
    parts = (part for part in range(1, size + 1) if size % part == 0)
    return max(ceil(schedule.total * (size // part) / ceil(items / part)) for part in parts)


def _mark(marks: dict[int, NDArray[np.bool_]], masking: int, items: Ids) -> None:
    mark = marks.get(masking, np.zeros(0, dtype=bool))
    if len(mark) <= items.max():
        mark = np.pad(mark, (0, int(items.max()) + 1))
    mark[items] = True
    marks[masking] = mark
