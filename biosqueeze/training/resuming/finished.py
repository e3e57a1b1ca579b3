"""Take over what an earlier process of the same request finished before it was killed. Torch-free.

A training ends with the manifest in OUT.partial, the rename to OUT, and the removal of its states. A process that is
killed in between leaves a finished checkpoint, which is not trained again.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from biosqueeze import manifest
from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.data.text.corpus import MANIFEST as CORPUS_MANIFEST
from biosqueeze.data.text.corpus import is_built
from biosqueeze.errors import SqueezeError
from biosqueeze.files import content_hash
from biosqueeze.files.saved_states import has_state
from biosqueeze.manifest import Manifest, ParentRef
from biosqueeze.model_facts import HEAD_FILE
from biosqueeze.options import Outcome, WritingOptions, resolved
from biosqueeze.output import OutputCheckpoint, clean, locked, partial_of
from biosqueeze.progress import note
from biosqueeze.system import processes
from biosqueeze.training.options import TrainingOptions
from biosqueeze.training.resuming.fingerprint import INCIDENTAL

_TEXTS = ("data", "corpus")  # options that name data and text of a training
_MODELS = ("checkpoint", "teacher", "generator", "tokenizer")  # options that name checkpoints or a tokenizer
CONFIG_AND_TOKENIZER = "config and tokenizer"
"""The name of the hash of what models have beside their weights, whose hashes are those of the parents."""
_Options = TypeVar("_Options", bound=TrainingOptions)


def resume_where_saved(out: Path, options: _Options) -> _Options:
    """Replace --resume auto: resume where a training state is saved, start where none is."""
    return replace(options, resume=has_state(partial_of(out))) if options.resume == "auto" else options


def take_over(out: Path, stage: str, options: TrainingOptions) -> Outcome | None:
    """Return what the same request has finished already, under its final name.

    OUT.partial counts in any case; OUT counts with --resume.

    Args:
        out: the output of the stage.
        stage: the subcommand.
        options: as the manifest records them.

    Returns:
        the outcome of the stage; None where there is something left to do.

    Raises:
        SqueezeError: another request has finished OUT.partial, or another process writes there.
    """
    if options.force and not options.resume and processes.count() > 1:
        return None  # the other processes could not tell an older OUT from one that was renamed just now
    for directory in _candidates(out, options):
        take = _take_partial if directory != out and processes.is_main() else _take_final
        written = take(directory, out, stage, options)
        if written is not None:
            return Outcome(out, {"metrics": dict(written.metrics)})
    return None


def _candidates(out: Path, options: TrainingOptions) -> Iterator[Path]:
    """Yield directories that the request may have finished. In other processes OUT may have been renamed just now."""
    partial = partial_of(out)
    if (partial / manifest.FILE_NAME).is_file() and (options.force or not out.exists()):
        yield partial
    if (options.resume or not processes.is_main()) and not has_state(partial):
        yield out


def _take_partial(partial: Path, out: Path, stage: str, options: TrainingOptions) -> Manifest | None:
    """Rename OUT.partial to OUT if the request has finished it."""
    with locked(partial):
        written = finished(partial)
        if written is None:
            return None
        names = differences(written, stage, options)
        if names and options.force and not options.resume:
            return None  # starts over
        if names:
            raise SqueezeError(
                f"{partial} is finished and was made with other values of {', '.join(names)}; rename it to keep it, "
                "or start over with --force"
            )
        OutputCheckpoint(partial, out).publish()
    note(f"{out} was finished by an earlier run, which ended before it could rename it; --force trains it again")
    return written


def _take_final(directory: Path, out: Path, stage: str, options: TrainingOptions) -> Manifest | None:
    """Return the manifest of a directory that the request has finished."""
    written = finished(directory)
    if written is None or differences(written, stage, options):
        return None
    if processes.is_main():
        clean(out)
        note(f"{out} is finished already, by the same request")
    return written


def finished(directory: Path) -> Manifest | None:
    """Return the manifest of a directory whose weights are those that it names; None where it is not complete."""
    try:
        written = manifest.read_manifest(directory)
        if written and Checkpoint(directory, str(directory)).weights_sha256() == written.model.sha256:
            return written
    except (SqueezeError, OSError):  # damaged, or renamed by the main process just now
        pass
    return None


def differences(written: Manifest, stage: str, options: WritingOptions) -> list[str]:
    """Return the names of options and inputs in which a finished checkpoint differs from a request."""
    entry = written.history[-1]
    if entry.stage != stage:
        return ["the command"]
    current = json.loads(json.dumps(resolved(options), default=str))
    names = [name for name in sorted(current) if name not in INCIDENTAL and entry.options.get(name) != current[name]]
    names = names or [role for role, parent in entry.parents.items() if not _is_unchanged(parent)]
    hashes = input_hashes(options)
    changed = [name for name in hashes if entry.inputs.get(name, hashes[name]) != hashes[name]]
    return names or [f"the {name}" if name == CONFIG_AND_TOKENIZER else f"the files of --{name}" for name in changed]


def input_hashes(options: WritingOptions) -> dict[str, str]:
    """Return the hashes of the data and text that a training reads, by option; what is not on disk has none.

    Of a corpus that biosqueeze built its manifest counts, which has the hashes of the sources. The models have one
    hash together, beside those of their weights.
    """
    named = {name: _names_of(getattr(options, name, None)) for name in _TEXTS}
    found = {name: [path for path in paths if path.is_file() or path.is_dir()] for name, paths in named.items()}
    hashes = {name: " ".join(map(input_hash, paths)) for name, paths in found.items() if paths}
    models = [path for name in _MODELS for path in _names_of(getattr(options, name, None)) if path.is_dir()]
    return hashes | ({CONFIG_AND_TOKENIZER: " ".join(map(model_hash, models))} if models else {})


def recorded_hashes(options: WritingOptions) -> dict[str, str]:
    """Return `input_hashes` in the main process, which writes the manifest; the others read no file for it."""
    return input_hashes(options) if processes.is_main() else {}


def _names_of(value: str | tuple[str, ...] | None) -> list[Path]:
    names = (value,) if isinstance(value, str) else value or ()
    return [Path(name).expanduser() for name in names]


def input_hash(path: Path) -> str:
    """Return the hash of a file or directory that a training reads, as `input_hashes` has it."""
    return content_hash(path / CORPUS_MANIFEST if is_built(path) else path)


def model_hash(path: Path) -> str:
    """Return the SHA-256 over config.json, custom head and tokenizer of a checkpoint: all but its weights."""
    from biosqueeze.backends.deployed import TOKENIZER_FILES

    files = [file for name in ("config.json", HEAD_FILE, *TOKENIZER_FILES) if (file := path / name).is_file()]
    return hashlib.sha256(" ".join(map(content_hash, files)).encode()).hexdigest()


def _is_unchanged(parent: ParentRef) -> bool:
    try:
        return open_checkpoint(parent.name).weights_sha256() == parent.sha256
    except SqueezeError:
        return False
