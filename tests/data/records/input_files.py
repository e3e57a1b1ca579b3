"""Small files of records, as they are or compressed."""

import gzip
from pathlib import Path


def write_file(folder: Path, name: str, content: str | bytes) -> Path:
    """Write a file, compressed if its name ends in .gz."""
    data = content.encode() if isinstance(content, str) else content
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def input_file(folder: Path, name: str, content: str) -> str:
    """Write such a file, and return its name as the command line has it."""
    return str(write_file(folder, name, content))
