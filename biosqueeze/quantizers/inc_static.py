"""Static quantization by Neural Compressor (PT2E): activation ranges from calibration text, written as QDQ ONNX."""

from collections.abc import Sequence
from typing import Any

import onnx
import torch
from torch import nn

from biosqueeze.backends import with_token_types
from biosqueeze.backends.onnx_export import PositionalModel, dynamic_axes, example_inputs, silence_libraries, write_onnx
from biosqueeze.backends.torch import input_names
from biosqueeze.models.loading.load import load_model
from biosqueeze.progress import track
from biosqueeze.quantizers import FEW_OUTPUTS, QuantizationJob
from biosqueeze.quantizers.divided_linears import divide_linears
from biosqueeze.quantizers.onnx_graph import fold_weights, prevent_overflow, save, shrink_embeddings

NEEDS_CALIBRATION = True
USES = frozenset({"calibration_samples", "observer"})
_MEASURED_BATCHES = 8  # to choose the divisions of inputs on


def quantize(job: QuantizationJob) -> dict[str, Any]:
    """Write `job.target`: weights int8 per output channel, activations uint8 with one fixed range each."""
    model = load_model(job.checkpoint, attention="eager").model
    kept_float = narrow_layers(model)
    divided = divide_linears(model, job.batches[:_MEASURED_BATCHES], kept_float)
    prepared = _prepared(model, kept_float, job.observer)
    names = input_names(model)
    with torch.no_grad(), track("calibrate", len(job.batches)) as progress:
        for batch in job.batches:
            filled = with_token_types(batch)
            prepared(*(torch.from_numpy(filled[name]) for name in names))
            progress.advance()
    write_onnx(model, job.target, traced=_converted(prepared, example_inputs(model)))
    graph = onnx.load(job.target)
    prevent_overflow(graph)
    folded = fold_weights(graph)
    tables = shrink_embeddings(graph) if job.embeddings else 0
    save(graph, job.target)
    return {
        "weights": "int8 per channel",
        "activations": "uint8 static",
        "observer": job.observer,
        "int8_weights": folded,
        "inputs_divided_by_channel": divided,
        "int8_embedding_tables": tables,
        "kept_float": list(kept_float),
        "calibration_sequences": sum(len(batch["input_ids"]) for batch in job.batches),
    }


def _prepared(model: Any, kept_float: Sequence[str], observer: str) -> Any:
    """Return the model as a graph with observers at the inputs of its linear layers, except those that stay float32."""
    with silence_libraries():
        from neural_compressor.torch.export import export
        from neural_compressor.torch.quantization import StaticQuantConfig, prepare

        inputs = example_inputs(model)
        graph = export(PositionalModel(model).eval(), inputs, dynamic_shapes=dynamic_axes(len(inputs)))
        # torchao fails at a linear layer whose output is unused: the pooler below no head.
        graph.graph.eliminate_dead_code()
        graph.recompile()
        config = StaticQuantConfig(act_algo=observer)
        for name in kept_float:
            config.set_local(f"model.{name}", StaticQuantConfig(w_dtype="fp32", act_dtype="fp32"))
        return prepare(graph, config)


def narrow_layers(model: nn.Module) -> tuple[str, ...]:
    """Return the names of linear layers with few outputs: the classifier."""
    return tuple(
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module.out_features <= FEW_OUTPUTS
    )


def _converted(prepared: Any, inputs: tuple[torch.Tensor, ...]) -> Any:
    """Return the calibrated graph with quantize/dequantize pairs, as an exported program."""
    with silence_libraries(), torch.no_grad():
        from neural_compressor.torch.quantization import convert

        return torch.export.export(convert(prepared), inputs, dynamic_shapes=dynamic_axes(len(inputs)))
