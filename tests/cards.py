"""Cards of directories that only have a manifest."""

from pathlib import Path

from biosqueeze import card, manifest
from tests.manifests import write_manifest


def card_of(directory: Path, name: str = "", **changes: object) -> str:
    """Write a manifest and its card to a directory."""
    write_manifest(directory, **changes)
    read = manifest.read_manifest(directory)
    assert read is not None
    text = card.render(name or directory.name, read, directory)
    (directory / "README.md").write_text(text)
    return text
