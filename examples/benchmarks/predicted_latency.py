"""Predicted latency of budgeted cuts beside what `biosqueeze bench` measures: the table of the results page.

    python predicted_latency.py --out predicted --threads 2    # on a quiet machine

Cuts MiniLM by `shrink --family` for each backend, which measures the times of small models, writes the graphs that the
backend loads, and measures them beside the original. The table goes to standard output; the exit code is 1 if a
prediction is off by more than 20%. Finished steps are skipped: give another --out to measure again.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from stage_runs import StageRuns

MODEL = "demo:minilm"
ALLOWED = 0.2
GRAPHS = {"onnxruntime": ("export", "--tolerance", "0.01"), "onnxruntime:int8": ("quantize", "--tolerance", "0")}


class Comparison(StageRuns):
    """Cuts of one backend, and their measured times."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        inputs = {"speedups": arguments.speedups, "run": f"{arguments.batch}x{arguments.length}"}
        super().__init__(arguments.out, arguments.threads, {**inputs, "threads": str(arguments.threads)})
        os.environ["BIOSQUEEZE_CACHE"] = str(self.out.resolve() / "cache")  # times are measured anew

    def rows(self, backend: str) -> list[dict[str, Any]]:
        """Return a row for every cut: what was predicted, and what was measured."""
        options, name = self.arguments, backend.replace(":", "-")
        timed = ("--backend", backend, "--batch", str(options.batch), "--length", str(options.length))
        threads = ("--threads", str(self.threads))
        family = self.make(f"family-{name}", "shrink", MODEL, "--family", options.speedups, *timed, *threads)
        members = [family / f"{float(speedup):g}x" for speedup in options.speedups.split(",")]
        runnable = [self.runnable(backend, f"{name}-original", MODEL)]
        runnable += [self.runnable(backend, f"{name}-{path.name}", str(path)) for path in members]
        record = self.record(f"bench-{name}")
        if record is None:
            shape = ("--batch-size", str(options.batch), "--length", str(options.length))
            words = ["bench", *runnable, "--backend", backend, *shape, *threads]
            record = self.save_record(f"bench-{name}", self.biosqueeze(f"bench-{name}", words))
        measured = record["rows"][1:]
        return [
            {"backend": backend, "budget": path.name, **_budget(path), **row}
            for path, row in zip(members, measured, strict=True)
        ]

    def runnable(self, backend: str, name: str, source: str) -> str:
        """Return a checkpoint with the files of the backend."""
        if backend not in GRAPHS:
            return source
        stage, *words = GRAPHS[backend]
        return str(self.make(name, stage, source, *words))


def _budget(path: Path) -> dict[str, Any]:
    notes = json.loads((path / "biosqueeze.json").read_text(encoding="utf-8"))["notes"]["budget"]
    return {"shape": f"{notes['layers']} x {notes['heads']} x {notes['ffn']}", "predicted": notes}


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    columns = ("backend", "target", "layers x heads x neurons", "ms predicted", "ms measured", "off by", "x predicted")
    lines = [_line(*columns, "x measured"), _line(*("---" for _ in range(len(columns) + 1)))]
    for row in rows:
        predicted = row["predicted"]
        times = (f"{predicted['milliseconds']:.2f}", f"{row['p50_ms']:.2f}", f"{_error(row):+.1%}")
        speed = (f"{predicted['speed_up']:.2f}", f"{row['speed_up']:.2f}")
        lines.append(_line(row["backend"], row["budget"], row["shape"], *times, *speed))
    return "\n".join(lines)


def _error(row: dict[str, Any]) -> float:
    return float(row["predicted"]["milliseconds"] / row["p50_ms"] - 1)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("predicted"))
    parser.add_argument("--backends", default="onnxruntime:int8,onnxruntime,torch")
    parser.add_argument("--speedups", default="1.5,2,4,8")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main() -> int:
    """Cut, measure and compare."""
    arguments = parse()
    comparison = Comparison(arguments)
    rows = [row for backend in arguments.backends.split(",") for row in comparison.rows(backend)]
    print(table(rows))
    return int(any(abs(_error(row)) > ALLOWED for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
