"""The results of `evaluate` and `bench` that lie beside a checkpoint, and their section of the card."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from biosqueeze.card.markdown import escaped, html_block, table
from biosqueeze.card.metadata import data_shown, main_scores
from biosqueeze.errors import SqueezeError
from biosqueeze.files import read_json
from biosqueeze.progress import counted, milliseconds


def evaluation_name(backend: str) -> str:
    """Return the name of the result of `evaluate` on a backend, RUNTIME[:PRECISION]; of "*" a pattern for all."""
    return f"evaluate-{backend.replace(':', '-')}"


def read_evaluations(directory: Path) -> list[dict[str, Any]]:
    """Return the results of `evaluate`, one for each backend; damaged files are left out."""
    return [
        result
        for path in sorted((directory / "results").glob(f"{evaluation_name('*')}.json"))
        if (result := _read(path))
    ]


def results_block(directory: Path, evaluations: Sequence[Mapping[str, Any]]) -> str:
    """Return the section with the scores and the speed; without any it is empty."""
    sections = [*_scores(evaluations), *_speed(directory)]
    return html_block("results", "\n\n".join(["## Results", *sections]) if sections else "")


def _scores(evaluations: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        (result.get("task"), data_shown(result), result.get("split"), result.get("backend"), name, f"{score:.4f}")
        for result in evaluations
        for name, score in main_scores(result).items()
    ]
    return [table(("task", "data", "split", "backend", "metric", "value"), rows)] if rows else []


def _speed(directory: Path) -> list[str]:
    """Return the table of `bench`, of this checkpoint alone."""
    result = _read(directory / "results" / "bench.json") or {}
    values = result.get("rows")
    rows = [row for row in values if isinstance(row, dict)] if isinstance(values, list) else []
    shown = [
        (
            row.get("backend"),
            row.get("batch_size"),
            row.get("length"),
            _shown(row.get("p50_ms"), milliseconds),
            *(_shown(row.get(key), "{:,.1f}".format) for key in ("sequences_per_second", "megabytes")),
        )
        for row in rows
        if _is_of(row, result, directory)
    ]
    columns = ("backend", "batch", "tokens", "ms (median)", "sequences/s", "MB")
    machine = result.get("machine")
    place = machine if isinstance(machine, Mapping) else {}
    cpu, threads, device = place.get("cpu"), place.get("threads"), str(place.get("device", "cpu"))
    on_cpu = f" on {escaped(cpu)}" if cpu and isinstance(cpu, str) else ""
    with_threads = counted(threads if isinstance(threads, int) else None, "thread")
    torch_device = "" if device == "cpu" else f", PyTorch on {escaped(device)}"
    caption = f"Measured by `biosqueeze bench`{on_cpu} with {with_threads}{torch_device}."
    return [caption, table(columns, shown)] if shown else []


def _is_of(row: Mapping[str, Any], result: Mapping[str, Any], directory: Path) -> bool:
    """Return whether a row is of this checkpoint; results of earlier releases do not name the one that they lie in."""
    named = result.get("checkpoint")
    if named is not None:
        return bool(row.get("checkpoint") == named)
    return Path(str(row.get("checkpoint"))).expanduser().resolve().name == directory.resolve().name


def _shown(value: object, form: Callable[[float], str]) -> str:
    return form(value) if isinstance(value, int | float) else "-"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return read_json(path) if path.is_file() else None
    except (OSError, SqueezeError):
        return None
