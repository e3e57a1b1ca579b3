"""Measure checkpoints on backends: one process for each, all loaded, one running at a time, in interleaved rounds."""

import math
from dataclasses import asdict, dataclass
from typing import Annotated

from biosqueeze.checkpoint import Checkpoint, open_checkpoint, write_result
from biosqueeze.environment import current_environment
from biosqueeze.errors import UsageError
from biosqueeze.measuring.session import MeasuredModel, MeasuringSettings, measure_models
from biosqueeze.measuring.table import bench_rows, show_rows
from biosqueeze.models.custom_head_files import refuse_own_head
from biosqueeze.options import Argument, Outcome, Plan, StageOptions

EXAMPLE = "biosqueeze bench teacher student student-int8 --batch-size 1,8 --length 128"


@dataclass(frozen=True, kw_only=True)
class Options(StageOptions):
    """Measure latency, throughput, memory and size of checkpoints on backends.

    Every pair of checkpoint and backend runs in a process of its own, with the same threads, in interleaved rounds.
    The table is noted in results/bench.json of each checkpoint; peak memory is that of all shapes together.
    """

    checkpoints: Annotated[
        tuple[str, ...],
        "Directories, Hub ids, or - for the path on standard input; the first is the baseline.",
        Argument(),
    ]
    backend: Annotated[
        tuple[str, ...],
        "RUNTIME[:PRECISION], repeatable; if left out, what each checkpoint was last made for, and of a single "
        "checkpoint all that it holds files for.",
    ] = ()
    batch_size: Annotated[str, "Sequences in a batch: a number, or several with commas."] = "1,8"
    length: Annotated[str, "Tokens in a sequence, all of them real: a number, or several with commas."] = "128"
    threads: Annotated[int | None, "Threads of each process; the physical cores if left out."] = None
    rounds: Annotated[int, "How often each process has its turn at each shape."] = 5
    seconds: Annotated[float, "Seconds of a turn; at least three runs are made."] = 0.5
    warmup: Annotated[int, "Runs of each shape before the first round."] = 3


def _resolve(options: Options) -> tuple[tuple[MeasuredModel, ...], MeasuringSettings]:
    """Return the models to measure and the settings.

    Raises:
        UsageError: a number is out of range, or a length exceeds a checkpoint's positions.
        SqueezeError: a checkpoint is missing, or lacks the files of a backend.
    """
    from biosqueeze.backends import default_threads

    for name in ("rounds", "warmup", "threads"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name} must be at least 1, not {value}")
    if not (math.isfinite(options.seconds) and options.seconds >= 0):
        raise UsageError(f"--seconds must not be negative, and was {options.seconds:g}")
    sizes, lengths = _numbers("batch-size", options.batch_size), _numbers("length", options.length)
    checkpoints = [open_checkpoint(name) for name in dict.fromkeys(options.checkpoints)]
    if not checkpoints:
        raise UsageError("bench needs at least one checkpoint; name a directory")
    for checkpoint in checkpoints:
        refuse_own_head(checkpoint, "bench", allowed=("crf",))
        _check_length(checkpoint, max(lengths))
    alone = len(checkpoints) == 1
    models = tuple(
        MeasuredModel(checkpoint, spec)
        for checkpoint in checkpoints
        for spec in _specs(checkpoint, options.backend, alone=alone)
    )
    return models, MeasuringSettings(
        shapes=tuple((size, length) for length in lengths for size in sizes),
        threads=options.threads or default_threads(),
        rounds=options.rounds,
        seconds=options.seconds,
        warmup=options.warmup,
    )


def _numbers(name: str, text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",") if part.strip().isdigit()]
    if len(numbers) != len(text.split(",")) or min(numbers) < 1:
        raise UsageError(f"--{name} {text!r} does not read as whole numbers with commas, like 1,8")
    return list(dict.fromkeys(numbers))


def _check_length(checkpoint: Checkpoint, length: int) -> None:
    from biosqueeze.models.families import FAMILIES

    family = FAMILIES.get(checkpoint.config.get("model_type", ""))
    longest = checkpoint.config.get("max_position_embeddings", length) - (family.first_position if family else 0)
    if length > longest:
        raise UsageError(f"--length {length} is more than the {longest} positions of {checkpoint.name}")


def _specs(checkpoint: Checkpoint, backends: tuple[str, ...], *, alone: bool) -> tuple[str, ...]:
    """Return the backends to measure a checkpoint on; a checkpoint alone is measured on all that it has files for."""
    from biosqueeze.backends import available_specs, default_spec, files_of, normal_spec

    default = available_specs(checkpoint) if alone else (default_spec(checkpoint),)
    specs = tuple(dict.fromkeys(normal_spec(spec) for spec in backends)) or default
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
            f"at {shapes} (batch x tokens) with {settings.threads} threads each",
            f"in {settings.rounds} rounds of {settings.seconds:g} s for each: {turns * settings.seconds:.0f} s in all",
        ),
    )


def run(options: Options) -> Outcome:
    """Measure, show the tables, and write the result to results/bench.json of each checkpoint.

    Raises:
        SqueezeError: a measuring process failed; the message has the last line of its standard error.
    """
    models, settings = _resolve(options)
    measure_models(models, settings)
    rows = bench_rows(models, settings.shapes)
    show_rows(rows, settings.threads)
    machine = {**asdict(current_environment()), "threads": settings.threads}
    result = {"rows": rows, "machine": machine, "rounds": settings.rounds, "seconds": settings.seconds}
    checkpoints = list({model.checkpoint.path: model.checkpoint for model in models}.values())
    for checkpoint in checkpoints:
        write_result(checkpoint, "bench", result)
    return Outcome(checkpoints[-1].path, result)
