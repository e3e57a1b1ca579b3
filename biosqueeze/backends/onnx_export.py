"""Export a checkpoint to an ONNX file with dynamic batch size and length."""

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from biosqueeze.backends.finite import check_finite
from biosqueeze.backends.onnx_files import UnusableGraphError, remove_external_data
from biosqueeze.backends.onnxruntime import FILES, OnnxPredictor
from biosqueeze.backends.parity import Ints, Parity, compare, random_batches
from biosqueeze.backends.torch import TorchPredictor, input_names
from biosqueeze.checkpoint import Checkpoint, copy_files, copy_graphs, locate
from biosqueeze.data.output_types import output_type_of_config
from biosqueeze.errors import SqueezeError, in_one_line
from biosqueeze.model_facts import head_of
from biosqueeze.models.custom_heads.files import copy_head
from biosqueeze.models.families import longest_input
from biosqueeze.models.heads import main_output
from biosqueeze.models.loading.detection import detect_head
from biosqueeze.models.loading.load import load_model, load_tokenizer
from biosqueeze.models.longformer import with_dense_attention
from biosqueeze.sentence_layout import copy_sentence_layout

# 20 is the first with Gelu as one operator, which takes half the time of its parts.
OPSET = 20
_PROTOBUF_LIMIT = 2_000_000_000


class PositionalModel(nn.Module):
    """A model with positional inputs and one output tensor, as exporters need it."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = with_dense_attention(model)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return `main_output` of the model."""
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        return main_output(self.model(input_ids=input_ids, attention_mask=attention_mask, **types))


@dataclass(frozen=True)
class GraphInputs:
    """What a graph takes."""

    names: tuple[str, ...]
    longest: int
    """Tokens in a sequence."""

    @classmethod
    def of(cls, model: PreTrainedModel) -> Self:
        """Return those of a model of a supported family."""
        return cls(input_names(model), longest_input(model.config))

    def batches(self, config: Any) -> tuple[dict[str, Ints], ...]:
        """Draw padded batches for a model's config."""
        return random_batches(config.vocab_size, self.longest, config.pad_token_id or 0)


def example_inputs(model: PreTrainedModel, inputs: GraphInputs | None = None) -> tuple[Tensor, ...]:
    """Return a padded batch for tracing: int64 (4, 24) each, in the order of the inputs' names."""
    inputs = inputs or GraphInputs.of(model)
    tensors = {name: torch.from_numpy(values) for name, values in inputs.batches(model.config)[0].items()}
    tensors["token_type_ids"] = torch.zeros_like(tensors["input_ids"])
    return tuple(tensors[name] for name in inputs.names)


def dynamic_axes(count: int) -> tuple[dict[int, Any], ...]:
    """Declare both axes of each input dynamic."""
    dynamic = torch.export.Dim.DYNAMIC
    return tuple({0: dynamic, 1: dynamic} for _ in range(count))


def output_name(model: PreTrainedModel) -> str:
    """Return `logits`, or `last_hidden_state` for an encoder without a head."""
    return "last_hidden_state" if model.base_model is model else "logits"


def write_onnx(
    model: PreTrainedModel, path: Path, traced: Any = None, *, opset: int = OPSET, inputs: GraphInputs | None = None
) -> None:
    """Write a model to one ONNX file; weights over 2 GB are written to a file beside it.

    Args:
        model: with eager attention: its graph is faster than that of sdpa, which checks for rows without any token.
        path: the file to write.
        traced: a program exported from `PositionalModel(model)`, to be written instead of the model.
        opset: version of ONNX's operators.
        inputs: of the graph; may be left out for a supported family.
    """
    inputs = inputs or GraphInputs.of(model)
    with silence_libraries(), torch.no_grad():
        program: Any = torch.onnx.export(
            traced or PositionalModel(model).eval(),
            example_inputs(model, inputs),
            dynamo=True,
            dynamic_shapes=dynamic_axes(len(inputs.names)),
            input_names=list(inputs.names),
            output_names=[output_name(model)],
            opset_version=opset,
            verbose=False,
        )
        _clean(program.model)
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_external_data(path)
        program.save(path, external_data=model.num_parameters() * 4 > _PROTOBUF_LIMIT)


def _clean(model: Any) -> None:
    """Remove the exporter's metadata (stack traces with local paths), and name the dynamic axes of all values."""
    model.graph.name = "biosqueeze"
    inputs = model.graph.inputs
    names = {str(value.shape[axis]): name for value in inputs for axis, name in enumerate(("batch", "length"))}
    symbol = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    for node in model.graph:
        node.metadata_props.clear()
    for value in (*inputs, *(output for node in model.graph for output in node.outputs)):
        value.metadata_props.clear()
        for axis, size in enumerate(value.shape or ()):
            if not isinstance(size, int) and size.value is not None:  # such as s18, or Min(512, s41)
                value.shape[axis] = symbol.sub(lambda match: names[match[0]], size.value)


@contextlib.contextmanager
def silence_libraries() -> Iterator[None]:
    """Suppress logs, warnings and standard output of exporters and quantizers; errors are raised as before."""
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def copy_stock(source: Checkpoint, directory: Path) -> Checkpoint:
    """Copy a checkpoint with its graphs.

    It is loaded and saved where its layout is old (.bin weights, no tokenizer.json), or where config.json does not name
    the head that the weights have.

    Returns:
        the copy, with the name of the original.
    """
    present = {path.name for path in source.path.iterdir()}
    current_layout = "tokenizer.json" in present and all(path.suffix == ".safetensors" for path in source.weights)
    is_named = source.config.get("model_type") and source.config.get("architectures")
    if current_layout and is_named and detect_head(source, source.config) == head_of(source.config):
        copy_files(source, directory)
    else:
        load_model(source).model.save_pretrained(directory)
        load_tokenizer(source).save_pretrained(directory)
        copy_head(source, directory)
        copy_sentence_layout(source.path, directory)
        copy_graphs(source, directory)
    return Checkpoint(directory, source.name)


def export_checked(
    checkpoint: Checkpoint, tolerance: float, remedy: str = "--tolerance sets another", *, opset: int = OPSET
) -> Parity:
    """Write onnx/model.onnx into a checkpoint and compare it with PyTorch on padded batches.

    Args:
        checkpoint: with weights, a copy with the name of the original.
        tolerance: the largest difference of an output that is accepted; of outputs above 1, as a share of the largest.
        remedy: what the user can do about a larger one, for the message.
        opset: version of ONNX's operators.

    Raises:
        SqueezeError: an output differs by more than the tolerance, or is NaN or infinite, or ONNX Runtime cannot
            compute the graph.
    """
    model = load_model(checkpoint, attention="eager").model
    inputs = GraphInputs.of(model)
    write_onnx(model, checkpoint.path / FILES["fp32"], opset=opset, inputs=inputs)
    with explained_graph(checkpoint.name, opset):
        return compared(checkpoint, TorchPredictor(model), inputs, tolerance, remedy)


@contextlib.contextmanager
def explained_graph(name: str, opset: int) -> Iterator[None]:
    """Say of a graph that was just written, and cannot be computed, that the exporter is the reason.

    With opset 23, torch 2.13 writes rotary position embeddings that are right for one sequence alone.
    """
    try:
        yield
    except UnusableGraphError as error:
        advice = "give another --opset" if opset == OPSET else "leave --opset out"
        raise SqueezeError(
            f"ONNX Runtime cannot compute the graph that torch.onnx writes of {name} with opset {opset} "
            f"({in_one_line(error.__cause__ or error)}); nothing was written; {advice}"
        ) from error


def check_graph(checkpoint: Checkpoint, tolerance: float, remedy: str) -> None:
    """Check that a checkpoint's onnx/model.onnx is that of its weights; the arguments are those of `export_checked`.

    Raises:
        SqueezeError: an output differs by more than the tolerance, or is NaN or infinite.
    """
    model = load_model(checkpoint, attention="eager").model
    compared(checkpoint, TorchPredictor(model), GraphInputs.of(model), tolerance, remedy)


def compared(
    checkpoint: Checkpoint, reference: TorchPredictor, inputs: GraphInputs, tolerance: float, remedy: str
) -> Parity:
    """Compare a checkpoint's graph with PyTorch on padded batches; the arguments are those of `export_checked`.

    Raises:
        SqueezeError: an output differs by more than the tolerance, or is NaN or infinite.
    """
    batches = inputs.batches(reference.model.config)
    candidate = OnnxPredictor(checkpoint.path / FILES["fp32"])
    output_type = output_type_of_config(checkpoint.config)
    parity = compare(reference, candidate, batches, output_type)
    if not parity.max_difference <= tolerance * max(1.0, parity.largest):
        outputs = [output_type.vectors(reference.predict(batch), batch) for batch in batches]
        check_finite(outputs, Checkpoint(locate(checkpoint.name), checkpoint.name), "torch")  # the copy is removed
        raise SqueezeError(
            f"the ONNX graph of {checkpoint.name} differs from PyTorch by {parity.max_difference:.3g}, over the "
            f"tolerance of {tolerance:g}{_of_largest(parity)}; nothing was written; {remedy}"
        )
    return parity


def _of_largest(parity: Parity) -> str:
    return f" of the largest output, {parity.largest:.3g}" if parity.largest > 1 else ""
