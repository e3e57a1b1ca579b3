"""SHA-256 over training data and checkpoints, equal for equal content, wherever the files are."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.feature_keys import TEACHER
from biosqueeze.data.text.prepared_corpus import Corpus
from biosqueeze.training.batches import ItemSource
from biosqueeze.training.sources import Blocks, Mixture

# Keys of config.json without an effect on a model's outputs.
_WITHOUT_EFFECT = ("_name_or_path", "architectures", "transformers_version", "dtype", "torch_dtype")


def checkpoint_hash(checkpoint: Checkpoint) -> str:
    """Return the SHA-256 over a checkpoint's weights and the keys of config.json that affect its outputs."""
    config = {key: value for key, value in checkpoint.config.items() if key not in _WITHOUT_EFFECT}
    content = [checkpoint.weights_sha256(), json.dumps(config, sort_keys=True)]
    return hashlib.sha256("\n".join(content).encode()).hexdigest()


def source_hash(source: ItemSource | Blocks) -> str:
    """Return the SHA-256 over everything that a source computes features from: options, arrays, the prepared corpus.

    Where the hashes of two sources are equal, so are the features of every item. How often an item is drawn has no
    influence on the hash.

    Raises:
        TypeError: the source holds an object of a type that cannot be hashed.
    """
    digest = hashlib.sha256()
    _feed(digest, source)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    """Add a value with its type and its length, so that no two ways to split a sequence give the same bytes."""
    match value:
        case None | bool() | int() | float() | str():
            digest.update(f"{type(value).__name__} {value!r};".encode())
        case np.ndarray() | np.generic():
            digest.update(f"{value.dtype.str} {value.shape};".encode())
            digest.update(np.ascontiguousarray(value).data)
        case Corpus():
            # Without its path: the same text prepared elsewhere is the same corpus.
            _feed(digest, [value.length, value.frame])
            _feed(digest, [entry.sha256 for entry in value.entries])
        case Mixture():
            _feed(digest, [value.labelled, value.unlabelled])
        case Mapping():
            # Stored outputs of another model follow from that model, and their last digits differ between machines.
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
            raise TypeError(f"a {type(value).__name__} cannot be hashed")
