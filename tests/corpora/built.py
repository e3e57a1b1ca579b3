"""What `biosqueeze corpus` has written."""

import gzip
import json
from pathlib import Path
from typing import Any


def manifest_of(folder: Path) -> dict[str, Any]:
    """Return the content of corpus.json."""
    return dict(json.loads((folder / "corpus.json").read_text()))


def documents(folder: Path) -> list[str]:
    """Return the texts of the shards of a folder, in order."""
    shards = sorted(folder.glob("*.txt.gz"))
    return [d for shard in shards for d in gzip.decompress(shard.read_bytes()).decode().split("\n\n") if d]
