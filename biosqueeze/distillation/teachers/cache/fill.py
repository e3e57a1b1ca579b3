"""Fill the teacher cache: run the teacher on all items that a run needs and the cache lacks.

The pass can be interrupted at any time: written outputs stay, and the next pass computes the rest.
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

from biosqueeze.data.cache import exclusive
from biosqueeze.data.collate import Features
from biosqueeze.distillation.teachers.cache.plan import CacheSpec, TeacherCache, size_text, write_meta
from biosqueeze.distillation.teachers.cache.store import CachedOutput, Ids, checksum
from biosqueeze.distillation.teachers.sources import RowLogits, Teacher, TeacherOutputs, row_mask
from biosqueeze.errors import SqueezeError, is_out_of_memory
from biosqueeze.models.device import own_device
from biosqueeze.progress import ProgressBar, note, track
from biosqueeze.system import processes
from biosqueeze.system.os_errors import explained_writes
from biosqueeze.training import failures
from biosqueeze.training.batches import Batch, ItemSource, Position, explained_workers, loader
from biosqueeze.training.chunked_loss import chunk_rows
from biosqueeze.training.precision import precision_of
from biosqueeze.training.resuming.interrupt import interrupt_handler
from biosqueeze.training.sources import WrappedSource

# Outputs are written when they reach this size, or this age.
FILE_BYTES, FILE_SECONDS = 1 << 26, 60.0
# Batches of similar length are formed within this many items.
SORTED_ITEMS = 1 << 14
# Keys of a batch: the item of each sequence and the checksum of its features, (batch,) each.
ITEM, CHECKSUM = "cache.item", "cache.checksum"
# Seconds between two checks for outputs of other processes.
POLL_SECONDS = 2.0
_HIGHEST = torch.finfo(torch.float16).max


def fill_cache(cache: TeacherCache, teacher: Teacher) -> None:
    """Compute and store the missing outputs; several processes share the work.

    Raises:
        SqueezeError: the disk is full or cannot be written, the memory does not suffice, or a value exceeds fp16.
        KeyboardInterrupt: Ctrl-C; the outputs computed so far are stored.
    """
    store, alone = cache.store, processes.count() == 1
    writes = explained_writes(
        str(store.folder),
        remedy="name a directory of yours with --cache-teacher",
        when_full="the teacher outputs computed so far are stored: free some space and run the command again",
    )
    with writes:
        store.folder.mkdir(parents=True, exist_ok=True)
        with exclusive(store.folder, "teacher cache") if alone else nullcontext(False) as locked:
            if locked:
                store.clean()
            store.refresh()
            _fill_share(cache, teacher)
        while not cache.complete:  # other processes are still computing
            time.sleep(POLL_SECONDS)
            store.refresh()
        if processes.is_main():
            write_meta(cache.request, store)
    note(f"teacher cache: {size_text(store.bytes)} in {store.folder}, kept for later epochs and students")


def _fill_share(cache: TeacherCache, teacher: Teacher) -> None:
    """Compute this process's share of the missing outputs."""
    # The share is selected by item number, because what is missing depends on the progress of the other processes.
    index, count = processes.index(), processes.count()
    missing = {masking: items[items % count == index] for masking, items in cache.missing().items()}
    total = sum(map(len, missing.values()))
    if not total:
        return
    bf16 = precision_of(cache.request.training) == "bf16"
    with (
        interrupt_handler() as interrupt,
        track("fill the teacher cache", total) as progress,
        torch.autocast(own_device().type, torch.bfloat16, enabled=bf16),
    ):
        _FillPass(cache, teacher, interrupt, progress).run(missing)


@dataclass
class _FillPass:
    cache: TeacherCache
    teacher: Teacher
    interrupt: threading.Event
    progress: ProgressBar
    pending: list[CachedOutput] = field(default_factory=list)
    pending_bytes: int = 0
    since: float = field(default_factory=time.monotonic)
    size_checked: bool = False

    def run(self, missing: Mapping[int, Ids]) -> None:
        try:
            with explained_workers():
                self._compute(missing)
        except SqueezeError:  # of the teacher, or of --workers: what came before is stored
            self._write()
            raise
        self._write()

    def _compute(self, missing: Mapping[int, Ids]) -> None:
        source = self.cache.request.source
        total = sum(int(source.length(items).sum()) for items in missing.values()) * processes.count()
        started, tokens = time.monotonic(), 0
        for masking, batch in self._batches(missing):
            outputs = _cached_outputs(self.cache.request.spec, self._run_teacher(batch), batch, masking)
            batch_tokens = int(batch["attention_mask"].sum())
            self._check_disk(_bytes(outputs) * total / max(1, batch_tokens))
            self._add(outputs)
            tokens += batch_tokens
            self.progress.advance(len(outputs), speed=f"{tokens / (time.monotonic() - started):,.0f} tokens/s")
            if self.interrupt.is_set():
                self._write()
                raise KeyboardInterrupt(
                    f"teacher outputs of {self.progress.done:,} of {self.progress.total:,} items are stored in "
                    f"{self.cache.store.folder}; the same command continues from there"
                )

    def _batches(self, missing: Mapping[int, Ids]) -> Iterator[tuple[int, Batch]]:
        """Yield the batches of each masking, made by the training's own loader."""
        schedule, training = self.cache.request.schedule, self.cache.request.training
        marked = replace(schedule, source=_MarkedSource(schedule.source))
        for masking, items in missing.items():
            positions = _batches_by_length(schedule.source, masking, items, training.batch_size)
            for batch in loader(marked, training.workers, positions):
                yield masking, batch

    @torch.no_grad()
    def _run_teacher(self, batch: Batch) -> TeacherOutputs:
        try:
            return self.teacher.outputs({name: tensor.to(own_device()) for name, tensor in batch.items()})
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise SqueezeError(
                f"out of memory while the teacher was run on {failures.describe_batches([batch])}; give a smaller "
                "--batch-size; the outputs computed so far are stored"
            ) from error

    def _add(self, outputs: list[CachedOutput]) -> None:
        self.pending += outputs
        self.pending_bytes += _bytes(outputs)
        if self.pending_bytes >= FILE_BYTES or time.monotonic() - self.since >= FILE_SECONDS:
            self._write()

    def _write(self) -> None:
        if self.pending:
            self.cache.store.write(self.pending)
        self.pending, self.pending_bytes, self.since = [], 0, time.monotonic()

    def _check_disk(self, expected: float) -> None:
        """Note once how many bytes are expected, and raise if the disk has less space."""
        if self.size_checked:
            return
        self.size_checked = True
        folder = self.cache.store.folder
        free = shutil.disk_usage(folder).free
        note(f"teacher cache: about {size_text(expected)} will be stored in {folder}")
        if expected > free:
            raise SqueezeError(
                f"the teacher cache takes about {size_text(expected)}, but only {size_text(free)} are free on the disk "
                f"of {folder}; name another disk with --cache-teacher, lower --cache-top, or leave out losses of "
                "hidden states"
            )


@dataclass(frozen=True)
class _MarkedSource(WrappedSource):
    """Training data with the number and the checksum of each item."""

    def features(self, item: int, rng: np.random.Generator) -> Features:
        features = self.source.features(item, rng)
        return {**features, ITEM: np.array(item), CHECKSUM: np.array(checksum(features))}


def _batches_by_length(source: ItemSource, masking: int, items: Ids, batch_size: int) -> Iterator[list[Position]]:
    """Yield batches of similar length with about as many tokens as `batch_size` of the longest items.

    The epoch of a position is the masking: the first epoch that uses it.
    """
    for start in range(0, len(items), SORTED_ITEMS):
        block = items[start : start + SORTED_ITEMS]
        lengths = source.length(block)
        order = np.argsort(-lengths, kind="stable")
        block, lengths = block[order], lengths[order]
        first = 0
        while first < len(block):
            last = first + max(1, batch_size * int(lengths[0]) // max(1, int(lengths[first])))
            yield [(masking, int(item)) for item in block[first:last]]
            first = last


def _cached_outputs(spec: CacheSpec, outputs: TeacherOutputs, batch: Batch, masking: int) -> list[CachedOutput]:
    """Split the teacher's outputs on a batch by item."""
    tokens = batch["attention_mask"].sum(dim=1)  # (batch,)
    rows = spec.output_spec.tensors.row_counts(row_mask(spec.output_spec, batch))  # (batch,)
    arrays = {name: _split(array, rows) for name, array in _row_arrays(spec, outputs, int(rows.sum())).items()}
    for depth in spec.depths:
        states = _to_half(outputs.layers[depth].hidden, f"hidden states at depth {depth}")
        arrays[f"hidden.{depth}"] = _split(states, tokens)
    items = zip(batch[ITEM].tolist(), batch[CHECKSUM].tolist(), strict=True)
    return [
        CachedOutput(masking, item, digest, {name: by_item[number] for name, by_item in arrays.items()})
        for number, (item, digest) in enumerate(items)
    ]


def _split(array: NDArray[Any], counts: Tensor) -> list[NDArray[Any]]:
    """Split rows by item; they are in the order of the batch."""
    return np.split(array, counts.cumsum(0)[:-1].cpu().numpy())


def _row_arrays(spec: CacheSpec, outputs: TeacherOutputs, count: int) -> dict[str, NDArray[Any]]:
    """Return the stored arrays of the rows of logits: (rows, ...) each."""
    if spec.rows == "none" or outputs.rows is None:
        return {}
    if spec.rows == "logits":
        return {"logits": _to_half(outputs.rows(slice(None)), "logits")}
    size = chunk_rows(_full(outputs.rows, slice(0)).shape[-1])
    parts = [_top_classes(spec, outputs.rows, slice(start, start + size)) for start in range(0, max(1, count), size)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _full(rows: RowLogits, part: slice) -> Tensor:
    logits = rows(part)
    if not isinstance(logits, Tensor):
        raise TypeError("the cache is filled from full logits")
    return logits


def _top_classes(spec: CacheSpec, rows: RowLogits, part: slice) -> dict[str, NDArray[Any]]:
    """Compute the most probable classes and the probability of the rest; see `objectives.TopK`."""
    logits = _full(rows, part)
    softened = logits.float() / spec.temperature  # (rows, classes)
    total = softened.logsumexp(dim=-1, keepdim=True)  # (rows, 1)
    values, ids = softened.topk(min(spec.top, softened.shape[-1]), dim=-1)  # (rows, top)
    rest = softened.scatter(-1, ids, -torch.inf).logsumexp(dim=-1)  # (rows,)
    fits_16_bits = softened.shape[-1] <= 1 << 16
    return {
        "ids": ids.cpu().numpy().astype(np.uint16 if fits_16_bits else np.int32),
        # Log probabilities below the range of fp16 are those of practically impossible classes.
        "log_probabilities": _to_half((values - total).clamp(min=-_HIGHEST), "logits"),
        "rest": _to_half((rest - total.squeeze(-1)).clamp(min=-_HIGHEST), "logits"),
    }


def _to_half(values: Any, what: str) -> NDArray[np.float16]:
    """Convert to fp16.

    Raises:
        SqueezeError: a value is NaN or exceeds the range.
    """
    values = values.float()
    if not bool((values.abs() <= _HIGHEST).all()):
        raise SqueezeError(
            f"the teacher's {what} reach {float(values.abs().max()):.3g}, more than fp16 holds, so they cannot be "
            "stored; leave --cache-teacher out, or the losses that read them"
        )
    half: NDArray[np.float16] = values.half().cpu().numpy()
    return half


def _bytes(outputs: list[CachedOutput]) -> int:
    return sum(array.nbytes for output in outputs for array in output.arrays.values())
