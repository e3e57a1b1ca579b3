"""The manifest of a directory that holds one checkpoint for each of several speed-ups."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from biosqueeze import __version__, manifest
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.environment import current_environment
from biosqueeze.files import content_hash
from biosqueeze.manifest import HistoryEntry, Manifest, ModelFacts, ParentRef
from biosqueeze.model_facts import ModelShape
from biosqueeze.options import WritingOptions, resolved


def family_manifest(
    path: Path, source: Checkpoint, options: WritingOptions, members: Mapping[str, Mapping[str, Any]]
) -> Manifest:
    """Describe a directory of checkpoints, which holds no model itself.

    Args:
        path: the directory.
        source: that all members are cut from.
        options: of the stage.
        members: facts of each, by its folder.
    """
    parent = ParentRef(source.name, source.weights_sha256())
    entry = HistoryEntry(
        stage="shrink",
        version=__version__,
        created=manifest.now(),
        options=resolved(options),
        sources=dict(options.sources),
        parents={"parent": parent},
    )
    family = str(source.config.get("model_type"))
    model = ModelFacts(
        family=family, sha256=content_hash(path), shape=ModelShape(), parameters={"total": 0}, megabytes=0.0
    )
    return Manifest(
        stage=entry.stage,
        version=entry.version,
        created=entry.created,
        parent=parent,
        head="none",
        custom_head=None,
        task=source.task,
        model=model,
        metrics={},
        notes={"family": dict(members)},
        environment=current_environment(),
        history=(*source.history, entry),
    )
