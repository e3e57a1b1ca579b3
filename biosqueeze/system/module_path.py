"""Where the Python processes that are started import modules from."""

import sys
from pathlib import Path


def safe_path() -> dict[str, str]:
    """Return the environment variable with which `python -m` imports no file of the working directory.

    A script there may have the name of a module, such as statistics.py. The variable is left out where this process
    imports from there too.
    """
    return {} if {"", str(Path.cwd())} & set(sys.path) else {"PYTHONSAFEPATH": "1"}
