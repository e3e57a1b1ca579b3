"""Export an encoder of a family that biosqueeze does not support: transformers loads it, torch.onnx writes its graph.

Nothing here depends on the family, so the comparison with PyTorch decides whether the export sufficed.
"""

import inspect
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

from biosqueeze.backends.onnx_export import GraphInputs, compared, explained_graph, write_onnx
from biosqueeze.backends.onnxruntime import FILES
from biosqueeze.backends.parity import Parity
from biosqueeze.backends.torch import TorchPredictor
from biosqueeze.checkpoint import Checkpoint, copy_files
from biosqueeze.errors import SqueezeError, first_line
from biosqueeze.models.unsupported import stock_architecture

_LONGEST = 512  # tokens, where neither tokenizer nor config.json limits them
_OFFSET = 2  # positions that RoBERTa-like models leave unused


def export_stock(source: Checkpoint, directory: Path, tolerance: float, opset: int) -> Parity:
    """Copy a checkpoint, write onnx/model.onnx into the copy, and compare the graph with PyTorch on padded batches.

    Args:
        source: with weights, of a family that is not supported.
        directory: of the copy.
        tolerance: the largest difference of an output that is accepted.
        opset: version of ONNX's operators.

    Raises:
        SqueezeError: transformers cannot load it, it is no encoder, torch.onnx cannot export it, or the graph differs.
    """
    model, tokenizer = _load(source)
    if all(file.suffix == ".safetensors" for file in source.weights):
        copy_files(source, directory)
    else:
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)
    inputs = _inputs(model, tokenizer)
    path = directory / FILES["fp32"]
    try:
        write_onnx(model, path, opset=opset, inputs=inputs)
    except Exception as error:  # the exporter raises whatever it meets in the family's code
        raise SqueezeError(
            f"torch.onnx cannot export {source.name}, of the family {model.config.model_type}, which biosqueeze does "
            f"not support ({_cause(error)}); nothing was written; start from a model of a supported family"
        ) from error
    copy = Checkpoint(directory, source.name)
    with explained_graph(source.name, opset):
        reference = TorchPredictor(model, inputs=inputs.names)
        return compared(copy, reference, inputs, tolerance, "another family may be exact")


def _load(source: Checkpoint) -> tuple[PreTrainedModel, Any]:
    architecture = stock_architecture(source.name, source.config)
    build: Any = getattr(transformers, architecture, None)
    if build is None:
        raise SqueezeError(f"transformers has no {architecture} (architectures in config.json of {source.name})")
    try:
        model, report = build.from_pretrained(
            source.path,
            dtype=torch.float32,
            attn_implementation="eager",
            local_files_only=True,
            output_loading_info=True,
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(source.path, local_files_only=True)
    except Exception as error:  # transformers and the family's code raise anything
        raise SqueezeError(f"transformers cannot load {source.name} ({_cause(error)})") from error
    if missing := sorted(report["missing_keys"]):
        raise SqueezeError(f"{source.name} lacks weights of {architecture}, such as {missing[0]}; fine-tune it first")
    return model.eval(), tokenizer


def _inputs(model: PreTrainedModel, tokenizer: Any) -> GraphInputs:
    accepted = inspect.signature(model.forward).parameters
    has_types = "token_type_ids" in accepted and "token_type_ids" in tokenizer.model_input_names
    types = ("token_type_ids",) if has_types and getattr(model.config, "type_vocab_size", 2) > 0 else ()
    positions = getattr(model.config, "max_position_embeddings", None) or _LONGEST + _OFFSET
    return GraphInputs(("input_ids", "attention_mask", *types), min(tokenizer.model_max_length, positions - _OFFSET))


def _cause(error: BaseException) -> str:
    """Return the first line of an error's innermost cause, which exporters hide behind advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)
