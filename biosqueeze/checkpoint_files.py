"""The files of a checkpoint's directory: which of them may be read, and which hold the weights. Torch-free."""

import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from biosqueeze.errors import SqueezeError
from biosqueeze.files import is_lfs_pointer, lfs_pointer_error, read_json
from biosqueeze.files.json_object import JsonObject
from biosqueeze.sentence_layout import is_module_folder

# The directories of a checkpoint whose files are read or copied; what lies in others is left alone.
ARTEFACTS = ("onnx", "openvino")
GENERATOR = "generator"
"""The directory with the generator of a discriminator (`pretrain --objective rtd`)."""
_READ = (*ARTEFACTS, "results", "runs", GENERATOR)
# Tokenizers are the largest of the small files: those of 250,000 pieces take 35 MB.
_SMALL_SUFFIXES, _SMALL_BYTES = {".json", ".txt", ".model", ".md"}, 1 << 27
_WEIGHT_SUFFIXES = {".safetensors", ".bin"}
# Other large files, such as weights of TensorFlow, may have been left out on purpose.
_LOADED_SUFFIXES, _POINTER_BYTES = {".json", ".txt", ".safetensors"}, 1024
WEIGHT_PATTERNS = ("model*.safetensors", "pytorch_model*.bin")
# What the Trainer of transformers saves to resume a training: twice the size of the weights, and of no other use.
_TRAINER_FILES = (
    *("optimizer*.pt", "optimizer*.bin", "scheduler.pt", "scaler.pt", "rng_state*.pth"),
    *("trainer_state.json", "training_args.bin"),
)
# Event files and graphs lie one or two directories deep.
_DEPTH = 16
_KINDS = ((stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISDIR, "a directory"))
# What other programs write: a pattern of file names, what it is, and how it becomes a checkpoint.
_CONVERT = "convert it with transformers 4 (AutoModel...from_pretrained(DIRECTORY, {}=True).save_pretrained(OUT))"
_EXPORTED = "give the checkpoint that they were exported from"
_OTHER_FORMATS = (
    (
        "adapter_config.json",
        "an adapter (PEFT) without its model",
        "merge the two with peft (AutoPeftModelForTokenClassification, or that of another task; merge_and_unload, then "
        "save_pretrained)",
    ),
    ("tf_model*.h5", "weights of TensorFlow alone", _CONVERT.format("from_tf")),
    ("flax_model*.msgpack", "weights of Flax alone", _CONVERT.format("from_flax")),
    (
        "*ckpt*.index",
        "a checkpoint of TensorFlow",
        "take a version of the model for PyTorch, as the Hub has of most, or convert it with transformers 4 "
        "(load_tf_weights_in_bert)",
    ),
    ("*.onnx", "ONNX graphs alone", _EXPORTED),
    ("onnx/*.onnx", "ONNX graphs alone", _EXPORTED),
)
_INDEX_ADVICE = "fetch or copy the checkpoint again in full"


def is_of_training(name: str) -> bool:
    """Return whether a file is what transformers' Trainer resumes a training from."""
    return any(fnmatchcase(name, pattern) for pattern in _TRAINER_FILES)


def check_files(directory: Path) -> None:
    """Check that the files of a checkpoint are regular ones, that links stay within it, and that small ones are small.

    A link may lead to a file of the checkpoint, or, in the Hub's cache, to one of the model's blobs. What is read
    later, or copied to an output, is therefore the checkpoint's own.

    Raises:
        SqueezeError: a file is a pipe, a socket or a device, a link leads elsewhere or nowhere, a directory that is
            read is a link, or Git LFS has not fetched a file.
    """
    roots = _roots(directory.resolve())
    for path in readable_files(directory):
        if path.is_symlink():
            _check_link(path, roots)
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            kind = next((name for is_kind, name in _KINDS if is_kind(info.st_mode)), "a device")
            raise SqueezeError(f"{path} is {kind}, a regular file was expected; remove it, or copy the file there")
        if path.suffix in _SMALL_SUFFIXES and info.st_size > _SMALL_BYTES:
            raise SqueezeError(
                f"{path} has {info.st_size:,} bytes, at most {_SMALL_BYTES:,} were expected; fetch or copy it again"
            )
        if path.suffix in _LOADED_SUFFIXES and info.st_size < _POINTER_BYTES and is_lfs_pointer(path):
            raise lfs_pointer_error(path, "the file itself")


def readable_files(directory: Path) -> Iterator[Path]:
    """Yield all files of a checkpoint that are read, copied or published: those with a hidden name are not."""
    for path in sorted(directory.iterdir()):
        if path.name.startswith("."):
            continue
        if path.name in _READ or is_module_folder(path):
            yield from _below(path, _DEPTH) if path.is_dir() else (path,)
        elif not path.is_dir() or path.suffix in _SMALL_SUFFIXES | _WEIGHT_SUFFIXES:
            yield path


def other_format(directory: Path) -> str:
    """Return what a directory without a checkpoint holds instead, and the way out; "" if that is not known."""
    found = ((what, advice) for pattern, what, advice in _OTHER_FORMATS if any(directory.glob(pattern)))
    return next((f"{what}, and weights of PyTorch are needed; {advice}" for what, advice in found), "")


def _below(directory: Path, levels: int) -> Iterator[Path]:
    """Yield all files below a directory.

    Raises:
        SqueezeError: it is a link, or a directory below it is one, or they are more levels deep.
    """
    if levels == 0:
        raise SqueezeError(f"{directory} lies deeper than {_DEPTH} directories; remove what is not part of the model")
    if directory.is_symlink():
        raise SqueezeError(
            f"{directory} is a link to a directory ({directory.readlink()}), which is not followed; "
            "copy the directory in place of the link"
        )
    for path in sorted(directory.iterdir()):
        yield from _below(path, levels - 1) if path.is_dir() else (path,)


def _roots(directory: Path) -> tuple[Path, ...]:
    """Return where links may lead: the checkpoint, and the blobs of its repository in the Hub's cache."""
    snapshots = [parent for parent in directory.parents if parent.name == "snapshots"]
    return (directory, *(parent.parent / "blobs" for parent in snapshots))


def _check_link(path: Path, roots: tuple[Path, ...]) -> None:
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop, until Python 3.12
        raise SqueezeError(
            f"{path} is a link to {path.readlink()}, where there is no file; copy the file in place of the link"
        ) from error
    if not any(target.is_relative_to(root) for root in roots):
        raise SqueezeError(
            f"{path} is a link to {path.readlink()}, outside of the checkpoint, and is not followed; "
            "copy the file in place of the link"
        )


def has_weights(directory: Path) -> bool:
    """Return whether any float weights were fetched: an index alone is one of the small files."""
    return any(file for pattern in WEIGHT_PATTERNS for file in directory.glob(pattern))


def weight_files(directory: Path) -> tuple[Path, ...]:
    """Return the files with the weights that transformers would load, all shards of an index; empty without any.

    Raises:
        SqueezeError: the index is damaged, or a file of it is missing.
    """
    for stem, ending in (("model", "safetensors"), ("pytorch_model", "bin")):
        single = directory / f"{stem}.{ending}"
        index = directory / f"{stem}.{ending}.index.json"
        if single.is_file():
            return (single,)
        if index.is_file():
            return _shards(index)
    return ()


def _shards(index: Path) -> tuple[Path, ...]:
    json = JsonObject(read_json(index), str(index), _INDEX_ADVICE)
    names = sorted(set(json.mapping("weight_map", str).values()))
    if not names:
        raise json.error("weight_map", "lists no file")
    wrong = next((name for name in names if name != Path(name).name or "\0" in name), None)
    if wrong is not None:
        raise json.error("weight_map", f"lists {wrong[:80]!r}, the name of a file beside the index was expected")
    missing = next((name for name in names if not (index.parent / name).is_file()), None)
    if missing is not None:
        raise SqueezeError(f"{index} lists {missing}, which is missing; {_INDEX_ADVICE}")
    return tuple(index.parent / name for name in names)
