"""Write a checkpoint's int8 graph beside its weights, if its outputs agree with PyTorch's."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from biosqueeze import registry
from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.data.text.corpus import DEMO, check_field, corpus_files
from biosqueeze.errors import SqueezeError
from biosqueeze.models.custom_heads.files import BESIDE_ENCODER, check_custom_head, output_type_of_graph
from biosqueeze.options import (
    Bounds,
    CheckpointArgument,
    Choices,
    OnDisk,
    Outcome,
    Plan,
    Purpose,
    Requires,
    Summary,
    UsedBy,
    WritingOptions,
)
from biosqueeze.output import StageRecord, check_output, derive_out, inputs_of, open_output
from biosqueeze.progress import note, warn
from biosqueeze.quantizers import QuantizationJob
from biosqueeze.quantizers.calibration import COMPARED_LINES, MEASURED_LINES, CalibrationText, text_batches
from biosqueeze.quantizers.comparison import check_agreement, graph_sizes, note_comparison
from biosqueeze.summaries import next_after_export, size_of

if TYPE_CHECKING:
    from biosqueeze.quantizers import Quantizer
    from biosqueeze.quantizers.calibration import TokenBatch

PURPOSE = Purpose.SMALLER
EXAMPLES = (
    ("Dynamic int8: needs no data", "biosqueeze quantize ner-tiny"),
    (
        "Static int8, calibrated on text like that of its later use",
        "biosqueeze quantize ner-tiny --method inc-static --calibration abstracts.txt",
    ),
)
_EXPORT_TOLERANCE = 1e-3
# PyTorch's, TensorFlow's, JAX's and Rust's weights, and all graphs.
_FLOAT_FILES = (
    *("model*.safetensors*", "pytorch_model*.bin*", "tf_model*.h5*", "flax_model*.msgpack*", "rust_model.ot"),
    *("onnx/*", "openvino/*"),
)


@dataclass(frozen=True, kw_only=True)
class Options(WritingOptions):
    """Quantize a checkpoint to int8 (onnx/model_quantized.onnx).

    A checkpoint without onnx/model.onnx is exported first. The outputs of the int8 graph are compared with those of
    PyTorch on padded batches of text; it is written only if enough of them agree.
    """

    checkpoint: CheckpointArgument
    method: Annotated[str, "Quantization method. Static ones need calibration text.", Choices("quantizers")] = (
        "onnx-dynamic"
    )
    calibration: Annotated[
        str | None,
        "Text to measure activations on and to compare with PyTorch on: .txt, .jsonl, .gz, or a directory of such "
        "files. Default: a small generated sample.",
        OnDisk(),
    ] = None
    calibration_field: Annotated[str, "Field of a JSONL record that holds the text.", Requires("calibration")] = "text"
    calibration_samples: Annotated[int, "Lines to calibrate on.", Bounds(least=1), UsedBy("quantizers", "method")] = 256
    observer: Annotated[
        Literal["minmax", "kl"],
        "How the ranges of activations are computed; kl cuts off outliers, and takes longer.",
        UsedBy("quantizers", "method"),
    ] = "minmax"
    max_length: Annotated[int, "Tokens in a sequence of calibration and comparison.", Bounds(least=3)] = 128
    embeddings: Annotated[bool, "Store the embedding tables as int8 too, one scale per row."] = True
    slim: Annotated[
        bool,
        "Leave out the float weights and graphs: only what the int8 runtime needs. It can be evaluated, measured and "
        "used, and not trained, shrunk or exported.",
    ] = False
    tolerance: Annotated[
        float,
        "Least agreement with PyTorch: share of equal predictions, of which the commonest one, such as O, counts half "
        "(for scores the correlation, without a head the cosine).",
        Bounds(least=0, most=1),
    ] = 0.8


def _out(options: Options, source: Checkpoint) -> Path:
    return Path(options.out) if options.out else derive_out(source, "int8")


def _quantizer(options: Options) -> "Quantizer":
    return cast("Quantizer", registry.load("quantizers", options.method))


def plan(options: Options) -> Plan:
    """Return what would be quantized; read the config."""
    from biosqueeze.models.count import parameters_of
    from biosqueeze.models.tokenizers.text_tokenizer import check_tokenizer_files

    source = open_checkpoint(options.checkpoint, weights=False)
    check_custom_head(source, "quantize", allowed=BESIDE_ENCODER)
    check_tokenizer_files(source)
    _check_graph(source)
    first = () if _graph_of(source).is_file() else ("export it to onnx/model.onnx",)
    text = _find_text(options)
    needed = _quantizer(options).NEEDS_CALIBRATION
    calibrate = (f"calibrate on {options.calibration_samples} lines of {text}",) if needed else ()
    parameters = parameters_of(source)
    return Plan(
        out=check_output(_out(options, source), inputs_of(options, source), force=options.force),
        steps=(
            f"copy {source.name}",
            *first,
            *calibrate,
            f"quantize with {options.method} to onnx/model_quantized.onnx",
            f"compare it with PyTorch on {COMPARED_LINES} lines of {text}; "
            f"fail under an agreement of {options.tolerance:g}",
        ),
        parameters_before=parameters,
        parameters_after=parameters,
    )


def _graph_of(checkpoint: Checkpoint) -> Path:
    return checkpoint.path / "onnx" / "model.onnx"


def _check_graph(checkpoint: Checkpoint) -> None:
    """Check the float graph of a checkpoint, if it has one.

    Raises:
        SqueezeError: it is damaged, the graph of another model, or not in float32.
    """
    from biosqueeze.backends import open_predictor
    from biosqueeze.quantizers.onnx_graph import lower_precision

    graph = _graph_of(checkpoint)
    if not graph.exists():
        return
    open_predictor(checkpoint, "onnxruntime")
    if precision := lower_precision(graph):
        raise SqueezeError(
            f"{graph} holds {precision} weights, and float32 ones are quantized; remove it, and it is exported again"
        )


def _write_or_check_graph(copy: Checkpoint, source: Checkpoint) -> None:
    """Write the float graph of the copy, or compare the one that it has with its weights, as its export did.

    Raises:
        SqueezeError: the outputs of the graph differ from those of PyTorch.
    """
    from biosqueeze.backends.onnx_export import check_graph, export_checked

    if not _graph_of(copy).is_file():
        remedy = f"quantize what `biosqueeze export {source.quoted_name} --tolerance ...` writes"
        export_checked(copy, _EXPORT_TOLERANCE, remedy)
        return
    exports = (entry.options.get("tolerance") for entry in source.history if entry.stage == "export")
    tolerance = max([_EXPORT_TOLERANCE, *(value for value in exports if isinstance(value, int | float))])
    remedy = f"if it is that of other weights, remove {_graph_of(source)}, and it is exported again"
    check_graph(copy, tolerance, remedy)


def run(options: Options) -> Outcome:
    """Quantize, compare, and write the checkpoint.

    Raises:
        SqueezeError: the float graph is not that of the weights, or the int8 graph agrees too little with PyTorch.
    """
    from biosqueeze.backends.deployed import deployed_megabytes, directory_megabytes
    from biosqueeze.backends.onnx_export import copy_stock
    from biosqueeze.models.device import select_device

    select_device("cpu")  # as for an export: what is compared does not depend on a GPU, nor on its memory
    source = open_checkpoint(options.checkpoint)
    check_custom_head(source, "quantize", allowed=BESIDE_ENCODER)
    quantizer = _quantizer(options)
    _check_graph(source)
    _find_text(options)
    with open_output(_out(options, source), inputs_of(options, source), force=options.force) as output:
        text = _text(options, quantizer)
        calibration, compared = text_batches(text, source)
        _check_comparable(source, compared)
        if quantizer.NEEDS_CALIBRATION:
            _warn_of_few(calibration, text)
        copy = copy_stock(source, output.path)
        _write_or_check_graph(copy, source)
        facts = {"method": options.method, **quantizer.quantize(_job(options, copy, calibration))}
        parity = check_agreement(copy, compared, options.tolerance, _remedies(quantizer))
        metrics = {"quantize": {**parity.as_dict(), **graph_sizes(copy)}}
        record = StageRecord(
            stage="quantize",
            parent=source,
            options=options,
            metrics=metrics,
            notes={"quantize": facts},
            left_out=_float_files(copy) if options.slim else (),
        )
        quantized = output.finish(record)
    note_comparison(source, metrics["quantize"], _remedies(quantizer))
    sizes = {"deployed_megabytes": deployed_megabytes(quantized), "directory_megabytes": directory_megabytes(quantized)}
    note(
        f"deployed: {sizes['deployed_megabytes']} MB (int8 graph, tokenizer, config), of "
        f"{sizes['directory_megabytes']} MB in {quantized.path}"
    )
    size = size_of(quantized, sizes["deployed_megabytes"])
    summary = Summary(size=size, next_words=next_after_export(quantized, source))
    return Outcome(quantized.path, {"metrics": metrics, **sizes}, summary=summary)


def _float_files(checkpoint: Checkpoint) -> tuple[Path, ...]:
    """Return the weights of all frameworks and the other graphs, which the int8 runtime does not load."""
    from biosqueeze.backends.onnx_files import INT8

    files = {file for pattern in _FLOAT_FILES for file in checkpoint.path.glob(pattern)}
    int8 = set(checkpoint.path.glob(f"{INT8}*"))
    return tuple(sorted(file for file in files - int8 if file.is_file()))


def _find_text(options: Options) -> str:
    """Return the name of the text, which exists."""
    text = options.calibration or DEMO
    corpus_files(text)
    if options.is_given("calibration_field"):
        check_field("--calibration-field", [text])
    return text


def _text(options: Options, quantizer: "Quantizer") -> CalibrationText:
    if quantizer.NEEDS_CALIBRATION and not options.calibration:
        warn(f"calibrating on {DEMO}, which is only a sample; give --calibration with text like that to be read")
    return CalibrationText(
        source=options.calibration,
        field=options.calibration_field,
        lines=options.calibration_samples if quantizer.NEEDS_CALIBRATION else MEASURED_LINES,
        max_length=options.max_length,
        seed=options.seed,
    )


def _check_comparable(source: Checkpoint, compared: "Sequence[TokenBatch]") -> None:
    """Check that there are several texts, if scores are compared.

    Raises:
        SqueezeError: there is one.
    """
    from biosqueeze.data.output_types import SCORE

    if output_type_of_graph(source) == SCORE and sum(len(batch["input_ids"]) for batch in compared) == 1:
        raise SqueezeError(
            f"the scores of {source.name} are compared by their correlation, and --calibration has one line; give a "
            "text with more lines"
        )


def _warn_of_few(calibration: "Sequence[TokenBatch]", text: CalibrationText) -> None:
    """Warn if the text has fewer lines than --calibration-samples."""
    lines = sum(len(batch["input_ids"]) for batch in calibration)
    if lines < text.lines:
        counted = f"{lines:,} line{'s' * (lines > 1)}"
        warn(f"{text.source or DEMO} has {counted} to calibrate on, --calibration-samples is {text.lines:,}")


def _job(options: Options, copy: Checkpoint, calibration: "Sequence[TokenBatch]") -> QuantizationJob:
    from biosqueeze.backends.onnxruntime import FILES

    return QuantizationJob(
        checkpoint=copy,
        source=copy.path / FILES["fp32"],
        target=copy.path / FILES["int8"],
        batches=calibration,
        embeddings=options.embeddings,
        observer=options.observer,
    )


def _remedies(quantizer: "Quantizer") -> str:
    from biosqueeze.models.device import has_bf16

    others = ", --observer kl, other --calibration" if quantizer.NEEDS_CALIBRATION else ""
    bf16 = ", or bfloat16 without quantizing (--backend torch:bf16, or openvino:bf16)" if has_bf16() else ""
    return f"another --method{others}{bf16}"
