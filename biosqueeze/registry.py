"""Find plugins: `objectives/kl.py` is the loss called kl. Names are listed without importing the files."""

import ast
import functools
import importlib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from biosqueeze.errors import UsageError
from biosqueeze.suggestions import suggest

_ROOT = Path(__file__).parent

# Files in a plugin folder that all plugins share and that are no plugins themselves.
SUPPORT = {
    "backends": {
        "deployed",
        "finite",
        "int8-overflow",
        "onnx-export",
        "onnx-files",
        "onnx-limits",
        "onnx-other",
        "parity",
        "predict",
        "text-pairs",
    },
    "importance": {
        "activations",
        "calibration",
        "depth",
        "gates",
        "guide",
        "guided-cut",
        "kept-shape",
        "means",
        "options",
        "sources",
        "store",
    },
    "quantizers": {
        "calibration",
        "comparison",
        "divided-inputs",
        "divided-linears",
        "divisions",
        "input-statistics",
        "onnx-graph",
        "weight-scales",
    },
    "tasks": {"formulation", "sequence-kind", "sniffing"},
}


@functools.cache
def names(package: str) -> tuple[str, ...]:
    """Return the names of the plugins in one folder of the package, sorted, as the command line spells them."""
    support = SUPPORT.get(package, set())
    stems = (path.stem for path in (_ROOT / package).glob("*.py") if not path.stem.startswith("_"))
    return tuple(sorted(name for stem in stems if (name := stem.replace("_", "-")) not in support))


def load(package: str, name: str) -> ModuleType:
    """Import one plugin by the name that the command line uses.

    Raises:
        UsageError: there is no plugin of that name; the message names the nearest.
    """
    known = names(package)
    if name not in known:
        kind = package.removesuffix("s")
        raise UsageError(f"there is no {kind} called {name!r}.{closest(name, known)} Known: {', '.join(known)}")
    return importlib.import_module(f"biosqueeze.{package}.{name.replace('-', '_')}")


@functools.cache
def uses(package: str, name: str) -> frozenset[str]:
    """Return the names in a plugin's `USES`. The file is parsed and not imported: the help must stay fast."""
    tree = ast.parse((_ROOT / package / f"{name.replace('-', '_')}.py").read_text(encoding="utf-8"))
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and any(ast.unparse(target) == "USES" for target in statement.targets):
            constants = (node.value for node in ast.walk(statement.value) if isinstance(node, ast.Constant))
            return frozenset(value for value in constants if isinstance(value, str))
    return frozenset()


def closest(word: str, choices: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" or " It is 'x' here." for the choice that was meant, or "" if none is near."""
    suggestion = suggest(word, choices)
    if suggestion is None:
        return ""
    return f" It is {suggestion.name!r} here." if suggestion.is_synonym else f" Did you mean {suggestion.name!r}?"
