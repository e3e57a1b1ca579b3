"""What training data and teachers are, as hashes: equal where they do the same, wherever they lie."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.feature_keys import TEACHER
from biosqueeze.data.prepared import Corpus
from biosqueeze.training.batches import ItemSource
from biosqueeze.training.sources import Blocks, Mixture

# In config.json, and without any effect on what a model says.
_IDLE = ("_name_or_path", "architectures", "transformers_version", "dtype", "torch_dtype")


def checkpoint_hash(checkpoint: Checkpoint) -> str:
    """SHA-256 over a checkpoint's weights, and what config.json says about how they are used."""
    config = {key: value for key, value in checkpoint.config.items() if key not in _IDLE}
    content = [checkpoint.weights_sha256(), json.dumps(config, sort_keys=True)]
    return hashlib.sha256("\n".join(content).encode()).hexdigest()


def source_hash(source: ItemSource | Blocks) -> str:
    """SHA-256 over all that a source makes features of: options, arrays, the prepared corpus.

    Where these are equal, every item's features are. How often an item is drawn does not matter.

    Raises:
        TypeError: the source holds something whose content cannot be told.
    """
    digest = hashlib.sha256()
    _feed(digest, source)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    """Add a value, with its type and its length, so that no two ways to cut a sequence look alike."""
    match value:
        case None | bool() | int() | float() | str():
            digest.update(f"{type(value).__name__} {value!r};".encode())
        case np.ndarray() | np.generic():
            digest.update(f"{value.dtype.str} {value.shape};".encode())
            digest.update(np.ascontiguousarray(value).data)
        case Corpus():
            # Not where it lies: the same text prepared elsewhere is the same corpus.
            _feed(digest, [value.length, value.frame])
            _feed(digest, [entry.sha256 for entry in value.entries])
        case Mixture():
            _feed(digest, [value.labelled, value.unlabelled])
        case Mapping():
            # What a teacher said of an item follows from the teacher, and differs in its last digits by machine.
            named = {key: entry for key, entry in value.items() if not str(key).startswith(TEACHER)}
            _feed(digest, sorted(named))
            _feed(digest, [named[key] for key in sorted(named)])
        case _ if is_dataclass(value):
            digest.update(f"{type(value).__name__};".encode())
            _feed(digest, {field.name: getattr(value, field.name) for field in fields(value)})
        case Iterable():
            parts = list(value)
            digest.update(f"{len(parts)};".encode())
            for part in parts:
                _feed(digest, part)
        case _:
            raise TypeError(f"the content of a {type(value).__name__} cannot be told")
