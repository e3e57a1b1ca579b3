"""Write a checkpoint's ONNX graph beside its weights, if its outputs agree with PyTorch's."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.files import megabytes
from biosqueeze.models.custom_heads.files import BESIDE_ENCODER, check_custom_head
from biosqueeze.models.families import FAMILIES
from biosqueeze.models.unsupported import stock_architecture
from biosqueeze.options import (
    Bounds,
    CheckpointArgument,
    Outcome,
    Plan,
    Purpose,
    Summary,
    WritingOptions,
)
from biosqueeze.output import StageRecord, check_output, derive_out, inputs_of, open_output
from biosqueeze.progress import note, warn
from biosqueeze.summaries import next_after_export, size_of

if TYPE_CHECKING:
    from biosqueeze.backends.parity import Parity

PURPOSE = Purpose.DEPLOY
EXAMPLES = (("Write onnx/model.onnx beside the weights", "biosqueeze export ner-tiny"),)


@dataclass(frozen=True, kw_only=True)
class Options(WritingOptions):
    """Export a checkpoint to ONNX (onnx/model.onnx).

    The graph takes any batch size and length. Its outputs are compared with those of PyTorch on padded batches; it is
    written only if they agree. Encoders of other families are exported as transformers has them.
    """

    checkpoint: CheckpointArgument
    tolerance: Annotated[
        float,
        "Largest allowed difference of an output from PyTorch; of outputs above 1, as a share of the largest.",
        Bounds(above=0),
    ] = 1e-3
    opset: Annotated[
        int | None,
        "Version of ONNX's operators, for runtimes that lack the default. Default: 20, which has Gelu as one operator.",
        Bounds(least=18, most=23),
    ] = None


def _out(options: Options, source: Checkpoint) -> Path:
    return Path(options.out) if options.out else derive_out(source, "onnx")


def plan(options: Options) -> Plan:
    """Return what would be exported; read the config."""
    from biosqueeze.models.count import parameters_of
    from biosqueeze.models.tokenizers.text_tokenizer import check_tokenizer_files

    source = open_checkpoint(options.checkpoint, weights=False)
    check_custom_head(source, "export", allowed=BESIDE_ENCODER)
    parameters = None
    if _is_supported(source):
        check_tokenizer_files(source)
        parameters = parameters_of(source)
    else:
        warn(_other_family(source))
    return Plan(
        out=check_output(_out(options, source), inputs_of(options, source), force=options.force),
        steps=(
            f"copy {source.name}",
            "write its graph to onnx/model.onnx, batch and length dynamic"
            + (f", opset {options.opset}" if options.opset else ""),
            f"compare it with PyTorch on three padded batches; fail over {options.tolerance:g}",
        ),
        parameters_before=parameters,
        parameters_after=parameters,
    )


def _is_supported(source: Checkpoint) -> bool:
    """Return whether the family is supported; without a `model_type` the weights decide, when they are loaded."""
    return source.config.get("model_type", "bert") in FAMILIES


def _other_family(source: Checkpoint) -> str:
    """Return what is said of a model of another family.

    Raises:
        SqueezeError: it is no encoder.
    """
    architecture = stock_architecture(source.name, source.config)
    return (
        f"{source.name} is a {architecture}, of the family {source.config['model_type']}, which biosqueeze does not "
        "support: transformers loads it and torch.onnx writes its graph, and no other command takes the result"
    )


def _write_graph(source: Checkpoint, directory: Path, tolerance: float, opset: int) -> "Parity":
    if not _is_supported(source):
        warn(_other_family(source))
        from biosqueeze.backends.onnx_other import export_stock

        return export_stock(source, directory, tolerance, opset)
    from biosqueeze.backends.onnx_export import copy_stock, export_checked
    from biosqueeze.models.loading.load import load_tokenizer

    load_tokenizer(source)  # raises for the tokenizer of another model
    return export_checked(copy_stock(source, directory), tolerance, opset=opset)


def run(options: Options) -> Outcome:
    """Export, compare, and write the checkpoint.

    Raises:
        SqueezeError: the graph's outputs differ from PyTorch's by more than the tolerance.
    """
    from biosqueeze.backends.onnx_export import OPSET
    from biosqueeze.backends.onnxruntime import files

    source = open_checkpoint(options.checkpoint)
    check_custom_head(source, "export", allowed=BESIDE_ENCODER)
    with open_output(_out(options, source), inputs_of(options, source), force=options.force) as output:
        parity = _write_graph(source, output.path, options.tolerance, options.opset or OPSET)
        copy = Checkpoint(output.path, source.name)
        size = round(megabytes(files(copy, "fp32")), 3)
        metrics = {"export": {**parity.as_dict(), "opset": options.opset or OPSET, "megabytes": size}}
        exported = output.finish(StageRecord(stage="export", parent=source, options=options, metrics=metrics))
    note(
        f"ONNX graph of {source.name}: {size:.1f} MB, largest difference from PyTorch "
        f"{parity.max_difference:.2g} over {parity.tokens} outputs of padded batches"
    )
    summary = Summary(
        size=size_of(exported), next_words=next_after_export(exported, source) if _is_supported(source) else ()
    )
    return Outcome(exported.path, {"metrics": metrics}, summary=summary)
