"""Graphs of pico models: what stock transformers computes, int8 graphs that are made once, and damaged graphs."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import transformers
from numpy.typing import NDArray

from biosqueeze import registry
from biosqueeze.backends.parity import random_batches
from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.quantizers import QuantizationJob

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Int8Graph:
    """A graph in a directory of its own, and what its method notes about it. Do not change the file: copy it."""

    path: Path
    notes: dict[str, Any]


def quantize(checkpoint: Path, method: str, out: Path) -> None:
    """Write `model_quantized.onnx`, calibrated on random ids of several lengths, and the notes beside `out`."""
    source = open_checkpoint(str(checkpoint))
    vocabulary, padding = source.config["vocab_size"], source.config["pad_token_id"]
    batches = [batch for seed in range(4) for batch in random_batches(vocabulary, 64, padding, seed=seed + 1)]
    out.mkdir()
    graph = source.path / "onnx" / "model.onnx"
    job = QuantizationJob(checkpoint=source, source=graph, target=out / "model_quantized.onnx", batches=batches)
    notes = registry.load("quantizers", method).quantize(job)
    out.with_suffix(".json").write_text(json.dumps(notes), encoding="utf-8")


def read(out: Path) -> Int8Graph:
    """Read what `quantize` has written."""
    return Int8Graph(out / "model_quantized.onnx", json.loads(out.with_suffix(".json").read_text(encoding="utf-8")))


def stock_outputs(checkpoint: Path, batch: Mapping[str, torch.Tensor]) -> Array:
    """Return what the stock model that config.json names computes, as a graph returns it: an answer's ends as two."""
    (name,) = transformers.AutoConfig.from_pretrained(checkpoint).architectures
    model = getattr(transformers, name).from_pretrained(checkpoint).eval()
    with torch.no_grad():
        outputs = model(**batch)
    ends = torch.stack([outputs.start_logits, outputs.end_logits], dim=-1) if "start_logits" in outputs else outputs[0]
    return np.asarray(ends)


def with_other_weights(source: Path, target: Path, change: Callable[[str, Array], Array]) -> None:
    """Copy a graph; `change(name, array)` returns the new value of each float matrix."""
    graph = onnx.load(source)
    for tensor in graph.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) == 2:
            array = change(tensor.name, onnx.numpy_helper.to_array(tensor).copy())
            tensor.CopyFrom(onnx.numpy_helper.from_array(array.astype(np.float32), tensor.name))
    onnx.save(graph, target)
