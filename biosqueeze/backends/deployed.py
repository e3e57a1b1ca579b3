"""The size of what is deployed: the files that a backend loads, config.json, the tokenizer and a custom head."""

from biosqueeze.backends import default_spec, files_of
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.files import megabytes
from biosqueeze.model_facts import HEAD_FILE
from biosqueeze.models.tokenizers.casing import SENTENCEPIECE_FILES

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    *SENTENCEPIECE_FILES,
)


def deployed_megabytes(checkpoint: Checkpoint, spec: str | None = None) -> float | None:
    """Return the size of the files that a backend needs, in millions of bytes; None where its graph is missing.

    Args:
        checkpoint: with the files.
        spec: the backend; None for that of the checkpoint's last stage.
    """
    backend = spec or default_spec(checkpoint)
    try:
        # Without an import of torch.
        graph_or_weights = checkpoint.weights if backend == "torch" else files_of(checkpoint, backend)
    except SqueezeError:
        return None
    others = (checkpoint.path / name for name in ("config.json", HEAD_FILE, *TOKENIZER_FILES))
    files = {*graph_or_weights, *(file for file in others if file.is_file())}
    return round(megabytes(files), 3)


def directory_megabytes(checkpoint: Checkpoint) -> float:
    """Return the size of all files of a checkpoint, in millions of bytes."""
    return round(megabytes(file for file in checkpoint.path.rglob("*") if file.is_file()), 3)
