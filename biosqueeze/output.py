"""Writing a checkpoint: files go to OUT.partial, the manifest is written last, then OUT.partial is renamed to OUT."""

import errno
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from biosqueeze import __version__, card, manifest, model_facts
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.environment import current_environment
from biosqueeze.errors import SqueezeError
from biosqueeze.files import (
    LOCK_FILE,
    check_absent,
    flush_directory,
    megabytes,
    publish_directory,
    write_json,
    write_text,
)
from biosqueeze.files.saved_states import UNFINISHED_STATE, has_state, remove_states
from biosqueeze.manifest import HistoryEntry, Manifest, ModelFacts, ParentRef, TaskRecord
from biosqueeze.older_readers import rewrite_for_older_readers
from biosqueeze.options import StageOptions, WritingOptions, option_fields, resolved
from biosqueeze.progress import note
from biosqueeze.system import processes
from biosqueeze.system.locks import exclusive_lock
from biosqueeze.system.os_errors import is_disk_full


@dataclass(frozen=True, kw_only=True)
class StageRecord:
    """What a stage adds to the manifest of the checkpoint that it wrote.

    Args:
        stage: the subcommand.
        parent: the checkpoint that the stage continued from; None for a model from random weights.
        options: the resolved options.
        other_parents: further checkpoints that were read, by role, such as ("teacher", checkpoint).
        metrics: the stage's measurements.
        task: the task that the model was trained on; None keeps the parent's.
        notes: details of the stage, by its name.
        layers: the parent's layers, from 0, that the model consists of; empty where none was taken over, None where
            all are unchanged.
        heads: for each layer of the model the parent's attention heads that it has; None where all are kept.
        inputs: hashes of the data and text of a training, by option.
        left_out: files that are removed once the manifest describes them.
    """

    stage: str
    parent: Checkpoint | None
    options: WritingOptions
    other_parents: tuple[tuple[str, Checkpoint], ...] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)
    task: TaskRecord | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    layers: tuple[int, ...] | None = None
    heads: tuple[tuple[int, ...], ...] | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[Path, ...] = ()


@dataclass
class OutputCheckpoint:
    """A checkpoint being written to `path` (OUT.partial); `finish` completes it and renames it to `out`."""

    path: Path
    out: Path

    def finish(self, record: StageRecord) -> Checkpoint:
        """Write model card and manifest (last), flush all to the disk, and rename to OUT, in the main process."""
        if processes.is_main():
            self._complete(record)
        processes.barrier()
        return Checkpoint(self.out, str(self.out))

    def _complete(self, record: StageRecord) -> None:
        rewrite_for_older_readers(self.path)
        written = build_manifest(self.path, record)
        for file in record.left_out:  # before the card, whose examples load the files that are there
            file.unlink()
        text = card.render(self.out.name, written, self.path, record.parent.path if record.parent else None)
        write_text(self.path / card.FILE_NAME, text)
        self._write_manifest(written)

    def finish_without_model(self, written: Manifest) -> None:
        """Complete a directory that holds no model, such as a tokenizer: it gets a manifest, and no card."""
        rewrite_for_older_readers(self.path)
        self._write_manifest(written)

    def _write_manifest(self, written: Manifest) -> None:
        flush_directory(self.path)  # a crash never leaves a manifest beside files that are incomplete
        write_json(self.path / manifest.FILE_NAME, written.as_json())
        self.publish()

    def publish(self) -> None:
        """Rename the complete directory to OUT; remove training states only then, because a failure needs them."""
        publish_directory(self.path, self.out)
        _remove_leftovers(self.out)


def build_manifest(path: Path, record: StageRecord) -> Manifest:
    """Describe the model in a directory: its facts, the stage that made it, and the history of the stage's parent.

    A model without the head of a task has no task: the parent's head may be lost, as in a distillation on plain text.
    """
    written = Checkpoint(path, str(path))
    parents = {**({"parent": record.parent} if record.parent else {}), **dict(record.other_parents)}
    entry = HistoryEntry(
        stage=record.stage,
        version=__version__,
        created=manifest.now(),
        options=resolved(record.options),
        sources=dict(record.options.sources),
        parents={role: ParentRef(c.name, c.weights_sha256()) for role, c in parents.items()},
        layers=record.layers,
        heads=record.heads,
        inputs=record.inputs,
    )
    return Manifest(
        stage=record.stage,
        version=__version__,
        created=entry.created,
        parent=entry.parent,
        head=model_facts.head_of(written.config),
        custom_head=written.custom_head,
        task=(record.task or (record.parent.task if record.parent else None)) if _has_task_head(written) else None,
        model=_facts_of(written),
        metrics=dict(record.metrics),
        notes=dict(record.notes),
        environment=current_environment(),
        history=(*(record.parent.history if record.parent else ()), entry),
    )


def _has_task_head(checkpoint: Checkpoint) -> bool:
    return checkpoint.custom_head is not None or model_facts.head_of(checkpoint.config) not in ("base", "mlm")


def _facts_of(checkpoint: Checkpoint) -> ModelFacts:
    files = checkpoint.weights
    shapes = {name: shape for file in files for name, shape in model_facts.tensor_shapes(file).items()}
    return ModelFacts(
        family=checkpoint.config.get("model_type"),
        sha256=checkpoint.weights_sha256(),
        shape=model_facts.shape_of(checkpoint.config),
        parameters=model_facts.count_by_part(shapes, checkpoint.config),
        megabytes=round(megabytes(files), 3),
    )


def derive_out(source: Checkpoint, suffix: str) -> Path:
    """Return the output's name where the user gave none: NAME-SUFFIX beside a local input, else in this directory."""
    path = source.path.resolve() if source.path.name in ("", "..") else source.path  # `shrink .`
    parent = path.parent if source.is_writable and ":" not in source.name else Path()
    return parent / f"{source.short_name}-{suffix}"


def partial_of(out: Path) -> Path:
    """Return OUT.partial, the directory in which OUT is written."""
    return out.with_name(f"{out.name}.partial")


def inputs_of(options: StageOptions, *checkpoints: Checkpoint) -> tuple[Path, ...]:
    """Return what a stage reads: its checkpoints, and the files and directories that its options name.

    All options whose values may be paths count, so that a new option is protected from --force without another line.
    """
    names: list[str] = []
    for option in option_fields(type(options)):
        value = getattr(options, option.name)
        if option.is_input and value:
            names += [value] if isinstance(value, str) else value
    paths = (Path(name).expanduser() for name in names)
    return (*(checkpoint.path for checkpoint in checkpoints), *(path for path in paths if path.exists()))


def check_output(out: Path, inputs: Sequence[Path], *, force: bool, resume: bool = False) -> Path:
    """Return OUT, if `open_output` would open it; nothing is created. That it exists is no error: a plan shows it.

    Raises:
        SqueezeError: as `open_output`.
    """
    check_place(out, inputs)
    if force:
        _check_replaceable(out)
    is_finished = any((path / manifest.FILE_NAME).is_file() for path in (out, partial_of(out)))
    if resume and not is_finished:
        _check_resumable(partial_of(out))
    return out


def check_place(out: Path, inputs: Sequence[Path]) -> None:
    """Check that OUT is none of the inputs, and that it can be created.

    Raises:
        SqueezeError: it is an input.
        OSError: a file is where its directory would be, or that cannot be written to.
    """
    if any(path.resolve().is_relative_to(out.resolve()) for path in inputs):
        raise SqueezeError(
            f"{out} is the input itself or contains it, and is never overwritten; give another name with --out"
        )
    above = next(parent for parent in out.absolute().parents if parent.exists())
    if not above.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(out))
    if not os.access(above, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(out))


def make_directory(path: Path) -> None:
    """Create the directory of an output, with those above it.

    Raises:
        SqueezeError: its place takes none, as /proc.
        OSError: see `check_place`.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError as error:
        raise SqueezeError(f"no directory can be made in {path.parent}; give --out another place") from error


@contextmanager
def open_output(
    out: Path, inputs: Sequence[Path] = (), *, force: bool = False, resume: bool = False
) -> Iterator[OutputCheckpoint]:
    """Create and lock OUT.partial, in the main process; after a failure, keep only what --resume can use.

    Raises:
        SqueezeError: OUT exists or is one of the inputs, OUT.partial holds an interrupted run, another process
            writes there, or the disk is full.
    """
    check_place(out, inputs)
    partial = partial_of(out)
    if not processes.is_main():
        yield OutputCheckpoint(partial, out)
        return
    _check_free(out, partial, force=force, resume=resume)
    make_directory(partial)
    with locked(partial):
        yield from _cleaned_up(OutputCheckpoint(partial, out))


@contextmanager
def locked(partial: Path) -> Iterator[None]:
    """Lock OUT.partial; raise SqueezeError where another process writes there.

    Where another process has renamed it just now, the lock is in a new OUT.partial, which is removed.
    """

    def refuse() -> None:
        raise SqueezeError(f"another biosqueeze is writing {partial} right now; wait for it, or give another --out")

    with exclusive_lock(partial / LOCK_FILE, refuse):
        yield
        _remove_if_empty(partial)


def _remove_if_empty(partial: Path) -> None:
    """Remove a directory that holds nothing but the lock."""
    if partial.is_dir() and {path.name for path in partial.iterdir()} <= {LOCK_FILE}:
        shutil.rmtree(partial)


def discard(partial: Path) -> None:
    """Remove OUT.partial; raise SqueezeError where another process writes there."""
    with locked(partial):
        shutil.rmtree(partial)


def clean(out: Path) -> None:
    """Remove what a process left in a finished output where it was killed after it had renamed it."""
    if (out / manifest.FILE_NAME).is_file() and (out / LOCK_FILE).is_file():
        with locked(out):
            _remove_leftovers(out)


def _remove_leftovers(out: Path) -> None:
    remove_states(out)
    (out / LOCK_FILE).unlink(missing_ok=True)


def _check_free(out: Path, partial: Path, *, force: bool, resume: bool) -> None:
    clean(out)
    check_absent(out, force=force)
    _check_replaceable(out)
    if resume:
        _check_resumable(partial)
    if partial.exists() and not resume:
        if has_state(partial) and not force:
            raise SqueezeError(
                f"{partial} holds an interrupted run; give --resume to continue it, or --force to start over"
            )
        discard(partial)


def _check_replaceable(out: Path) -> None:
    is_ours = any((out / name).is_file() for name in ("config.json", manifest.FILE_NAME))
    if out.exists() and any(out.iterdir() if out.is_dir() else [out]) and not is_ours:
        raise SqueezeError(f"{out} is not a checkpoint, so --force does not delete it; give another name with --out")


def _check_resumable(partial: Path) -> None:
    if not has_state(partial):
        raise SqueezeError(f"there is nothing to resume: {partial} holds no training state; start without --resume")


def _cleaned_up(output: OutputCheckpoint) -> Iterator[OutputCheckpoint]:
    """Yield the output; after a failure, delete OUT.partial unless it is complete or --resume can use it."""
    partial, out = output.path, output.out
    try:
        yield output
    except BaseException as error:
        full = is_disk_full(error, partial)
        resumable = has_state(partial)
        _delete_unusable(output, resumable=resumable)
        if full:
            raise SqueezeError(
                f"the disk that holds {out.parent} is full; free some space "
                + ("and continue with --resume" if resumable else "or give --out another place")
            ) from error
        if isinstance(error, KeyboardInterrupt) and not error.args and resumable:
            raise KeyboardInterrupt("--resume continues from the last saved state") from error
        raise


def _delete_unusable(output: OutputCheckpoint, *, resumable: bool) -> None:
    if resumable:
        shutil.rmtree(output.path / UNFINISHED_STATE, ignore_errors=True)
    elif (output.path / manifest.FILE_NAME).is_file():
        note(f"{output.path} is complete and could not be renamed: rename it to {output.out}")
    elif output.path.exists():
        shutil.rmtree(output.path, ignore_errors=True)
