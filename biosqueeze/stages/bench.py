"""Measure checkpoints on backends: a process for each, all loaded, taking turns in rounds, with the same threads."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from biosqueeze import manifest, progress
from biosqueeze.checkpoint import Checkpoint, open_checkpoint, read_result, write_result
from biosqueeze.errors import UsageError
from biosqueeze.models.custom_head_files import refuse_own_head
from biosqueeze.options import Argument, Outcome, Plan, StageOptions

if TYPE_CHECKING:
    from biosqueeze.backends.worker_pool import Worker

EXAMPLE = "biosqueeze bench teacher student student-int8 --batch-size 1,8 --length 128"

Shape = tuple[int, int]


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


@dataclass
class Row:
    """A checkpoint on a backend, and what was measured of it."""

    checkpoint: Checkpoint
    spec: str
    milliseconds: dict[Shape, list[float]] = field(default_factory=dict)
    load_seconds: float = 0.0
    peak_rss_mb: float = 0.0

    @property
    def label(self) -> str:
        """For messages: "student on onnxruntime:int8"."""
        return f"{self.checkpoint.short_name} on {self.spec}"


@dataclass(frozen=True)
class Setting:
    """What is decided before anything is started."""

    rows: tuple[Row, ...]
    shapes: tuple[Shape, ...]
    threads: int


def settle(options: Options) -> Setting:
    """Which rows, shapes and threads.

    Raises:
        UsageError: a number is out of range, or longer than a checkpoint's positions.
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
    rows = tuple(Row(checkpoint, spec) for checkpoint in checkpoints for spec in _specs(options, checkpoint, alone))
    shapes = tuple((size, length) for length in lengths for size in sizes)
    return Setting(rows, shapes, options.threads or default_threads())


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


def _specs(options: Options, checkpoint: Checkpoint, alone: bool) -> tuple[str, ...]:
    from biosqueeze.backends import available_specs, default_spec, files_of, normal_spec

    usual = available_specs(checkpoint) if alone else (default_spec(checkpoint),)
    specs = tuple(dict.fromkeys(normal_spec(spec) for spec in options.backend)) or usual
    for spec in specs:
        files_of(checkpoint, spec)
    return specs


def plan(options: Options) -> Plan:
    """What would be measured for how long."""
    setting = settle(options)
    turns = options.rounds * len(setting.shapes) * len(setting.rows)
    shapes = ", ".join(f"{size} x {length}" for size, length in setting.shapes)
    return Plan(
        out=None,
        steps=(
            *(f"measure {row.label}" for row in setting.rows),
            f"at {shapes} (batch x tokens) with {setting.threads} threads each",
            f"in {options.rounds} rounds of {options.seconds:g} s for each: {turns * options.seconds:.0f} s in all",
        ),
    )


def schedule(rounds: int, shapes: Sequence[Shape], rows: int) -> Iterator[tuple[Shape, int]]:
    """Whose turn it is at which shape. In each round everyone has one at every shape, and another one is first."""
    for start in range(rounds):
        for shape in shapes:
            for turn in range(rows):
                yield shape, (start + turn) % rows


def run(options: Options) -> Outcome:
    """Measure, show the table, and note it beside each checkpoint.

    Raises:
        SqueezeError: a measuring process failed; its last words are in the message.
    """
    from biosqueeze.backends.worker_pool import workers

    setting = settle(options)
    with workers([row.label for row in setting.rows], setting.threads) as pool:
        _load(options, setting, pool)
        _measure(options, setting, pool)
    table = [_line(row, shape, setting.rows[0]) for shape in setting.shapes for row in setting.rows]
    _show(table, setting.threads)
    result = {"rows": table, "machine": _machine(setting.threads), "rounds": options.rounds, "seconds": options.seconds}
    checkpoints = list({row.checkpoint.path: row.checkpoint for row in setting.rows}.values())
    for checkpoint in checkpoints:
        write_result(checkpoint, "bench", result)
    return Outcome(checkpoints[-1].path, result)


def _load(options: Options, setting: Setting, pool: Sequence["Worker"]) -> None:
    """Let each load and warm up, one after the other, so that load times are not each other's."""
    with progress.track("load", len(pool)) as bar:
        for row, worker in zip(setting.rows, pool, strict=True):
            order = {
                "path": str(row.checkpoint.path.resolve()),
                "name": row.checkpoint.name,
                "spec": row.spec,
                "threads": setting.threads,
                "vocabulary": row.checkpoint.config["vocab_size"],
                "shapes": setting.shapes,
                "warmup": options.warmup,
            }
            row.load_seconds = worker.ask(order)["load_seconds"]
            bar.advance()


def _measure(options: Options, setting: Setting, pool: Sequence["Worker"]) -> None:
    turns = list(schedule(options.rounds, setting.shapes, len(pool)))
    with progress.track("measure", len(turns)) as bar:
        for shape, index in turns:
            answer = pool[index].ask({"shape": shape, "seconds": options.seconds})
            setting.rows[index].milliseconds.setdefault(shape, []).extend(answer["milliseconds"])
            bar.advance()
    for row, worker in zip(setting.rows, pool, strict=True):
        row.peak_rss_mb = worker.ask({"done": True})["peak_rss_mb"]


def _line(row: Row, shape: Shape, first: Row) -> dict[str, Any]:
    """The numbers of one row at one shape."""
    from biosqueeze.backends import files_of

    size, length = shape
    p50 = percentile(row.milliseconds[shape], 0.5)
    return {
        "checkpoint": row.checkpoint.name,
        "backend": row.spec,
        "batch_size": size,
        "length": length,
        "p50_ms": p50,
        "p95_ms": percentile(row.milliseconds[shape], 0.95),
        "runs": len(row.milliseconds[shape]),
        "sequences_per_second": 1000 * size / p50,
        "tokens_per_second": 1000 * size * length / p50,
        "speed_up": percentile(first.milliseconds[shape], 0.5) / p50,
        "peak_rss_mb": row.peak_rss_mb,
        "load_seconds": row.load_seconds,
        "megabytes": sum(path.stat().st_size for path in files_of(row.checkpoint, row.spec)) / 1e6,
        "parameters": _parameters(row.checkpoint),
        "f1": f1_of(row.checkpoint, row.spec),
        "retention": _retention(row, first),
    }


def _retention(row: Row, first: Row) -> float | None:
    """The share of the first row's F1 that this one keeps, where both were evaluated on the same data."""
    own, reference = (_evaluation(r.checkpoint, r.spec) for r in (row, first))
    same = all(own.get(key) == reference.get(key) for key in ("task", "data", "split"))
    before, after = f1_of(first.checkpoint, first.spec), f1_of(row.checkpoint, row.spec)
    return after / before if same and before and after is not None else None


def percentile(values: Sequence[float], share: float) -> float:
    """The value that a share of the values does not exceed (nearest rank)."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _parameters(checkpoint: Checkpoint) -> int:
    facts = ((checkpoint.manifest or {}).get("model") or {}).get("parameters") or {}
    if "total" in facts:
        return int(facts["total"])
    from biosqueeze.models.count import parameters_of

    return parameters_of(checkpoint)


def f1_of(checkpoint: Checkpoint, spec: str) -> float | None:
    """The F1 that `evaluate` noted for this backend, if it did."""
    score = (_evaluation(checkpoint, spec).get("metrics") or {}).get("f1")
    return None if score is None else float(score)


def _evaluation(checkpoint: Checkpoint, spec: str) -> dict[str, Any]:
    return read_result(checkpoint, f"evaluate-{spec.replace(':', '-')}") or {}


def _machine(threads: int) -> dict[str, Any]:
    return {**manifest.environment(), "threads": threads}


def _show(table: Sequence[dict[str, Any]], threads: int) -> None:
    """Two tables: each row's size, score and latency side by side, and the details of each shape below."""
    names = _names(table)
    progress.table("throughput and memory", *_details(table, names))
    progress.table(f"{manifest.cpu_name()}, {threads} threads", *_summary(table, names))


def _names(table: Sequence[dict[str, Any]]) -> dict[str, str]:
    """What to call each checkpoint: its short name, or all of it where two would be called alike."""
    names = {line["checkpoint"]: Checkpoint(Path(line["checkpoint"]), line["checkpoint"]).short_name for line in table}
    return names if len(set(names.values())) == len(names) else {name: name for name in names}


def _summary(table: Sequence[dict[str, Any]], names: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    shapes = list(dict.fromkeys((line["batch_size"], line["length"]) for line in table))
    columns = ["checkpoint", "backend", "parameters", "MB", "F1", "retention"]
    for size, length in shapes:
        columns += [f"ms at {size}x{length}", "speed-up"]
    rows: dict[tuple[str, str], list[str]] = {}
    for line in table:
        facts = [
            names[line["checkpoint"]],
            line["backend"],
            f"{line['parameters'] / 1e6:.1f}M",
            f"{line['megabytes']:.1f}",
            "-" if line["f1"] is None else f"{line['f1']:.4f}",
            "-" if line["retention"] is None else f"{line['retention']:.1%}",
        ]
        row = rows.setdefault((line["checkpoint"], line["backend"]), facts)
        row += [f"{line['p50_ms']:.1f}", f"{line['speed_up']:.2f}x"]
    return columns, list(rows.values())


def _details(table: Sequence[dict[str, Any]], names: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    columns = ["checkpoint", "backend", "shape", "p50 ms", "p95 ms", "seq/s", "tokens/s", "peak RSS MB", "load s"]
    rows = [
        [
            names[line["checkpoint"]],
            line["backend"],
            f"{line['batch_size']}x{line['length']}",
            f"{line['p50_ms']:.2f}",
            f"{line['p95_ms']:.2f}",
            f"{line['sequences_per_second']:,.0f}",
            f"{line['tokens_per_second']:,.0f}",
            f"{line['peak_rss_mb']:.0f}",
            f"{line['load_seconds']:.2f}",
        ]
        for line in table
    ]
    return columns, rows
