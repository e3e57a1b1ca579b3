"""Run biosqueeze for a benchmark: finished runs are skipped, interrupted ones continue, results are recorded."""

import json
import multiprocessing
import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from biosqueeze.cli import main


class StageRuns:
    """Runs biosqueeze in a directory with records, logs and checkpoints."""

    def __init__(self, out: Path, threads: int, inputs: Mapping[str, str]) -> None:
        """Create the directory.

        Args:
            out: the directory.
            threads: of each run.
            inputs: what all runs of the directory have in common, such as the paths of data.

        Raises:
            SystemExit: earlier runs of the directory had other inputs.
        """
        self.out, self.threads = out, threads
        for name in ("records", "logs", "checkpoints"):
            (self.out / name).mkdir(parents=True, exist_ok=True)
        os.environ |= {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
        # Every run is a process of its own, forked from one that has imported everything: that saves seconds.
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(["transformers", "biosqueeze.cli.main", "stage_runs"])
        path = self.out / "text.json"
        if not path.exists():
            path.write_text(json.dumps(inputs, indent=2) + "\n", encoding="utf-8")
        elif (earlier := json.loads(path.read_text(encoding="utf-8"))) != inputs:
            other = ", ".join(f"{name} {value}" for name, value in earlier.items() if inputs.get(name) != value)
            raise SystemExit(f"{self.out} holds runs with {other}; give the same, or another --out")

    def make(self, name: str, stage: str, *words: str) -> Path:
        """Run a stage into OUT/checkpoints/NAME, unless it is finished; resume an interrupted training."""
        target = self.out / "checkpoints" / name
        if (target / "biosqueeze.json").exists():
            return target
        partial = target.with_name(f"{target.name}.partial")
        restart = ["--resume"] if any(partial.glob("state*")) else ["--force"]
        self.biosqueeze(name, [stage, *words, "--out", str(target), *restart])
        return target

    def biosqueeze(self, log: str, words: Sequence[str]) -> dict[str, Any]:
        """Run a stage and return its JSON result; its messages go to OUT/logs.

        Raises:
            RuntimeError: it failed; with the last line of its messages.
        """
        path, result_path = self.out / "logs" / f"{log}.log", self.out / "logs" / f"{log}.json"
        command = [*words, "--json"]
        process = self._processes.Process(target=_run, args=(command, str(result_path), str(path)))
        process.start()
        process.join()
        if process.exitcode:
            raise RuntimeError(f"biosqueeze {' '.join(words)}: {_last_line(path)}")
        result: dict[str, Any] = json.loads(result_path.read_text(encoding="utf-8").splitlines()[-1])
        result_path.unlink()
        return result

    def record(self, name: str) -> dict[str, Any] | None:
        """Read the result of an earlier run."""
        path = self.out / "records" / f"{name}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the results of earlier runs."""
        for path in sorted((self.out / "records").glob("*.json")):
            yield json.loads(path.read_text(encoding="utf-8"))

    def save_record(self, name: str, result: dict[str, Any]) -> dict[str, Any]:
        """Write a result atomically."""
        path = self.out / "records" / f"{name}.json"
        partial = path.with_suffix(".part")
        partial.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        partial.replace(path)
        return result


def _run(words: Sequence[str], output: str, messages: str) -> None:
    """Run biosqueeze in this process, its standard output and error in files, and exit."""
    for path, mode, descriptor in ((output, "wb", 1), (messages, "ab", 2)):
        with Path(path).open(mode) as file:
            os.dup2(file.fileno(), descriptor)
    sys.exit(main.run(list(words)))


def metrics_of(checkpoint: Path) -> dict[str, Any]:
    """Return what the stage that wrote a checkpoint measured."""
    metrics: dict[str, Any] = json.loads((checkpoint / "biosqueeze.json").read_text(encoding="utf-8"))["metrics"]
    return metrics


def mean_and_deviation(values: Sequence[float]) -> str:
    """Format the mean over seeds, and the standard deviation where there are several."""
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{deviation}"


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").strip().splitlines()
    return lines[-1] if lines else "no message"
