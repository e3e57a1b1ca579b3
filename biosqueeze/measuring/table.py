"""Rows of a bench result: one for each model and shape, and the two tables that show them."""

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from biosqueeze import environment, progress
from biosqueeze.card.results import evaluation_name
from biosqueeze.checkpoint import Checkpoint, read_result, short_names
from biosqueeze.files import megabytes
from biosqueeze.measuring.session import MeasuredModel, MeasuringSettings, Shape
from biosqueeze.summaries import main_score, measured_on, score_heading, share_of


def bench_rows(models: Sequence[MeasuredModel], shapes: Sequence[Shape]) -> list[dict[str, Any]]:
    """Return one row for each shape and model; speed-up and retention are relative to the first model."""
    return [_row(model, shape, models[0]) for shape in shapes for model in models]


def _row(model: MeasuredModel, shape: Shape, baseline: MeasuredModel) -> dict[str, Any]:
    from biosqueeze.backends import files_of
    from biosqueeze.backends.deployed import deployed_megabytes, directory_megabytes

    size, length = shape
    evaluated = evaluation_of(model)
    metric, score = main_score(evaluated)
    p50 = percentile(model.milliseconds[shape], 0.5)
    return {
        "checkpoint": model.checkpoint.name,
        "backend": model.spec,
        "batch_size": size,
        "length": length,
        "p50_ms": p50,
        "p95_ms": percentile(model.milliseconds[shape], 0.95),
        "runs": len(model.milliseconds[shape]),
        "waited_share": round(model.waited_share, 4),
        "sequences_per_second": 1000 * size / p50,
        "tokens_per_second": 1000 * size * length / p50,
        "speed_up": percentile(baseline.milliseconds[shape], 0.5) / p50,
        "peak_rss_mb": model.peak_rss_mb,
        "load_seconds": model.load_seconds,
        "megabytes": megabytes(files_of(model.checkpoint, model.spec)),
        "deployed_megabytes": deployed_megabytes(model.checkpoint, model.spec),
        "directory_megabytes": directory_megabytes(model.checkpoint),
        "parameters": _parameters(model.checkpoint),
        "is_finetuned": model.checkpoint.task is not None,
        "metric": metric,
        "score": score,
        "evaluated_on": None if score is None else ", ".join(filter(None, measured_on(evaluated))),
        "retention": _retention(model, baseline),
    }


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least a `share` of the values does not exceed (nearest rank)."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _retention(model: MeasuredModel, baseline: MeasuredModel) -> float | None:
    """Return the score divided by the baseline's, if both were evaluated on the same data and that one is positive."""
    evaluated, reference = evaluation_of(model), evaluation_of(baseline)
    same_data = measured_on(evaluated) == measured_on(reference)
    (metric, score), (baseline_metric, baseline_score) = main_score(evaluated), main_score(reference)
    return share_of(score, baseline_score) if same_data and metric == baseline_metric else None


def _parameters(checkpoint: Checkpoint) -> int:
    if checkpoint.manifest:
        return checkpoint.manifest.model.parameters["total"]
    from biosqueeze.models.count import parameters_of

    return parameters_of(checkpoint)


def evaluation_of(model: MeasuredModel) -> dict[str, Any]:
    """Return the result of `evaluate` for the checkpoint on this backend; empty where there is none."""
    return read_result(model.checkpoint, evaluation_name(model.spec)) or {}


def show_rows(rows: Sequence[dict[str, Any]], settings: MeasuringSettings) -> None:
    """Print two tables: the details of each shape, and below it size, score and latency of each model side by side.

    A note says what is missing for retention.
    """
    names = short_names(row["checkpoint"] for row in rows)
    progress.table("throughput and memory", *_details(rows, names), keys=3)
    torch_device = "" if settings.device == "cpu" else f", PyTorch on {settings.device}"
    machine = f"{environment.cpu_name()}, {progress.counted(settings.threads, 'thread')}{torch_device}"
    progress.table(machine, *_summary(rows, names), keys=2)
    first = rows[0]
    scored = [row for row in rows if row["score"] is not None]
    if first["score"] is None and first["is_finetuned"] and scored:
        named = shlex.quote(first["checkpoint"])
        progress.note(f"no retention: first biosqueeze evaluate {named} --backend {first['backend']}")
    others = {names[row["checkpoint"]]: None for row in scored if row["retention"] is None}
    if first["score"] is not None and others:
        progress.note(f"no retention of {', '.join(others)}: {_reason(first['score'])}")


def _reason(baseline_score: float) -> str:
    if baseline_score > 0:
        return "evaluated on other data, or by another score, or with a negative one"
    return f"there is no share of the first checkpoint's score, {baseline_score:.4f}"


def _summary(rows: Sequence[dict[str, Any]], names: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    shapes = list(dict.fromkeys((row["batch_size"], row["length"]) for row in rows))
    scored = (row["metric"] for row in rows if row["score"] is not None)
    columns = ["checkpoint", "backend", "parameters", "MB", score_heading(scored), "retention"]
    for size, length in shapes:
        columns += [f"ms at {size}x{length}", "speed-up"]
    lines: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        facts = [
            names[row["checkpoint"]],
            row["backend"],
            f"{row['parameters'] / 1e6:.1f}M",
            f"{row['megabytes']:.1f}",
            "-" if row["score"] is None else f"{row['score']:.4f}",
            "-" if row["retention"] is None else f"{row['retention']:.1%}",
        ]
        line = lines.setdefault((row["checkpoint"], row["backend"]), facts)
        line += [progress.milliseconds(row["p50_ms"]), f"{row['speed_up']:.2f}x"]
    return columns, list(lines.values())


def _details(rows: Sequence[dict[str, Any]], names: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    columns = ["checkpoint", "backend", "shape", "p50 ms", "p95 ms", "seq/s", "tokens/s", "peak RSS MB", "load s"]
    lines = [
        [
            names[row["checkpoint"]],
            row["backend"],
            f"{row['batch_size']}x{row['length']}",
            f"{row['p50_ms']:.2f}",
            f"{row['p95_ms']:.2f}",
            f"{row['sequences_per_second']:,.0f}",
            f"{row['tokens_per_second']:,.0f}",
            f"{row['peak_rss_mb']:.0f}",
            f"{row['load_seconds']:.2f}",
        ]
        for row in rows
    ]
    return columns, lines
