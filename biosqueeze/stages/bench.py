"""Measure checkpoints on backends: one process for each, all loaded, one running at a time, in interleaved rounds."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from biosqueeze.checkpoint import Checkpoint, open_checkpoint, write_result
from biosqueeze.environment import current_environment
from biosqueeze.errors import UsageError
from biosqueeze.measuring.session import MeasuredModel, MeasuringSettings, measure_models, warn_of_other_work
from biosqueeze.measuring.table import bench_rows, evaluation_of, show_rows
from biosqueeze.models.custom_heads.files import BESIDE_ENCODER, check_custom_head
from biosqueeze.options import (
    Argument,
    Bounds,
    OnDisk,
    Outcome,
    Plan,
    Purpose,
    StageOptions,
    Summary,
    Syntax,
    device_name,
    whole_numbers,
)
from biosqueeze.progress import counted

_NUMBERS = Syntax("N,N,...", whole_numbers, "1,8", is_list=True)

PURPOSE = Purpose.MEASURE
EXAMPLES = (
    (
        "Compare three checkpoints at two batch sizes",
        "biosqueeze bench teacher student student-int8 --batch-size 1,8 --length 128",
    ),
    (
        "Compare the runtimes of one checkpoint",
        "biosqueeze bench student --backend torch --backend onnxruntime:int8",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Options(StageOptions):
    """Measure latency, throughput, memory and size of checkpoints.

    Every pair of checkpoint and backend runs in its own process, with the same number of threads, in interleaved
    rounds. The table is written to results/bench.json of each checkpoint. Peak memory is the maximum over all shapes.
    """

    HAS_TABLE: ClassVar[bool] = True
    READS_RESULTS: ClassVar[bool] = True

    checkpoints: Annotated[
        tuple[str, ...],
        "Directories, Hub ids, or - for the path on standard input. The first is the baseline. Of a directory of "
        "shrink --family, all checkpoints are measured.",
        Argument(),
        OnDisk(may_be_name=True),
    ]
    backend: Annotated[
        tuple[str, ...],
        "Runtime and precision, repeatable. Default: of one checkpoint all that it has files for; of several the one "
        "that each was last written for.",
        Syntax("RUNTIME[:PRECISION]"),
    ] = ()
    batch_size: Annotated[str, "Sequences in a batch: one or several numbers.", _NUMBERS] = "1,8"
    length: Annotated[str, "Tokens in a sequence, without padding: one or several numbers.", _NUMBERS] = "128"
    threads: Annotated[
        int | None, "CPU threads of each process. Default: the number of physical cores.", Bounds(least=1, most=1024)
    ] = None
    device: Annotated[
        str,
        "Device of PyTorch: cpu, cuda, cuda:1, mps or auto. The other runtimes run on the CPU.",
        Syntax("DEVICE", device_name, "cuda:1"),
    ] = "cpu"
    rounds: Annotated[int, "Measurements of each pair at each shape.", Bounds(least=1)] = 5
    seconds: Annotated[float, "Seconds of one measurement; it has at least three runs.", Bounds(least=0)] = 0.5
    warmup: Annotated[int, "Runs of each shape before the first measurement.", Bounds(least=1)] = 3


def _resolve(options: Options) -> tuple[tuple[MeasuredModel, ...], MeasuringSettings]:
    """Return the models to measure and the settings.

    Raises:
        UsageError: a number is out of range, or a length exceeds a checkpoint's positions.
        SqueezeError: a checkpoint is missing, is no encoder, lacks the files of a backend, or has a damaged result.
    """
    from biosqueeze.backends import default_threads
    from biosqueeze.models.families import check_length
    from biosqueeze.models.loading.detection import config_with_family, detect_head

    sizes, lengths = whole_numbers(options.batch_size), whole_numbers(options.length)
    names = (member for name in options.checkpoints for member in _members(name))
    opened = dict[Path, Checkpoint]()
    for name in names:
        checkpoint = open_checkpoint(name, slim=True)
        opened.setdefault(checkpoint.path.resolve(), checkpoint)
    checkpoints = list(opened.values())
    if not checkpoints:
        raise UsageError("bench needs at least one checkpoint; name a directory")
    for checkpoint in checkpoints:
        check_custom_head(checkpoint, "bench", allowed=BESIDE_ENCODER)
        config = config_with_family(checkpoint)
        detect_head(checkpoint, config, names=())  # raises for a class that is no encoder
        check_length(checkpoint.name, config, max(lengths))
    alone = len(checkpoints) == 1
    models = tuple(
        MeasuredModel(checkpoint, spec)
        for checkpoint in checkpoints
        for spec in _specs(checkpoint, options.backend, alone=alone)
    )
    for model in models:
        evaluation_of(model)  # raises for a damaged result, before anything is measured
    return models, MeasuringSettings(
        device=_device(options.device, models),
        shapes=tuple((size, length) for length in lengths for size in sizes),
        threads=options.threads or default_threads(),
        rounds=options.rounds,
        seconds=options.seconds,
        warmup=options.warmup,
    )


def _members(name: str) -> tuple[str, ...]:
    """Return the checkpoints in a directory of `shrink --family`; of any other name, the name itself."""
    return Checkpoint(Path(name).expanduser(), name).members or (name,)


def _device(device: str, models: tuple[MeasuredModel, ...]) -> str:
    """Return the device that the models on torch run on.

    Raises:
        UsageError: no model runs on torch, and it is not the CPU.
        SqueezeError: PyTorch has no such device.
    """
    from biosqueeze.backends import parse_spec, use_device

    specs = [model.spec for model in models]
    of_torch = next((spec for spec in specs if parse_spec(spec)[0] == "torch"), specs[0])
    return "cpu" if device == "cpu" else use_device(of_torch, device)


def _specs(checkpoint: Checkpoint, backends: tuple[str, ...], *, alone: bool) -> tuple[str, ...]:
    """Return the backends to measure a checkpoint on; a checkpoint alone is measured on all that it has files for."""
    from biosqueeze.backends import available_specs, canonical_spec, default_spec, files_of

    default = (available_specs(checkpoint) if alone else ()) or (default_spec(checkpoint),)
    specs = tuple(dict.fromkeys(canonical_spec(spec) for spec in backends)) or default
    for spec in specs:
        files_of(checkpoint, spec)
    return specs


def plan(options: Options) -> Plan:
    """Return the models, shapes and rounds that would be measured; open the checkpoints and load no weights."""
    models, settings = _resolve(options)
    turns = settings.rounds * len(settings.shapes) * len(models)
    shapes = ", ".join(f"{size} x {length}" for size, length in settings.shapes)
    return Plan(
        out=None,
        steps=(
            *(f"measure {model.label}" for model in models),
            f"at {shapes} (batch x tokens) with {counted(settings.threads, 'thread')} each",
            f"in {counted(settings.rounds, 'round')} of {settings.seconds:g} s, or three runs, for each: at least "
            f"{turns * settings.seconds:.0f} s of measuring",
        ),
    )


def run(options: Options) -> Outcome:
    """Measure, show the tables, and write the result to results/bench.json of each checkpoint.

    Raises:
        SqueezeError: a measuring process failed; the message has the last line of its standard error.
    """
    models, settings = _resolve(options)
    measure_models(models, settings)
    warn_of_other_work(models)
    rows = bench_rows(models, settings.shapes)
    show_rows(rows, settings)
    environment = {**asdict(current_environment()), "threads": settings.threads, "device": settings.device}
    result = {"rows": rows, "machine": environment, "rounds": settings.rounds, "seconds": settings.seconds}
    checkpoints = list({model.checkpoint.path: model.checkpoint for model in models}.values())
    written = [write_result(each, "bench", {"checkpoint": each.name, **result}) for each in checkpoints]
    last = checkpoints[-1].path
    machine = f"{counted(settings.threads, 'thread')} on {settings.device}"
    reported = [str(each.path) for each in checkpoints if each.is_writable]  # any other has no results to draw
    summary = Summary(machine=machine, next_words=("report", reported[-1]) if reported else ())
    return Outcome(
        last, result, rows=tuple(rows), results=tuple(path for path in written if path is not None), summary=summary
    )
