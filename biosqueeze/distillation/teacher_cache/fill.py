"""The pass that asks the teacher about all that a run will see, and keeps what it says.

It can be stopped at any time: what was kept stays, and the next pass asks for the rest.
"""

import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from biosqueeze import processes
from biosqueeze.data.cache import exclusive
from biosqueeze.data.collate import Features
from biosqueeze.distillation.chunked_loss import CHUNK_ROWS
from biosqueeze.distillation.teacher_cache.plan import Answers, Kept, describe, size
from biosqueeze.distillation.teacher_cache.store import Entry, Ids, checksum
from biosqueeze.distillation.teachers import Answer, RowsOf, Teacher, row_mask
from biosqueeze.errors import SqueezeError, is_out_of_memory
from biosqueeze.os_errors import explained_writes
from biosqueeze.progress import ProgressBar, note, track
from biosqueeze.training import failures
from biosqueeze.training.batches import Batch, ItemSource, Position, loader
from biosqueeze.training.device import own_device
from biosqueeze.training.interrupt import interrupt_handler
from biosqueeze.training.precision import precision_of
from biosqueeze.training.sources import WrappedSource

# Answers are written when they are so many bytes, or so old.
PART_BYTES, PART_SECONDS = 1 << 26, 60.0
# Items among which those of like length are asked about together.
SORTED_ITEMS = 1 << 14
# In a batch: which items these are, and of which features the teacher speaks, (batch,) each.
ITEM, CHECKSUM = "question.item", "question.checksum"
# Seconds between two looks at what other processes have kept.
LOOK_EVERY = 2.0
_HIGHEST = torch.finfo(torch.float16).max


def ask(answers: Answers, teacher: Teacher) -> None:
    """Ask for the answers that are missing; several processes share the work.

    Raises:
        SqueezeError: the disk is full or cannot be written, the memory does not suffice, or a state is too large for
            fp16.
        KeyboardInterrupt: Ctrl-C; what was said so far is kept.
    """
    store, alone = answers.store, processes.count() == 1
    writes = explained_writes(
        str(store.folder),
        remedy="name a directory of yours with --cache-teacher",
        when_full="the teacher outputs computed so far are kept: free some space and run the command again",
    )
    with writes:
        store.folder.mkdir(parents=True, exist_ok=True)
        with exclusive(store.folder, "cache of a teacher's answers") if alone else nullcontext(False) as locked:
            if locked:
                store.clean()
            store.refresh()
            _ask(answers, teacher)
        while not answers.complete:  # the others are still asking
            time.sleep(LOOK_EVERY)
            store.refresh()
        if processes.is_main():
            describe(answers.inquiry, store)
    note(f"the teacher's answers: {size(store.bytes)} in {store.folder}, kept for later epochs and students")


def _ask(answers: Answers, teacher: Teacher) -> None:
    # A share by number: what is missing when a process looks depends on how far the others are.
    index, count = processes.index(), processes.count()
    missing = {masking: items[items % count == index] for masking, items in answers.missing().items()}
    wanted = sum(map(len, missing.values()))
    if not wanted:
        return
    with (
        interrupt_handler() as interrupt,
        track("ask the teacher", wanted) as progress,
        torch.autocast(own_device().type, torch.bfloat16, enabled=precision_of(answers.inquiry.options) == "bf16"),
    ):
        _Pass(answers, teacher, interrupt, progress).run(missing)


@dataclass
class _Pass:
    answers: Answers
    teacher: Teacher
    interrupt: threading.Event
    progress: ProgressBar
    pending: list[Entry] = field(default_factory=list)
    bytes: int = 0
    since: float = field(default_factory=time.monotonic)
    announced: bool = False

    def run(self, missing: Mapping[int, Ids]) -> None:
        source = self.answers.inquiry.source
        total = sum(int(source.length(items).sum()) for items in missing.values()) * processes.count()
        started, tokens = time.monotonic(), 0
        for masking, batch in self._batches(missing):
            said = _entries(self.answers.inquiry.kept, self._answer(batch), batch, masking)
            here = int(batch["attention_mask"].sum())
            self._announce(_bytes(said) * total / max(1, here))
            self._keep(said)
            tokens += here
            self.progress.advance(len(said), speed=f"{tokens / (time.monotonic() - started):,.0f} tokens/s")
            if self.interrupt.is_set():
                self._flush()
                raise KeyboardInterrupt(
                    f"{self.progress.done:,} of {self.progress.total:,} answers of the teacher are kept in "
                    f"{self.answers.store.folder}; the same command goes on from there"
                )
        self._flush()

    def _batches(self, missing: Mapping[int, Ids]) -> Iterator[tuple[int, Batch]]:
        """Each masking with its batches, which the training's own loader makes."""
        schedule, options = self.answers.inquiry.schedule, self.answers.inquiry.options
        marked = replace(schedule, source=_Marked(schedule.source))
        for masking, items in missing.items():
            positions = _like_lengths(schedule.source, masking, items, options.batch_size)
            for batch in loader(marked, options.workers, positions):
                yield masking, batch

    @torch.no_grad()
    def _answer(self, batch: Batch) -> Answer:
        try:
            return self.teacher.answer({name: tensor.to(own_device()) for name, tensor in batch.items()})
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise SqueezeError(
                f"out of memory while the teacher was asked about {failures.describe_batches([batch])}; give a smaller "
                "--batch-size; what was said so far is kept"
            ) from error

    def _keep(self, said: list[Entry]) -> None:
        self.pending += said
        self.bytes += _bytes(said)
        if self.bytes >= PART_BYTES or time.monotonic() - self.since >= PART_SECONDS:
            self._flush()

    def _flush(self) -> None:
        if self.pending:
            self.answers.store.write(self.pending)
        self.pending, self.bytes, self.since = [], 0, time.monotonic()

    def _announce(self, coming: float) -> None:
        """Say once how many bytes are coming, and refuse what the disk does not hold."""
        if self.announced:
            return
        self.announced = True
        folder = self.answers.store.folder
        free = shutil.disk_usage(folder).free
        note(f"the teacher's answers: about {size(coming)} will be kept in {folder}")
        if coming > free:
            raise SqueezeError(
                f"the teacher's answers take about {size(coming)}, but only {size(free)} are free where {folder} lies; "
                "name another disk with --cache-teacher, lower --cache-top, or leave out losses of hidden states"
            )


@dataclass(frozen=True)
class _Marked(WrappedSource):
    """Training data that say of each item which one it is, and how its features look."""

    def features(self, item: int, rng: np.random.Generator) -> Features:
        features = self.source.features(item, rng)
        return {**features, ITEM: np.array(item), CHECKSUM: np.array(checksum(features))}


def _like_lengths(source: ItemSource, masking: int, items: Ids, batch_size: int) -> Iterator[list[Position]]:
    """Batches of like length, each as large as `batch_size` of the longest; a masking stands for its first epoch."""
    for start in range(0, len(items), SORTED_ITEMS):
        some = items[start : start + SORTED_ITEMS]
        lengths = source.length(some)
        order = np.argsort(-lengths, kind="stable")
        some, lengths = some[order], lengths[order]
        first = 0
        while first < len(some):
            last = first + max(1, batch_size * int(lengths[0]) // max(1, int(lengths[first])))
            yield [(masking, int(item)) for item in some[first:last]]
            first = last


def _entries(kept: Kept, answer: Answer, batch: Batch, masking: int) -> list[Entry]:
    """What was said about each item of a batch."""
    tokens = batch["attention_mask"].sum(dim=1)  # (batch,)
    rows = kept.question.tensors.row_counts(row_mask(kept.question, batch))  # (batch,)
    parts = {name: _split(array, rows) for name, array in _rows(kept, answer, int(rows.sum())).items()}
    for depth in kept.depths:
        states = _half(answer.layers[depth].hidden, f"hidden states at depth {depth}")
        parts[f"hidden.{depth}"] = _split(states, tokens)
    items = zip(batch[ITEM].tolist(), batch[CHECKSUM].tolist(), strict=True)
    return [
        Entry(masking, item, asked, {name: each[number] for name, each in parts.items()})
        for number, (item, asked) in enumerate(items)
    ]


def _split(array: NDArray[Any], counts: Tensor) -> list[NDArray[Any]]:
    """The rows of each item: they come in the order of the batch."""
    return np.split(array, counts.cumsum(0)[:-1].cpu().numpy())


def _rows(kept: Kept, answer: Answer, count: int) -> dict[str, NDArray[Any]]:
    """What is kept of the rows of logits: (rows, ...) each."""
    if kept.rows == "none" or answer.rows is None:
        return {}
    if kept.rows == "logits":
        return {"logits": _half(answer.rows(slice(None)), "logits")}
    parts = [
        _likeliest(kept, answer.rows, slice(start, start + CHUNK_ROWS)) for start in range(0, max(1, count), CHUNK_ROWS)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _likeliest(kept: Kept, rows: RowsOf, part: slice) -> dict[str, NDArray[Any]]:
    """The likeliest classes and what is left for the others; see `objectives.TopK`."""
    logits = rows(part)
    if not isinstance(logits, Tensor):
        raise TypeError("a teacher that is asked gives logits")
    softened = logits.float() / kept.temperature  # (rows, classes)
    total = softened.logsumexp(dim=-1, keepdim=True)  # (rows, 1)
    values, ids = softened.topk(min(kept.top, softened.shape[-1]), dim=-1)  # (rows, top)
    rest = softened.scatter(-1, ids, -torch.inf).logsumexp(dim=-1)  # (rows,)
    small = softened.shape[-1] <= 1 << 16
    return {
        "ids": ids.cpu().numpy().astype(np.uint16 if small else np.int32),
        # What fp16 cannot hold is as good as impossible.
        "log_probabilities": _half((values - total).clamp(min=-_HIGHEST), "logits"),
        "rest": _half((rest - total.squeeze(-1)).clamp(min=-_HIGHEST), "logits"),
    }


def _half(values: Any, what: str) -> NDArray[np.float16]:
    values = values.float()
    if not bool((values.abs() <= _HIGHEST).all()):
        raise SqueezeError(
            f"the teacher's {what} reach {float(values.abs().max()):.3g}, more than fp16 holds, so they cannot be "
            "kept; leave --cache-teacher out, or the losses that read them"
        )
    half: NDArray[np.float16] = values.half().cpu().numpy()
    return half


def _bytes(entries: list[Entry]) -> int:
    return sum(array.nbytes for entry in entries for array in entry.arrays.values())
