"""Refuse logits that are NaN or infinite, and name the weights that made them so."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biosqueeze.backends import files_of
from biosqueeze.backends.onnx_files import read_graph
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.model_facts import HEAD_FILE

_REMEDIES = "the file is damaged, or its training diverged: fetch or copy it again, or train again with a lower --lr"


def check_finite(rows: Sequence[NDArray[np.floating[Any]]], checkpoint: Checkpoint, backend: str) -> None:
    """Check the logits of real tokens: a prediction from NaN would look like one that finds nothing.

    Args:
        rows: logits without padding.
        checkpoint: that computed them.
        backend: that it ran on, RUNTIME[:PRECISION].

    Raises:
        SqueezeError: a logit is NaN or infinite; the message names the first tensor that is.
    """
    if all(np.isfinite(row).all() for row in rows):
        return
    check_finite_weights(checkpoint, backend)
    other = "" if backend == "torch" else "try another --backend, such as torch, or "
    raise SqueezeError(
        f"the logits of {checkpoint.name} on {backend} are NaN or infinite, although all its weights are finite: they "
        f"overflow; {other}train again with a lower --lr"
    )


def check_finite_weights(checkpoint: Checkpoint, backend: str) -> None:
    """Check the weights that a backend loads.

    Raises:
        SqueezeError: one is NaN or infinite; the message names its tensor.
    """
    for file, name, array in _arrays(checkpoint, backend):
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            kind = "NaN" if np.isnan(array).any() else "an infinite number"
            raise SqueezeError(
                f"the outputs of {checkpoint.name} are NaN or infinite, because {name} in {file} holds {kind}; "
                f"{_REMEDIES}"
            )


def check_decoding_parameters(parameters: Mapping[str, NDArray[Any]], checkpoint: Checkpoint) -> None:
    """Check the scores of a CRF, where minus infinity forbids a transition.

    Raises:
        SqueezeError: a score is NaN or plus infinity.
    """
    for name, array in parameters.items():
        if not (array < np.inf).all():
            raise SqueezeError(
                f"{name} in {checkpoint.path / HEAD_FILE} holds NaN or infinity, so nothing can be decoded; {_REMEDIES}"
            )


def _arrays(checkpoint: Checkpoint, backend: str) -> Iterator[tuple[Path, str, NDArray[Any]]]:
    """Yield file, name and values of the weights that a backend loads."""
    files = files_of(checkpoint, backend)
    if files[0].suffix == ".onnx":
        import onnx

        for tensor in read_graph(files[0]).graph.initializer:
            yield files[0], tensor.name, onnx.numpy_helper.to_array(tensor)
        return
    from biosqueeze.models.loading.weights import read_weights

    place = files[0] if len(files) == 1 else checkpoint.path
    for name, weights in read_weights(checkpoint).items():
        yield place, name, (weights.float() if weights.is_floating_point() else weights).numpy()
    if checkpoint.custom_head:
        from safetensors.numpy import load_file

        for name, array in load_file(checkpoint.path / HEAD_FILE).items():
            yield checkpoint.path / HEAD_FILE, name, array
