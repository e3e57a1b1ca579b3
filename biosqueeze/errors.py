"""Errors that the user can put right; the command line maps each class to its exit code."""

import importlib
from types import ModuleType


class SqueezeError(Exception):
    """An error that the user can put right.

    The message is one line: what was wrong, what was expected, and the next thing to type.
    """

    exit_code = 1


class UsageError(SqueezeError):
    """The command line or the recipe names something that does not exist, or options that exclude each other."""

    exit_code = 2


class QualityGateMissedError(SqueezeError):
    """A metric is below the minimum that the user set (`evaluate --min f1=0.80`)."""

    exit_code = 4


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module.

    Raises:
        SqueezeError: the module is not installed; the message names the extra to install.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise SqueezeError(
            f'{module} is not installed; it comes with an extra: pip install "biosqueeze[{extra}]"'
        ) from error


def in_one_line(error: BaseException) -> str:
    """Return the message of an error of a library, without line ends; the name of its class where it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error of a library; the name of its class where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


_OUT_OF_MEMORY = (
    "can't alloc",  # torch and OpenVINO
    "out of memory",
    "could not create a primitive",  # oneDNN, where it cannot allocate the code of a kernel
    "Failed to allocate",  # ONNX Runtime's arena, and OpenVINO
    "bad_alloc",  # C++, in ONNX Runtime and OpenVINO
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the memory of a GPU or of the CPU was exhausted; errors of packages are recognised by names."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    is_of_runtime = isinstance(error, RuntimeError) or type(error).__module__.startswith("onnxruntime.")
    return is_of_runtime and any(words in str(error) for words in _OUT_OF_MEMORY)


def is_lost_process(error: BaseException) -> bool:
    """Return whether another process of the same training has ended; torch's errors are recognised by their names."""
    is_of_group = type(error).__name__ in ("DistBackendError", "DistNetworkError", "DistStoreError")
    return is_of_group or (isinstance(error, RuntimeError) and "gloo" in str(error))
