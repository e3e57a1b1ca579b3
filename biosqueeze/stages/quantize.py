"""Write a checkpoint's int8 graph beside its weights, once it is shown to give nearly the same answers."""

import itertools
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Literal

from biosqueeze import manifest, registry
from biosqueeze.checkpoint import Checkpoint, Record, derive_out, drafting, open_checkpoint
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.models.custom_head_files import refuse_own_head
from biosqueeze.options import Argument, Choices, Outcome, Plan, WritingOptions
from biosqueeze.progress import note, warn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from biosqueeze.backends.parity import Parity

    Batches = Sequence[Mapping[str, NDArray[np.int64]]]

EXAMPLE = "biosqueeze quantize ner-tiny --method inc-static --calibration abstracts.txt"
SAMPLE = "demo:text"
# Sentences of the check, not seen by calibration, and sequences in a batch of either.
_CHECKED, _BATCH = 64, 8
# A corpus is sampled from its first lines, so many times more than are needed.
_LOOK_AHEAD = 20


@dataclass(frozen=True, kw_only=True)
class Options(WritingOptions):
    """Quantize a checkpoint to int8 (onnx/model_quantized.onnx).

    A checkpoint without onnx/model.onnx is exported first. The int8 graph is compared with PyTorch on padded batches
    of text; it is written only if they agree.
    """

    checkpoint: Annotated[str, "Directory, Hub id, or - for the path on standard input.", Argument()]
    method: Annotated[str, "How; only static methods need calibration text.", Choices("quantizers")] = "onnx-dynamic"
    calibration: Annotated[
        str | None, "Text to calibrate and to check with (.txt, .jsonl, a directory); a generated sample if left out."
    ] = None
    calibration_field: Annotated[str, "Field of a .jsonl record that holds the text."] = "text"
    calibration_samples: Annotated[int, "Lines to calibrate with."] = 256
    observer: Annotated[
        Literal["minmax", "kl"], "How inc-static finds activation ranges; kl cuts outliers off, and takes longer."
    ] = "minmax"
    max_length: Annotated[int, "Tokens in a sequence of the calibration and of the check."] = 128
    embeddings: Annotated[bool, "Store the embedding tables as int8 too, one scale per row."] = True
    reduce_range: Annotated[
        Literal["auto", "yes", "no"],
        "Weights of 7 bits, for x86 processors without VNNI; auto looks at this one, but the one that will run counts.",
    ] = "auto"
    tolerance: Annotated[
        float,
        "Least agreement with PyTorch: share of equal answers (a correlation of scores, a cosine without a head).",
    ] = 0.8


def _out(options: Options, source: Checkpoint) -> Path:
    return Path(options.out) if options.out else derive_out(source, "int8")


def _check(options: Options) -> None:
    if not 0 <= options.tolerance <= 1:
        raise UsageError(f"--tolerance is a share between 0 and 1, not {options.tolerance:g}")
    for name, value, least in (
        ("calibration-samples", options.calibration_samples, 1),
        ("max-length", options.max_length, 3),
    ):
        if value < least:
            raise UsageError(f"--{name} must be at least {least}, not {value}")
    if options.calibration_field != Options.calibration_field and options.calibration is None:
        raise UsageError("--calibration-field is a field of --calibration's records; give that too, or leave it out")


def _quantizer(options: Options) -> Any:
    """The method's file.

    Raises:
        UsageError: an option is given that it has no use for.
    """
    from biosqueeze.quantizers import OF_SOME

    quantizer: Any = registry.load("quantizers", options.method)
    for name in OF_SOME:
        if name not in quantizer.USES and getattr(options, name) != getattr(Options, name):
            raise UsageError(f"--{name.replace('_', '-')} is not for --method {options.method}; leave it out")
    return quantizer


def plan(options: Options) -> Plan:
    """What would be quantized; reads the config."""
    from biosqueeze.models.count import parameters_of

    _check(options)
    source = open_checkpoint(options.checkpoint, weights=False)
    refuse_own_head(source, "quantize", allowed=("crf",))
    first = () if _graph_of(source).is_file() else ("export it to onnx/model.onnx",)
    text = options.calibration or SAMPLE
    needed = _quantizer(options).NEEDS_CALIBRATION
    calibrate = (f"calibrate on {options.calibration_samples} lines of {text}",) if needed else ()
    parameters = parameters_of(source)
    return Plan(
        out=_out(options, source),
        steps=(
            f"copy {source.name}",
            *first,
            *calibrate,
            f"quantize with {options.method} to onnx/model_quantized.onnx",
            f"compare it with PyTorch on {_CHECKED} lines of {text}; fail under an agreement of {options.tolerance:g}",
        ),
        parameters_before=parameters,
        parameters_after=parameters,
    )


def _graph_of(checkpoint: Checkpoint) -> Path:
    return checkpoint.path / "onnx" / "model.onnx"


def run(options: Options) -> Outcome:
    """Quantize, compare, and write the checkpoint.

    Raises:
        SqueezeError: the int8 graph agrees with PyTorch on too few answers.
    """
    from biosqueeze.backends.onnx_export import copy_stock, export_checked

    _check(options)
    source = open_checkpoint(options.checkpoint)
    refuse_own_head(source, "quantize", allowed=("crf",))
    quantizer = _quantizer(options)
    with drafting(_out(options, source), (source,), force=options.force) as draft:
        calibration, check = _texts(options, source, quantizer)
        copy = copy_stock(source, draft.path)
        if not _graph_of(copy).is_file():
            export_checked(copy, 1e-3, f"quantize what `biosqueeze export {source.name} --tolerance ...` writes")
        notes = _quantize(options, copy, quantizer, calibration)
        parity = _compare(options, copy, quantizer, check)
        metrics = {"quantize": {**parity.as_dict(), **_sizes(copy)}}
        record = Record(stage="quantize", parent=source, options=options, metrics=metrics, notes={"quantize": notes})
        made = draft.finish(record)
    _say(source, metrics["quantize"])
    return Outcome(made.path, {"metrics": metrics})


def _texts(options: Options, source: Checkpoint, quantizer: Any) -> tuple["Batches", "Batches"]:
    """Batches of text: to calibrate with, and to check with."""
    from biosqueeze.data.corpus import read_lines
    from biosqueeze.models.load import load_tokenizer

    wanted = options.calibration_samples if quantizer.NEEDS_CALIBRATION else 0
    if wanted and options.calibration is None:
        warn(f"calibrating on {SAMPLE}, which is only a sample; give --calibration with text like that to be read")
    lines = read_lines(options.calibration or SAMPLE, options.calibration_field)
    ahead = list(itertools.islice(lines, _LOOK_AHEAD * (wanted + _CHECKED)))
    chosen = Random(options.seed).sample(ahead, min(len(ahead), wanted + _CHECKED))
    tokenizer = load_tokenizer(source)
    length = min(options.max_length, tokenizer.model_max_length)
    # A corpus too small for both serves both.
    check = chosen[wanted:] if len(chosen) >= wanted + _CHECKED else chosen
    return _batches(chosen[:wanted], tokenizer, length, options.seed), _batches(check, tokenizer, length, options.seed)


def _batches(lines: Sequence[str], tokenizer: Any, length: int, seed: int) -> "Batches":
    """Lines of like length together, so that there is little padding to calibrate on; the batches in random order."""
    import numpy as np

    from biosqueeze.data.collate import pad

    if not lines:
        return []
    ids = sorted(tokenizer(list(lines), truncation=True, max_length=length)["input_ids"], key=len)
    features = [{"input_ids": np.array(row, dtype=np.int64)} for row in ids]
    batches = [pad(features[i : i + _BATCH], tokenizer.pad_token_id) for i in range(0, len(features), _BATCH)]
    Random(seed).shuffle(batches)
    return batches


def _quantize(options: Options, copy: Checkpoint, quantizer: Any, calibration: "Batches") -> dict[str, Any]:
    """Write the int8 graph; what the quantizer has to say about it."""
    from biosqueeze.backends.onnxruntime import FILES
    from biosqueeze.quantizers import Job

    job = Job(
        checkpoint=copy,
        source=copy.path / FILES["fp32"],
        target=copy.path / FILES["int8"],
        batches=calibration,
        embeddings=options.embeddings,
        reduce_range="reduce_range" in quantizer.USES and _reduce_range(options.reduce_range),
        observer=options.observer,
    )
    notes: dict[str, Any] = {"method": options.method, **quantizer.quantize(job)}
    return notes


def _reduce_range(asked: str) -> bool:
    """Whether weights get 7 bits: without VNNI, two products of 8 bits can overflow their 16-bit sum."""
    if asked != "auto":
        return asked == "yes"
    flags = set(manifest.environment()["cpu_flags"])
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    needed = is_x86 and not flags & {"avx512_vnni", "avx_vnni", "amx_int8"}
    if needed:
        note("this processor has no VNNI: weights get 7 bits (--reduce-range no if it will run where there is VNNI)")
    return needed


def _compare(options: Options, copy: Checkpoint, quantizer: Any, check: "Batches") -> "Parity":
    """The int8 graph against PyTorch.

    Raises:
        SqueezeError: they agree on too little, or one answers something that is no number.
    """
    from math import isfinite

    from biosqueeze.backends import open_predictor
    from biosqueeze.backends.parity import compare

    problem = manifest.problem_in(copy.config)
    parity = compare(open_predictor(copy, "torch"), open_predictor(copy, "onnxruntime:int8"), check, problem)
    headless = manifest.head_of(copy.config) == "base"
    agreement = parity.cosine if headless else parity.agreement
    ways = "another --method" + (", --observer kl, or other --calibration" if quantizer.NEEDS_CALIBRATION else "")
    if not isfinite(parity.max_difference):
        raise SqueezeError(
            f"the int8 graph of {copy.name} is broken: outputs are infinite or not a number; nothing was written; "
            f"try {ways}"
        )
    if not agreement >= options.tolerance:
        share = "scores with a correlation of" if problem == "score" else "the same answer for a share of"
        what = "a cosine of" if headless else share
        raise SqueezeError(
            f"the int8 graph of {copy.name} is broken: {what} {agreement:.3f} with PyTorch's, under the tolerance of "
            f"{options.tolerance:g}; nothing was written; try {ways}"
        )
    return parity


def _sizes(copy: Checkpoint) -> dict[str, float]:
    """Size of the int8 graph, in MB and as share of the float32 one."""
    from biosqueeze.backends.onnxruntime import files

    before, after = (sum(p.stat().st_size for p in files(copy, precision)) for precision in ("fp32", "int8"))
    return {"megabytes": round(after / 1e6, 3), "size_ratio": round(after / before, 4)}


def _say(source: Checkpoint, found: Mapping[str, float]) -> None:
    note(
        f"int8 graph of {source.name}: {found['megabytes']:.1f} MB, {found['size_ratio']:.0%} of float32; against "
        f"PyTorch on {found['tokens']} tokens: largest difference {found['max_difference']:.3g}, mean "
        f"{found['mean_difference']:.2g}, cosine {found['cosine']:.4f}, agreement {found['agreement']:.2%}"
    )
