"""Plugins are files: `objectives/kl.py` is the loss called kl. Names are listed without importing anything."""

import importlib
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

from biosqueeze.errors import UsageError

_ROOT = Path(__file__).parent

# Files in a plugin folder that serve all plugins and are not one themselves say so here.
SUPPORT = {
    "backends": {"onnx-export", "onnx-files", "parity", "predict"},
    "quantizers": {"calibration", "comparison", "onnx-graph", "weight-range"},
    "tasks": {"formulation", "sequence-kind"},
}


def names(package: str) -> tuple[str, ...]:
    """Names of the plugins in one folder of the package, sorted, as the command line spells them."""
    support = SUPPORT.get(package, set())
    stems = (path.stem for path in (_ROOT / package).glob("*.py") if not path.stem.startswith("_"))
    return tuple(sorted(name for stem in stems if (name := stem.replace("_", "-")) not in support))


def load(package: str, name: str) -> ModuleType:
    """Import one plugin by the name that the command line uses.

    Raises:
        UsageError: there is none of that name; the message names the nearest.
    """
    known = names(package)
    if name not in known:
        kind = package.removesuffix("s")
        raise UsageError(f"there is no {kind} called {name!r}.{closest(name, known)} Known: {', '.join(known)}")
    return importlib.import_module(f"biosqueeze.{package}.{name.replace('-', '_')}")


def closest(word: str, choices: Iterable[str]) -> str:
    """A " Did you mean 'x'?" for the nearest choice, or nothing when none is near."""
    near = get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""
