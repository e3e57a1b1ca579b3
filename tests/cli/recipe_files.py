"""Files that the tests of recipes write."""

from pathlib import Path


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
