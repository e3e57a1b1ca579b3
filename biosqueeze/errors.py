"""The errors that biosqueeze explains; the command line maps each one to its exit code."""

import importlib
from types import ModuleType


class SqueezeError(Exception):
    """Something the user can put right.

    The message is one line: what was wrong, what was expected, and the next thing to type.
    """

    exit_code = 1


class UsageError(SqueezeError):
    """The command line or the recipe asks for something that does not exist or does not fit together."""

    exit_code = 2


class QualityGateMissedError(SqueezeError):
    """A metric stayed below the floor that the user set (`evaluate --min f1=0.80`)."""

    exit_code = 4


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module, or say which extra brings it.

    Raises:
        SqueezeError: the module is not installed; the message holds the pip line.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise SqueezeError(
            f'{module} is not installed; it comes with an extra: pip install "biosqueeze[{extra}]"'
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the memory did not suffice, of a GPU or of the CPU. Torch-free: its own error is known by name."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and ("can't allocate memory" in str(error) or "out of memory" in str(error))
