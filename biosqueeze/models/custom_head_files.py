"""What stages do with a head that stock transformers lacks, before anything is loaded. Torch-free."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.model_facts import HEAD_FILE


def refuse_own_head(checkpoint: Checkpoint, command: str, *, allowed: Sequence[str] = ()) -> None:
    """Say no to a checkpoint whose head a stage would lose.

    Args:
        checkpoint: what the stage was given.
        command: the stage.
        allowed: heads in head.safetensors that the stage can handle.

    Raises:
        SqueezeError: the checkpoint has another one.
    """
    head = checkpoint.custom_head
    if head is not None and head not in allowed:
        flag = "--tagger linear" if head in ("bilstm", "crf") else "--representation cls"
        raise SqueezeError(
            f"{checkpoint.name} has a {head} head ({HEAD_FILE}), which {command} cannot handle; fine-tune it with a "
            f"stock one first: biosqueeze finetune {checkpoint.name} {flag} --data DIRECTORY"
        )


def copy_head(source: Checkpoint, target: Path) -> None:
    """Copy a head of our own, where there is one, beside a model that was made of the rest."""
    if source.custom_head:
        shutil.copyfile(source.path / HEAD_FILE, target / HEAD_FILE)
