"""Read a checkpoint's weights: safetensors, or an old .bin through torch's restricted loader, which runs no code.

Torch is imported where tensors are read: the names of safetensors do not need it.
"""

import re
import zipfile
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from biosqueeze import checkpoint_files
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.files import is_lfs_pointer, lfs_pointer_error
from biosqueeze.model_facts import HEAD_FILE

if TYPE_CHECKING:
    from torch import Tensor

# Buffers, not weights, that old versions of transformers saved.
_BUFFERS = re.compile(r"(^|\.)embeddings\.(position_ids|token_type_ids)$")
_LEGACY_NORM = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))
_GLOBAL = re.compile(r"GLOBAL ([\w.]+)")


def weight_files(checkpoint: Checkpoint) -> tuple[Path, ...]:
    """Return the files with the weights, including all shards.

    Raises:
        SqueezeError: there are none, or a file of the index is missing.
    """
    present = checkpoint_files.weight_files(checkpoint.path)
    return present or tuple(file for file in checkpoint.weights if file.name != HEAD_FILE)


def tensor_names(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Return the names of the weights as in `read_weights`; of safetensors files only the headers are read."""
    files = weight_files(checkpoint)
    return _names_in(files, tuple(file.stat().st_mtime_ns for file in files))


@lru_cache(maxsize=8)
def _names_in(files: tuple[Path, ...], _changed: tuple[int, ...]) -> tuple[str, ...]:
    """Return the names in the files; cached by their times of change, because an old .bin must be read in full."""
    names = (name for file in files for name in _names(file))
    return tuple(clean_names(names).values())


def _names(file: Path) -> Iterable[str]:
    if file.suffix != ".safetensors":
        return _read_bin(file)
    try:
        with safe_open(file, framework="np") as opened:
            return list(opened.keys())
    except (SafetensorError, OSError) as error:
        raise _unreadable(file, error) from error


def read_weights(checkpoint: Checkpoint) -> dict[str, "Tensor"]:
    """Return all tensors on the CPU by their current names, memory-mapped if the format allows it.

    Raises:
        SqueezeError: files are missing, cut short, contain code, or contain something other than tensors.
    """
    tensors: dict[str, Tensor] = {}
    for file in weight_files(checkpoint):
        tensors |= _read_safetensors(file) if file.suffix == ".safetensors" else _read_bin(file)
    return {new: tensors[old] for old, new in clean_names(tensors).items()}


def clean_names(names: Iterable[str]) -> dict[str, str]:
    """Map old names to current ones: TensorFlow's gamma and beta, DataParallel's prefix; buffers are left out."""
    renamed = {}
    for name in names:
        new = name.removeprefix("module.")
        for old_part, new_part in _LEGACY_NORM:
            new = new.replace(old_part, new_part)
        if not _BUFFERS.search(new):
            renamed[name] = new
    return renamed


def _read_safetensors(file: Path) -> dict[str, "Tensor"]:
    from safetensors.torch import load_file

    try:
        return load_file(file)
    except (SafetensorError, OSError) as error:
        raise _unreadable(file, error) from error


def _read_bin(file: Path) -> dict[str, "Tensor"]:
    import torch

    try:
        # Files older than torch 1.6 are not zip archives and cannot be memory-mapped.
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    except UnpicklingError as error:
        code = _GLOBAL.search(str(error))
        raise _code_error(file, code[1]) if code else _unreadable(file, error) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError, IndexError) as error:
        # torch raises any of these for a file that was cut short.
        raise _unreadable(file, error) from error
    return _as_tensors(file, content)


def _code_error(file: Path, name: str) -> SqueezeError:
    return SqueezeError(
        f"{file} would run code when opened (it imports {name}), so it was not opened; "
        "get a safetensors copy, or a .bin with tensors only"
    )


def _unreadable(file: Path, error: Exception) -> SqueezeError:
    if isinstance(error, PermissionError):
        return SqueezeError(f"{file} cannot be read; check its permissions (`ls -l {file}`)")
    if is_lfs_pointer(file):
        return lfs_pointer_error(file, "the weights")
    return SqueezeError(f"{file} is damaged or cut short; fetch or copy it again")


def _as_tensors(file: Path, content: Any) -> dict[str, "Tensor"]:
    from torch import Tensor

    tensors = dict(content) if isinstance(content, Mapping) else {}
    wrong = next((key for key, value in tensors.items() if not isinstance(value, Tensor)), None)
    if not tensors or wrong is not None:
        content_type = (
            f"{wrong!r} is a {type(tensors[wrong]).__name__}" if wrong is not None else type(content).__name__
        )
        raise SqueezeError(
            f"{file} is not a state dict of named tensors ({content_type}); save the model with "
            "save_pretrained and pass that"
        )
    repeated = next((name for name, tensor in tensors.items() if _is_larger_than_its_storage(tensor)), None)
    if repeated is not None:
        raise SqueezeError(
            f"{file}: {repeated!r} is larger than its values in the file, so it was not loaded; save the model with "
            "save_pretrained and pass that"
        )
    return {str(name): tensor for name, tensor in tensors.items()}


def _is_larger_than_its_storage(tensor: "Tensor") -> bool:
    """Return whether a tensor repeats its values: a file of a few bytes could then take any amount of memory."""
    if str(tensor.layout) != "torch.strided":
        return True
    return tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes()
