"""Distillation throughput: biosqueeze's engine against a plain transformers loop and against TextBrewer.

    python distill_throughput.py --text PUBMED.txt.gz --json throughput.json
    python distill_throughput.py --text PUBMED.txt.gz --students tiny --engines biosqueeze,reference --steps 5
    python distill_throughput.py --text PUBMED.txt.gz --one reference:tiny --work DIR      # one run, as JSON

The teacher is BERT-base with random weights (12 x 768, 28,996 cased tokens trained on the text), the students are the
presets distil, compact and tiny; losses: DistilBERT's for distil and (through a learned projection) tiny,
CompactBioBERT's for compact. Every engine loads the same two models and trains on the same sentences, with the same
losses, precision, threads, AdamW, learning rate, clipping at 1 and dropout. A step has the same number of real tokens
on average in all engines: biosqueeze packs sentences into blocks of --length, the others get as many sentences as have
equally many tokens (or --reference-batch). Each run has a process of its own. The engines take turns, in reverse order
in every other round.

The time runs from the end of the second step to the end of the last: collation, masking and logging are included;
imports, loading, tokenization and the first two steps are not. Padding is not counted as tokens. Memory is the peak of
the process above that after the imports (CUDA: the maximum allocated), per token of a step. `biosqueeze-cached` reads
the teacher cache of an earlier run, which is not measured.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import distill_runs
import distill_setting

# Targets of a 2-core CPU with bf16 units: student, engine, compared with, least ratio of speed.
BARS = (
    ("tiny", "biosqueeze", "reference", 6.0),
    ("distil", "biosqueeze", "reference", 3.5),
    ("compact", "biosqueeze", "reference", 2.5),
    ("tiny", "biosqueeze-cached", "reference", 12.0),
    ("tiny", "biosqueeze", "textbrewer", 12.0),
    ("distil", "biosqueeze", "textbrewer", 7.0),
)
COMPARED = ("reference", "textbrewer", "biosqueeze")
BY_ITSELF = ("reference", "biosqueeze", "biosqueeze-cached", "textbrewer", "textbrewer-autocast")

Result = dict[str, Any]


def setting_of(arguments: argparse.Namespace, row: str) -> distill_setting.Setting:
    """Return the setting of a row, ENGINE:STUDENT.

    Raises:
        SystemExit: the engine or the student does not exist.
    """
    engine, _, student = row.partition(":")
    if engine not in distill_runs.ENGINES or student not in distill_setting.STUDENTS:
        known = f"engines: {', '.join(distill_runs.ENGINES)}; students: {', '.join(distill_setting.STUDENTS)}"
        raise SystemExit(f"{row!r} is not ENGINE:STUDENT; {known}")
    return distill_setting.Setting(
        engine=engine,
        student=student,
        work=str(arguments.work),
        length=arguments.length,
        batch_size=arguments.batch_size,
        reference_batch=arguments.reference_batch,
        steps=arguments.steps,
        precision=arguments.precision,
        device=arguments.device,
        threads=arguments.threads,
    )


def run_one(arguments: argparse.Namespace, row: str) -> Result:
    """Run once in a separate process."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(arguments.threads),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": "ignore",
        **({"CUDA_VISIBLE_DEVICES": ""} if arguments.device == "cpu" else {}),
    }
    words = [sys.executable, __file__, *_words(arguments), "--one", row]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{row} failed:\n{done.stderr[-4000:]}")
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def _words(arguments: argparse.Namespace) -> list[str]:
    """Return the part of the command line that one run needs."""
    names = ("text", "sentences", "field", "work", "length", "batch_size", "reference_batch", "steps")
    values = {name: getattr(arguments, name) for name in (*names, "precision", "device", "threads")}
    flags = {f"--{name.replace('_', '-')}": value for name, value in values.items() if value is not None}
    return [word for flag, value in flags.items() for word in (flag, str(value))]


def rows_of(arguments: argparse.Namespace) -> list[str]:
    """Return all rows, in the order of --students."""
    return [f"{e}:{s}" for s in arguments.students.split(",") for e in arguments.engines.split(",")]


def measured(arguments: argparse.Namespace) -> Iterator[Result]:
    """Run everything, the engines in turns, and yield the results."""
    rows = rows_of(arguments)
    for row in rows:
        setting_of(arguments, row)  # raises for a wrong name before anything runs
    for row in rows:
        if row.startswith("biosqueeze-cached:"):
            _log(f"filling the cache for {row}: {_speed(run_one(arguments, row))}")
    for number in range(arguments.rounds):
        for row in rows if number % 2 == 0 else rows[::-1]:
            result = {"round": number, **run_one(arguments, row)}
            _log(f"round {number + 1}: {row} {_speed(result)}")
            yield result


def _speed(result: Result) -> str:
    share = result["cpu_seconds"] / result["seconds"] / result["threads"]
    busy = "" if share > 0.9 or result["device"] == "cuda" else f"; its threads were {share:.0%} busy"
    return f"{result['tokens_per_second']:,.0f} tokens/s, {result['peak_bytes'] / 2**20:,.0f} MiB{busy}"


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def summarise(results: Sequence[Result]) -> list[Result]:
    """Return a row for each student and engine: medians, and the ratios of speed and memory within each round."""
    rows = []
    for student, engine in dict.fromkeys((r["student"], r["engine"]) for r in results):
        by_engine = {r["engine"]: _rounds(results, student, r["engine"]) for r in results if r["student"] == student}
        row: Result = {"student": student, "engine": engine, "rounds": len(by_engine[engine])}
        for name in ("tokens_per_second", "peak_bytes", "bytes_per_token", "tokens_per_step", "utilisation"):
            values = [r[name] for r in by_engine[engine].values() if r[name] is not None]
            row[name] = statistics.median(values) if values else None
        row["faster_than"] = {
            other: ratios_of(by_engine[engine], by_engine[other], "tokens_per_second")
            for other in COMPARED
            if other in by_engine
        }
        if "reference" in by_engine:
            row["memory_of_reference"] = statistics.median(
                ratios_of(by_engine[engine], by_engine["reference"], "bytes_per_token")
            )
        rows.append(row)
    return rows


def _rounds(results: Sequence[Result], student: str, engine: str) -> dict[int, Result]:
    return {r["round"]: r for r in results if (r["student"], r["engine"]) == (student, engine)}


def ratios_of(these: dict[int, Result], those: dict[int, Result], name: str) -> list[float]:
    """Return the ratio in every round."""
    return [these[number][name] / those[number][name] for number in these]


def show(rows: Sequence[Result], precision: str, device: str) -> None:
    """Print the results as a Markdown table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.MARKDOWN)
    on_gpu = device == "cuda"
    columns = ["student", "engine", "tokens/s", *(f"x {other}" for other in COMPARED), "peak MiB", "KiB/token"]
    for column in [*columns, "memory x reference", *(["FLOPs used"] if on_gpu else [])]:
        table.add_column(column, justify="left" if column in ("student", "engine") else "right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row), *([_share(row["utilisation"])] if on_gpu else []))
    console = Console(width=160)
    console.print(table)
    if precision == "bf16" and not on_gpu:
        for line in bars(rows):
            console.print(line)


def _cells(row: Result) -> list[str]:
    memory = row.get("memory_of_reference")
    return [
        row["student"],
        row["engine"],
        f"{row['tokens_per_second']:,.0f}",
        *(_ratio(row["faster_than"].get(other)) for other in COMPARED),
        f"{row['peak_bytes'] / 2**20:,.0f}",
        f"{row['bytes_per_token'] / 2**10:,.0f}",
        f"{memory:.2f}" if memory else "",
    ]


def _ratio(ratios: Sequence[float] | None) -> str:
    if not ratios:
        return ""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def bars(rows: Sequence[Result]) -> Iterator[str]:
    """Compare the results with BARS."""
    by_name = {(row["student"], row["engine"]): row for row in rows}
    for student, engine, against, least in BARS:
        ratios = by_name.get((student, engine), {}).get("faster_than", {}).get(against)
        if ratios:
            ratio = statistics.median(ratios)
            verdict = "reached" if ratio >= least else "missed"
            yield f"{student}: {engine} is {ratio:.2f} times as fast as {against}; at least {least:g}: {verdict}"


def machine(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return hardware and versions."""
    from importlib.metadata import PackageNotFoundError, version

    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    versions = {}
    for package in ("biosqueeze", "torch", "transformers", "accelerate", "textbrewer"):
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    where = {"cpu": name, "cpus": os.cpu_count(), "threads": arguments.threads, "device": arguments.device}
    if arguments.device == "cuda":
        import torch

        where["gpu"] = torch.cuda.get_device_name()
    return {**where, "python": platform.python_version(), **versions}


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, help="sentences, one per line: .txt, .jsonl, optionally .gz")
    parser.add_argument("--field", default="text", help="the field of a .jsonl that holds the text")
    parser.add_argument(
        "--sentences", type=int, default=20_000, help="number of sentences to train on, from the start of the text"
    )
    parser.add_argument("--students", default=",".join(distill_setting.STUDENTS), help="comma-separated")
    parser.add_argument(
        "--engines", default=",".join(BY_ITSELF), help=f"comma-separated: {', '.join(distill_runs.ENGINES)}"
    )
    parser.add_argument(
        "--steps", type=int, default=20, help=f"measured steps, after {distill_setting.WARM_UP} of warm-up"
    )
    parser.add_argument(
        "--length", type=int, default=128, help="tokens in a block; maximum length of a sentence in the other engines"
    )
    parser.add_argument("--batch-size", type=int, default=16, help="blocks in a batch")
    parser.add_argument(
        "--reference-batch", type=int, help="sentences in a batch of the other engines; default: equally many tokens"
    )
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, help="directory to keep models, text and caches for later runs")
    parser.add_argument("--json", type=Path, help="file for all measurements")
    parser.add_argument("--one", metavar="ENGINE:STUDENT", help="run once in this process and print the result as JSON")
    return parser.parse_args()


def main() -> None:
    """Run everything and print the table."""
    arguments = parse()
    with contextlib.ExitStack() as stack:
        if arguments.work is None:
            arguments.work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with contextlib.redirect_stdout(sys.stderr):
            distill_setting.prepare(arguments.text, arguments.sentences, arguments.field, arguments.work)
        if arguments.one:
            with contextlib.redirect_stdout(sys.stderr):
                result = distill_runs.measure(setting_of(arguments, arguments.one))
            print(json.dumps(result))
            return
        report(arguments, list(measured(arguments)))


def report(arguments: argparse.Namespace, results: Sequence[Result]) -> None:
    """Print the table and write --json."""
    rows, where = summarise(results), machine(arguments)
    if arguments.json:
        settings = {name: str(value) for name, value in vars(arguments).items() if name not in ("json", "one", "work")}
        whole = {"machine": where, "settings": settings, "comparison": rows, "runs": results}
        arguments.json.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    show(rows, arguments.precision, arguments.device)
    print("\n" + ", ".join(f"{key} {value}" for key, value in where.items()))


if __name__ == "__main__":
    main()
