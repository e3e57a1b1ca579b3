"""A biosqueeze.json for a checkpoint that no stage wrote."""

import json
from pathlib import Path
from typing import Any

from biosqueeze.manifest import FILE_NAME

PARENT = {"name": "parent", "sha256": "0" * 64}


def history_entry(**changes: Any) -> dict[str, Any]:
    """The JSON of one history entry, valid unless the changes make it invalid."""
    entry = {"stage": "copy", "version": "0.1", "created": "2025-01-01T00:00:00+00:00", "options": {}, "sources": {}}
    return {**entry, "parents": {"parent": PARENT}, **changes}


def manifest_json(**changes: Any) -> dict[str, Any]:
    """The JSON of a manifest, valid unless the changes make it invalid."""
    model = {"family": "bert", "sha256": "1" * 64, "shape": {"layers": 4}, "parameters": {"total": 7}, "megabytes": 0.1}
    cpu = {"cpu": "A Processor", "cpu_flags": ["avx2"]}
    environment = {"biosqueeze": "0.1", "python": "3.11", "system": "Linux", **cpu, "packages": {"torch": "2.11"}}
    manifest = {"format": 1, "stage": "copy", "version": "0.1", "created": "2025-01-01T00:00:00+00:00"}
    manifest |= {"parent": PARENT, "head": "base", "task": None, "model": model, "metrics": {}, "notes": {}}
    return {**manifest, "environment": environment, "history": [history_entry()], **changes}


def write_manifest(directory: Path, **changes: Any) -> None:
    """Write biosqueeze.json: a valid manifest with these changes."""
    (directory / FILE_NAME).write_text(json.dumps(manifest_json(**changes)), encoding="utf-8")
