"""What stages do with a checkpoint's head.safetensors before any model is loaded. Torch-free."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.model_facts import HEAD_FILE


def check_custom_head(checkpoint: Checkpoint, command: str, *, allowed: Sequence[str] = ()) -> None:
    """Check that a stage would not lose the checkpoint's custom head.

    Args:
        checkpoint: the stage's input.
        command: the stage.
        allowed: custom heads that the stage supports.

    Raises:
        SqueezeError: the checkpoint has another one.
    """
    head = checkpoint.custom_head
    if head is not None and head not in allowed:
        flag = "--tagger linear" if head in ("bilstm", "crf") else "--representation cls"
        raise SqueezeError(
            f"{checkpoint.name} has a {head} head ({HEAD_FILE}), which {command} does not support; fine-tune it with "
            f"a stock head first: biosqueeze finetune {checkpoint.name} {flag} --data DIRECTORY"
        )


def copy_head(source: Checkpoint, target: Path) -> None:
    """Copy head.safetensors, if there is one, beside a model that was made from the rest of the checkpoint."""
    if source.custom_head:
        shutil.copyfile(source.path / HEAD_FILE, target / HEAD_FILE)
