"""--cache-teacher: the teacher is asked about all training data once, and its answers are kept on disk.

Later epochs and later students read them there. For that an item must look the same whenever it comes: it is masked in
one of `maskings` ways, as the schedule says.
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

from biosqueeze import processes
from biosqueeze.data.collate import Features
from biosqueeze.data.feature_keys import TEACHER
from biosqueeze.distillation.loss_config import LossConfig
from biosqueeze.distillation.options import DistillationOptions
from biosqueeze.distillation.teacher_cache.store import Ids, Store, checksum
from biosqueeze.distillation.teachers import Question
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.files import write_json
from biosqueeze.manifest import now
from biosqueeze.progress import note
from biosqueeze.training.batches import BatchSchedule, ItemSource
from biosqueeze.training.hashes import source_hash
from biosqueeze.training.job import steps_of
from biosqueeze.training.precision import precision_of
from biosqueeze.training.sources import WrappedSource

META = "meta.json"
FORMAT = 1  # part of each key: another number leaves all that was kept before unread
TOP = 64


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What is kept of an answer."""

    question: Question
    rows: Literal["none", "top", "logits"]  # the likeliest classes and the rest, or all
    top: int = 0
    temperature: float = 1.0  # at which "top" is kept
    depths: tuple[int, ...] = ()  # whose hidden states are kept


def kept_of(recipe: LossConfig, top: int | None = None) -> Kept:
    """What a recipe reads of its teacher.

    Args:
        recipe: how to distil.
        top: --cache-top.

    Raises:
        UsageError: the recipe reads something that is not kept, or nothing, or --cache-top is idle.
    """
    losses, question = recipe.losses, recipe.question
    inside = [name for name, loss in losses.items() if loss.READS in ("attention", "relations")]
    if inside:
        raise UsageError(
            f"--cache-teacher keeps soft labels and hidden states, but --loss {', '.join(inside)} compares attention; "
            f"leave --cache-teacher out, or leave {'them' if len(inside) > 1 else 'it'} out of the losses"
        )
    asked = any(loss.NEEDS_TEACHER_LOGITS for loss in losses.values())
    if asked and question.output_type.classes_are_positions:
        raise UsageError(
            "--cache-teacher does not work with a head that marks spans, whose classes are the positions of a batch; "
            "leave it out"
        )
    depths = tuple(sorted(recipe.wanted(1)))
    if not asked and not depths:
        raise UsageError(f"--cache-teacher: --loss {', '.join(losses)} asks the teacher nothing; leave it out")
    if top is not None and not (asked and question.kind == "mlm"):
        raise UsageError("--cache-top is for soft labels over a vocabulary, which no loss reads here; leave it out")
    if asked and question.kind == "mlm":
        return Kept(question=question, rows="top", top=top or TOP, temperature=recipe.temperature, depths=depths)
    return Kept(question=question, rows="logits" if asked else "none", depths=depths)


@dataclass(frozen=True)
class CacheRequest:
    """Who is asked what about which data."""

    teachers: Sequence[str]  # a hash of each: see `training.hashes.checkpoint_hash`
    shares: Sequence[float]  # how much each counts
    recipe: LossConfig
    source: ItemSource
    options: DistillationOptions
    facts: Mapping[str, Any] = field(default_factory=dict)  # for people: what the teachers are called

    @cached_property
    def kept(self) -> Kept:
        """What is kept of the answers."""
        return kept_of(self.recipe, self.options.cache_top)

    @cached_property
    def schedule(self) -> BatchSchedule:
        """The batches of the whole run, of all processes."""
        options = self.options
        together = options.batch_size * processes.count()
        plan = BatchSchedule(self.source, together, options.seed, 0, maskings=options.repeated_maskings)
        return replace(plan, total=steps_of(options, plan.batches_per_epoch)[1] * options.accumulate)

    @cached_property
    def content(self) -> dict[str, Any]:
        """All that the answers depend on."""
        options, kept = self.options, self.kept
        total = sum(self.shares)
        # Several teachers' distributions are averaged at the temperature.
        heated = kept.rows == "top" or (kept.rows == "logits" and len(self.teachers) > 1)
        return {
            "format": FORMAT,
            "teachers": [[t, round(share / total, 9)] for t, share in zip(self.teachers, self.shares, strict=True)],
            "data": source_hash(self.source),
            "kind": kept.question.kind,
            "output type": kept.question.output_type.name,
            "masking seed": options.seed if kept.question.kind == "mlm" else None,
            "mask rate": options.mask_rate if kept.question.kind == "mlm" else None,
            "rows": kept.rows,
            "top": kept.top,
            "temperature": self.recipe.temperature if heated else None,
            "hidden": list(kept.depths),
            "precision": precision_of(options),
        }

    @property
    def key(self) -> str:
        """Differs wherever an answer may differ."""
        return hashlib.sha256(json.dumps(self.content).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Answered(WrappedSource):
    """Training data that bring along what the teacher said about them."""

    store: Store
    maskings: int

    def features(self, item: int, rng: np.random.Generator) -> Features:
        """The source's features, and under `answer.*` what was said about exactly these; see `data.collate.pad`.

        Raises:
            SqueezeError: the teacher was not asked, or about something else.
        """
        features = self.source.features(item, rng)
        asked = checksum(features)
        for masking in range(self.maskings):
            entry = self.store.find(masking, item)
            if entry is not None and entry.asked == asked:
                return {**features, **{TEACHER + name: array for name, array in entry.arrays.items()}}
        raise SqueezeError(
            f"{self.store.folder} lacks what the teacher says about item {item} as it is now; run the command again, "
            f"and if that does not help, delete the folder"
        )


@dataclass
class Answers:
    """The answers that a run needs, as far as they are there."""

    inquiry: CacheRequest
    store: Store

    @cached_property
    def needed(self) -> dict[int, Ids]:
        """The items that the run will see, by masking."""
        return _needed(self.inquiry.schedule, whole=self.inquiry.options.auto_batch)

    def missing(self) -> dict[int, Ids]:
        """The items that the teacher must still be asked about, by masking."""
        every = ((masking, items[~self.store.has(masking, items)]) for masking, items in self.needed.items())
        return {masking: items for masking, items in every if len(items)}

    @property
    def complete(self) -> bool:
        """Whether the run can do without the teacher."""
        return not self.missing()

    @property
    def source(self) -> Answered:
        """The training data with the answers."""
        return Answered(self.inquiry.source, self.store, self.inquiry.options.repeated_maskings or 1)


def open_answers(inquiry: CacheRequest) -> Answers:
    """The answers in --cache-teacher, as far as they are there; says how far that is.

    Raises:
        UsageError: the recipe reads what is not kept.
        SqueezeError: the folder cannot be read or written.
    """
    directory = Path(str(inquiry.options.cache_teacher)).expanduser()
    folder = directory / inquiry.key
    try:
        store = Store(folder)
        if not (folder / META).is_file() and processes.is_main():
            folder.mkdir(parents=True, exist_ok=True)
            describe(inquiry, store)
    except OSError as error:
        raise SqueezeError(
            f"--cache-teacher {directory} cannot be used ({error.strerror or error}); name a directory of yours"
        ) from error
    answers = Answers(inquiry, store)
    if answers.complete:
        note(f"the teacher's answers: {size(store.bytes)} in {folder}, given earlier; the teacher is not needed")
    elif len(store):
        note(f"the teacher's answers: {size(store.bytes)} in {folder}; some are missing")
    return answers


def describe(inquiry: CacheRequest, store: Store) -> None:
    """Write what a folder holds, for people: nothing reads it.

    Raises:
        OSError: the disk is full.
    """
    found = {"answers": len(store), "megabytes": round(store.bytes / 1e6, 3), "written": now()}
    write_json(store.folder / META, {**inquiry.content, **inquiry.facts, **found})


def size(count: float) -> str:
    """Bytes in words."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _needed(schedule: BatchSchedule, *, whole: bool) -> dict[int, Ids]:
    """The items of a run by masking, in ascending order.

    Args:
        schedule: the run, with maskings.
        whole: the batches may become smaller (--auto-batch): take whole epochs, and all that may be entered then.
    """
    maskings, per_epoch = schedule.maskings or 1, schedule.batches_per_epoch
    marks: dict[int, NDArray[np.bool_]] = {}
    for epoch in range(_most_epochs(schedule) if whole else ceil(schedule.total / per_epoch)):
        start = epoch * per_epoch
        if whole or start + per_epoch <= schedule.total:
            _mark(marks, epoch % maskings, schedule.draw(epoch))
        else:
            for batch in replace(schedule, start=start):
                _mark(marks, epoch % maskings, np.array([item for _, item in batch]))
    # What a process reads that has no item of its own, and what --auto-batch tries.
    _mark(marks, 0, np.array([item for _, item in (schedule.first_position(), *schedule.longest_positions())]))
    return {masking: np.flatnonzero(mark) for masking, mark in marks.items()}


def _most_epochs(schedule: BatchSchedule) -> int:
    """Epochs that a run enters, into however many parts its batches are cut.

    The last batch of an epoch may be small, and is cut into fewer parts than the others: then what is read of the next
    epoch makes up for it.
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
