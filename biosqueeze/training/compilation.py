"""--compile: torch.compile in place, so that names of weights and the model itself stay what they are."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn

from biosqueeze.errors import SqueezeError


def check_compiler() -> None:
    """Make sure that --compile has something to compile with.

    Raises:
        SqueezeError: it has not.
    """
    if not any(map(shutil.which, [os.environ.get("CXX") or "g++", "clang++", "cl"])):
        raise SqueezeError("--compile needs a C++ compiler (g++ or clang++), and none is installed; leave it out")


@contextmanager
def compiled(modules: Sequence[nn.Module], *, asked: bool) -> Iterator[None]:
    """Have the modules compiled when they are first called, if asked; afterwards they are as before."""
    if not asked:
        yield
        return
    for module in modules:
        module.compile()
    try:
        yield
    finally:
        for module in modules:
            module._compiled_call_impl = None
