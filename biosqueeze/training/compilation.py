"""--compile: torch.compile in place, so that the model and the names of its weights stay unchanged."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn

from biosqueeze.errors import SqueezeError


def check_compiler() -> None:
    """Check that a C++ compiler, which --compile needs, is installed.

    Raises:
        SqueezeError: no compiler was found.
    """
    if not any(map(shutil.which, [os.environ.get("CXX") or "g++", "clang++", "cl"])):
        raise SqueezeError("--compile needs a C++ compiler (g++ or clang++), and none is installed; leave it out")


@contextmanager
def compiled(modules: Sequence[nn.Module], *, enabled: bool) -> Iterator[None]:
    """Compile the modules on their first call, if enabled; restore them at the end."""
    if not enabled:
        yield
        return
    for module in modules:
        module.compile()
    try:
        yield
    finally:
        for module in modules:
            module._compiled_call_impl = None
