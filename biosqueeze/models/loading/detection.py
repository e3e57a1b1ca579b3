"""Detect a checkpoint's family and head from config.json and the names of its weights. Torch-free."""

from collections.abc import Mapping, Sequence
from typing import Any

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.checkpoint_files import has_weights
from biosqueeze.errors import SqueezeError
from biosqueeze.models.families import family_of, supported
from biosqueeze.models.loading.deberta import complete_config
from biosqueeze.models.loading.family_signs import infer_family, infer_head, lacks_head
from biosqueeze.models.loading.weights import tensor_names
from biosqueeze.progress import note_once, warn_once


def config_with_family(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the content of config.json; a missing `model_type` is inferred from the names of the weights.

    Raises:
        SqueezeError: the family is unknown or not supported, or the model is no encoder that transformers 5 has.
    """
    raw = dict(checkpoint.config)
    raw["model_type"] = raw.get("model_type") or _inferred_type(checkpoint)
    family = family_of(raw)
    _check_kind(checkpoint, raw)
    if family.name == "eurobert" and "clf_pooling" in raw:  # its name before EuroBERT was part of transformers
        raw.setdefault("classifier_pooling", raw["clf_pooling"])
    return complete_config(checkpoint.name, raw, _names(checkpoint)) if family.name == "deberta-v2" else raw


def _check_kind(checkpoint: Checkpoint, raw: Mapping[str, Any]) -> None:
    if raw.get("position_embedding_type", "absolute") != "absolute":
        raise SqueezeError(
            f"{checkpoint.name} has {raw['position_embedding_type']} position embeddings, which transformers 5 "
            "no longer supports; pass a checkpoint with absolute ones"
        )
    if raw.get("is_decoder"):
        raise SqueezeError(f"{checkpoint.name} is a decoder (is_decoder in config.json); pass an encoder")


def _inferred_type(checkpoint: Checkpoint) -> str:
    files = [path.name for path in checkpoint.path.iterdir()]
    family = infer_family(_names(checkpoint), checkpoint.config, files)
    if family is None:
        raise SqueezeError(
            f"{checkpoint.name} has no model_type in config.json, and its weights have the names of no supported "
            f"family; add model_type to config.json, one of {supported()}"
        )
    note_once(checkpoint.path, f"{checkpoint.name}: config.json has no model_type; its tensors are those of {family}")
    return family


def _names(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Return the names of the weights; empty if only config.json was fetched (--dry-run)."""
    return tensor_names(checkpoint) if has_weights(checkpoint.path) else ()


def detect_head(checkpoint: Checkpoint, config: Any, names: Sequence[str] | None = None) -> str:
    """Return the head that the checkpoint contains: that of the class in config.json, if the weights have it.

    Args:
        checkpoint: the checkpoint.
        config: its config: transformers', or the content of config.json with a `model_type`.
        names: names of its tensors, read from the files when left out.

    Raises:
        SqueezeError: the class in config.json is none of the family's that are supported.
    """
    family = family_of(config)
    architecture = (checkpoint.config.get("architectures") or [None])[0]
    tensor_names = _names(checkpoint) if names is None else names
    inferred = infer_head(family, tensor_names, checkpoint.labels)
    head = family.head_of(architecture) if architecture else inferred
    if head is None:
        raise SqueezeError(
            f"{checkpoint.name} is a {architecture}, which is none of the classes of {family.name} that are supported; "
            f"set architectures in config.json of a local copy, for example to {family.architecture(inferred)}"
        )
    if tensor_names and head != "base" and (inferred == "base" or lacks_head(family, tensor_names, head)):
        used = "the encoder" if inferred == "base" else family.architecture(inferred)
        warn_once(
            checkpoint.path,
            f"{checkpoint.name}: config.json says {architecture}, but its weights have no such head; using {used}",
        )
        return inferred
    return head
