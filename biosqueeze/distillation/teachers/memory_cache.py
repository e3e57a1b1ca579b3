"""The teacher's outputs on the labelled examples, kept in memory for all epochs.

They are computed before the training, in batches of their own: in those of the first epoch their last bits would depend
on the step from which a training is resumed. A resumed training computes them again, if its first part did.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from biosqueeze.data.collate import Features, pad
from biosqueeze.data.feature_keys import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS
from biosqueeze.distillation.teachers.cache.plan import size_text
from biosqueeze.distillation.teachers.sources import Batch, LiveTeacher, TeacherOutputs, row_mask
from biosqueeze.errors import SqueezeError, is_out_of_memory
from biosqueeze.objectives import LayerStates
from biosqueeze.progress import note, track
from biosqueeze.system.memory import available_memory, limited_memory
from biosqueeze.training.sources import Mixture

LEAST_EPOCHS = 3
"""With fewer the computation in advance hardly pays."""
MEMORY_SHARE = 0.25
"""Of the available memory, at most."""
_INPUTS = (INPUT_IDS, ATTENTION_MASK, TOKEN_TYPE_IDS)
_OF_HEADS = ("query", "key", "value")  # parts of a layer's states


@dataclass(frozen=True)
class _SequenceOutputs:
    """The teacher's outputs on one sequence, without padding."""

    rows: Tensor | None  # (rows, classes)
    layers: Mapping[int, Mapping[str, Tensor]]  # by depth and part: (tokens, hidden) or (heads, tokens, head size)

    @property
    def bytes(self) -> int:
        """Their size in memory."""
        tensors = [part for parts in self.layers.values() for part in parts.values()]
        return sum(each.nbytes for each in (*tensors, self.rows) if each is not None)


class MemoryCachedTeacher:
    """A teacher that is run on those sequences of a batch whose outputs are not in memory."""

    def __init__(self, teacher: LiveTeacher) -> None:
        self._teacher = teacher
        self._stored: dict[bytes, _SequenceOutputs] = {}

    @property
    def computes_in_int8(self) -> bool:
        """Whether matrix products of a model are in int8."""
        return self._teacher.computes_in_int8

    @property
    def bytes(self) -> int:
        """The size of the outputs in memory."""
        return sum(outputs.bytes for outputs in self._stored.values())

    def store(self, batch: Batch) -> None:
        """Compute the outputs on a batch, and keep them."""
        self._stored |= zip(_keys(batch), self._compute(batch), strict=True)

    def outputs(self, batch: Batch) -> TeacherOutputs:
        """Return the teacher's outputs on a batch, without gradients; layer states are zero on padding."""
        stored = [self._stored.get(key) for key in _keys(batch)]
        missing = [number for number, outputs in enumerate(stored) if outputs is None]
        computed = iter(self._compute(_sequences(batch, missing)) if missing else ())
        return _joined([outputs or next(computed) for outputs in stored], batch[INPUT_IDS].shape[1])

    def _compute(self, batch: Batch) -> list[_SequenceOutputs]:
        """Run the teacher, and divide its outputs by sequence."""
        outputs, spec = self._teacher.outputs(batch), self._teacher.spec
        lengths = batch[ATTENTION_MASK].sum(dim=1).tolist()
        counts = spec.tensors.row_counts(row_mask(spec, batch)).tolist()
        all_rows: Any = outputs.rows(slice(None)) if outputs.rows else None  # of a task a Tensor
        rows = [None] * len(lengths) if all_rows is None else all_rows.split(counts)
        layers = {depth: _divided(states, lengths) for depth, states in outputs.layers.items()}
        return [
            _SequenceOutputs(None if own is None else own.clone(), {depth: layers[depth][number] for depth in layers})
            for number, own in enumerate(rows)
        ]


def cached_in_memory(
    teacher: LiveTeacher, source: Mixture, batch_size: int, epochs: float, *, was_cached: bool | None = None
) -> LiveTeacher | MemoryCachedTeacher:
    """Compute the teacher's outputs on the labelled examples, where this saves time and they fit into memory.

    Args:
        teacher: of a task, on the CPU.
        source: the training data.
        batch_size: of the computation.
        epochs: of the training, at most.
        was_cached: whether they were in memory in the part of the training that is resumed; None where this is unknown.

    Returns:
        the teacher with these outputs, or as it is.

    Raises:
        SqueezeError: they were in memory, and do not fit any more.
    """
    tokens = sum(len(each[INPUT_IDS]) for each in source.labelled)
    if epochs < LEAST_EPOCHS or not tokens or was_cached is False:
        return teacher
    cached, room = MemoryCachedTeacher(teacher), MEMORY_SHARE * (available_memory() or 0)
    try:
        with limited_memory("cpu"), track("run the teacher on the labelled examples", len(source.labelled)) as bar:
            for number, batch in enumerate(_batches(source, batch_size)):
                cached.store(batch)
                if number == 0 and not was_cached and cached.bytes * tokens > room * int(batch[ATTENTION_MASK].sum()):
                    return teacher
                bar.advance(len(batch[INPUT_IDS]))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        if was_cached:
            raise SqueezeError(
                "out of memory for the teacher outputs on the labelled examples, which the interrupted part of this "
                "training had in memory; free some memory, or start over with --force instead of --resume"
            ) from error
        return teacher  # the training says which batch fits, or finds one with --auto-batch
    note(f"teacher outputs on {len(source.labelled):,} labelled examples: {size_text(cached.bytes)} in memory")
    return cached


def _batches(source: Mixture, size: int) -> Iterator[Batch]:
    """Yield the labelled examples, the longest first, as the teacher reads them."""
    order = np.argsort([-len(each[INPUT_IDS]) for each in source.labelled], kind="stable")
    inputs: list[Features] = [
        {name: source.labelled[item][name] for name in _INPUTS if name in source.labelled[item]} for item in order
    ]
    for start in range(0, len(inputs), size):
        padded = pad(inputs[start : start + size], source.pad_token_id)
        yield {name: torch.from_numpy(array) for name, array in padded.items()}


def _keys(batch: Batch) -> list[bytes]:
    """Return what identifies each sequence: its tokens and their types."""
    tensors = [batch[name].long() for name in (INPUT_IDS, TOKEN_TYPE_IDS) if name in batch]
    lengths = batch[ATTENTION_MASK].sum(dim=1).tolist()
    return [
        b"".join(tensor[row, :length].numpy().tobytes() for tensor in tensors) for row, length in enumerate(lengths)
    ]


def _sequences(batch: Batch, numbers: Sequence[int]) -> Batch:
    """Return the inputs of some sequences of a batch, without the columns that are padding in all of them."""
    longest = int(batch[ATTENTION_MASK][numbers].sum(dim=1).max())
    return {name: batch[name][numbers, :longest] for name in _INPUTS if name in batch}


def _divided(states: LayerStates, lengths: Sequence[int]) -> list[dict[str, Tensor]]:
    """Return the parts of a layer's states by sequence, without padding."""
    hidden = [] if states.hidden is None else states.hidden.split(list(lengths))
    heads = {name: part for name in _OF_HEADS if (part := getattr(states, name)) is not None}
    return [
        {name: part[number, :, :length].clone() for name, part in heads.items()}
        | ({"hidden": hidden[number].clone()} if hidden else {})
        for number, length in enumerate(lengths)
    ]


def _joined(sequences: Sequence[_SequenceOutputs], longest: int) -> TeacherOutputs:
    """Return the outputs of a batch of sequences, padded with zeros."""
    first = sequences[0]
    rows = None if first.rows is None else torch.cat([each.rows for each in sequences if each.rows is not None])

    def part_of_layer(depth: int, name: str) -> Tensor:
        return _joined_part([each.layers[depth][name] for each in sequences], longest)

    layers = {
        depth: LayerStates(**{name: part_of_layer(depth, name) for name in parts})
        for depth, parts in first.layers.items()
    }
    return TeacherOutputs(None if rows is None else lambda part: rows[part], layers)


def _joined_part(parts: Sequence[Tensor], longest: int) -> Tensor:
    """Join one part of a layer's states: hidden states by token, the others by sequence."""
    if parts[0].dim() == 2:
        return torch.cat(list(parts))
    heads, _, size = parts[0].shape
    joined = parts[0].new_zeros(len(parts), heads, longest, size)
    for row, part in zip(joined, parts, strict=True):
        row[:, : part.shape[1]] = part
    return joined
