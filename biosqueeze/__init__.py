"""biosqueeze: make biomedical encoders small and fast.

The stages are functions of this package: `from biosqueeze import shrink`. They are loaded on first use, so importing
the package is cheap.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_FUNCTIONS = (
    "bench",
    "benchmark",
    "corpus",
    "distill",
    "evaluate",
    "export",
    "finetune",
    "inspect",
    "predict",
    "pretrain",
    "push",
    "quantize",
    "relabel",
    "report",
    "shrink",
    "students",
    "vocab",
)
__all__ = [*_FUNCTIONS, "__version__"]  # all of them are names


def __getattr__(name: str) -> Any:
    # Python also asks for submodules here, so nothing is imported for other names.
    if name not in _FUNCTIONS:
        raise AttributeError(f"module 'biosqueeze' has no attribute {name!r}")
    function = globals()[name] = importlib.import_module("biosqueeze.api").stage_function(name)
    return function


def __dir__() -> list[str]:
    return sorted([*globals(), *_FUNCTIONS])
