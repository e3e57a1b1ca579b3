"""Reading a checkpoint's weights: safetensors, or an old .bin through torch's restricted loader. No code is run."""

import re
import zipfile
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from biosqueeze import model_facts
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.files import read_json

# Buffers that old versions of transformers saved and that are no weights.
_BUFFERS = re.compile(r"(^|\.)embeddings\.(position_ids|token_type_ids)$")
_LEGACY_NORM = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))
_GLOBAL = re.compile(r"GLOBAL ([\w.]+)")
_LFS_POINTER = b"version https://git-lfs"


def weight_files(checkpoint: Checkpoint) -> tuple[Path, ...]:
    """The files that hold the weights, all shards of them.

    Raises:
        SqueezeError: there are none, or one that the index names is missing.
    """
    for stem, ending in (("model", "safetensors"), ("pytorch_model", "bin")):
        single = checkpoint.path / f"{stem}.{ending}"
        index = checkpoint.path / f"{stem}.{ending}.index.json"
        if single.is_file():
            return (single,)
        if index.is_file():
            return _shards(index)
    return tuple(file for file in checkpoint.weights if file.name != model_facts.HEAD_FILE)


def _shards(index: Path) -> tuple[Path, ...]:
    names = sorted(set(read_json(index).get("weight_map", {}).values()))
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing or not names:
        what = missing[0] if missing else "any file"
        raise SqueezeError(f"{index} asks for {what}, which is not there; fetch or copy the checkpoint again in full")
    return tuple(index.parent / name for name in names)


def tensor_names(checkpoint: Checkpoint) -> tuple[str, ...]:
    """The weights' names as `read_weights` gives them; safetensors files are read no further than their headers."""
    files = weight_files(checkpoint)
    return _names_in(files, tuple(file.stat().st_mtime_ns for file in files))


@lru_cache(maxsize=8)
def _names_in(files: tuple[Path, ...], _changed: tuple[int, ...]) -> tuple[str, ...]:
    """Names in the files as they are since `_changed`; remembered, because an old .bin must be read in full."""
    names = (name for file in files for name in _names(file))
    return tuple(clean_names(names).values())


def _names(file: Path) -> Iterable[str]:
    return model_facts.tensor_shapes(file) if file.suffix == ".safetensors" else _read_bin(file)


def read_weights(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """All tensors on the CPU by today's names, memory-mapped where the format allows it.

    Raises:
        SqueezeError: files are missing, cut short, hold code, or hold something else than tensors.
    """
    tensors: dict[str, Tensor] = {}
    for file in weight_files(checkpoint):
        tensors |= _read_safetensors(file) if file.suffix == ".safetensors" else _read_bin(file)
    return {new: tensors[old] for old, new in clean_names(tensors).items()}


def clean_names(names: Iterable[str]) -> dict[str, str]:
    """Old name to today's: TensorFlow's gamma and beta, DataParallel's prefix; buffers are left out."""
    renamed = {}
    for name in names:
        new = name.removeprefix("module.")
        for old_part, new_part in _LEGACY_NORM:
            new = new.replace(old_part, new_part)
        if not _BUFFERS.search(new):
            renamed[name] = new
    return renamed


def _read_safetensors(file: Path) -> dict[str, Tensor]:
    try:
        return load_file(file)
    except (SafetensorError, OSError) as error:
        raise _unreadable(file, error) from error


def _read_bin(file: Path) -> dict[str, Tensor]:
    try:
        # Files older than torch 1.6 are no zip archives and cannot be mapped.
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    except UnpicklingError as error:
        code = _GLOBAL.search(str(error))
        raise _would_run(file, code[1]) if code else _unreadable(file, error) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError, IndexError) as error:
        # A file that was cut short makes torch's readers stumble in any of these ways.
        raise _unreadable(file, error) from error
    return _as_tensors(file, content)


def _would_run(file: Path, name: str) -> SqueezeError:
    return SqueezeError(
        f"{file} would run code when opened (it asks for {name}), so it was not opened; "
        "get a safetensors copy, or a .bin that holds tensors only"
    )


def _unreadable(file: Path, error: Exception) -> SqueezeError:
    if isinstance(error, PermissionError):
        return SqueezeError(f"{file} may not be read; check its permissions (`ls -l {file}`)")
    with file.open("rb") as start:
        if start.read(len(_LFS_POINTER)) == _LFS_POINTER:
            return SqueezeError(f"{file} is a Git LFS pointer and not the weights; run `git lfs pull` there")
    return SqueezeError(f"{file} is damaged or cut short; fetch or copy it again")


def _as_tensors(file: Path, content: Any) -> dict[str, Tensor]:
    tensors = dict(content) if isinstance(content, Mapping) else {}
    odd = next((key for key, value in tensors.items() if not isinstance(value, Tensor)), None)
    if not tensors or odd is not None:
        what = f"{odd!r} is a {type(tensors[odd]).__name__}" if odd is not None else type(content).__name__
        raise SqueezeError(
            f"{file} holds no state dict of named tensors ({what}); save the model with save_pretrained and pass that"
        )
    return {str(name): tensor for name, tensor in tensors.items()}
