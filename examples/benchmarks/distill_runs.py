"""The engines of distill_throughput.py by name, biosqueeze's own ones, and the measurements of a run."""

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import distill_reference
import distill_textbrewer
from distill_setting import LEARNING_RATE, MASK_RATE, WARM_UP, Setting, StepTimes, sentence_lengths

PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12, "RTX 4090": 165e12}
"""Dense bf16 FLOPs per second, by a part of the GPU's name."""


class Monitor(threading.Thread):
    """Samples memory and CPU time of this process every few milliseconds."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        import psutil

        self.process = psutil.Process()
        self.before = self._memory()
        self.samples: list[tuple[float, int, float]] = []

    def _memory(self) -> int:
        return int(self.process.memory_info().rss)

    def run(self) -> None:
        """Sample until the process ends."""
        while True:
            self.samples.append((time.time(), self._memory(), time.process_time()))
            time.sleep(0.005)

    def measured(self, span: tuple[float, float], device: str) -> dict[str, Any]:
        """Return the peak memory above that at the start of sampling, and the CPU seconds, within a time span.

        On CUDA it is the maximum memory ever allocated.
        """
        import torch

        inside = [sample for sample in self.samples if span[0] <= sample[0] <= span[1]]
        peak = max(memory for _, memory, _ in inside) - self.before
        return {
            "peak_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else peak,
            "cpu_seconds": inside[-1][2] - inside[0][2],
        }


def run_biosqueeze(setting: Setting, cache: Path | None = None, *, auto: bool = False) -> StepTimes:
    """Run `biosqueeze distill` in this process; times and tokens of its steps come from metrics.jsonl.

    With `auto` it chooses the precision: on a CPU with VNNI and without fast bf16, that of the teacher is int8.
    """
    from biosqueeze.stages.distill import Options, run

    with tempfile.TemporaryDirectory(dir=setting.work) as directory:
        out = Path(directory, "student")
        run(
            Options(
                checkpoint=setting.model(setting.student),
                teacher=(setting.model("teacher"),),
                corpus=(str(setting.corpus),),
                loss=(setting.losses.preset,),
                steps=WARM_UP + setting.steps,
                batch_size=setting.batch_size,
                max_length=setting.length,
                precision="auto" if auto else "bf16" if setting.precision == "bf16" else "fp32",
                lr=LEARNING_RATE,
                seed=setting.seed,
                save_every=1_000_000,
                out=str(out),
                cache_teacher=str(cache) if cache else None,
            )
        )
        return step_times(out / "metrics.jsonl")


def step_times(metrics: Path) -> StepTimes:
    """Read the times of the steps; the file was last written at the end of the last step."""
    entries = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    steps = [entry for entry in entries if "tokens" in entry]
    started = metrics.stat().st_mtime - steps[-1]["seconds"]
    times = StepTimes()
    for step in steps:
        times.step(step["tokens"], started + step["seconds"])
    return times


def run_cached(setting: Setting) -> StepTimes:
    """Run it with the teacher cache of an earlier run.

    Raises:
        SystemExit: the cache is empty.
    """
    cache = Path(setting.work, f"cache-{setting.student}")
    times = run_biosqueeze(setting, cache)
    if not any(cache.rglob("*")):
        raise SystemExit(f"the teacher cache {cache} is empty")
    return times


def flops_per_token(setting: Setting) -> float:
    """Return the FLOPs of one real token: 6 per weight of the student (forward, backward), 2 per weight of the teacher.

    They include the matrices of the layers, attention to the tokens of the same sentence (4 x width x tokens in each
    layer, three times that for the student), and the vocabulary for the masked tokens only.
    """
    lengths = sentence_lengths(setting)
    context = sum(length * length for length in lengths) / sum(lengths)
    forward = {name: _forward_flops(setting.model(name), context) for name in ("teacher", setting.student)}
    teacher = 0.0 if setting.engine == "biosqueeze-cached" else forward["teacher"]
    return 3 * forward[setting.student] + teacher


def _forward_flops(directory: str, context: float) -> float:
    config = json.loads(Path(directory, "config.json").read_text(encoding="utf-8"))
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    layer = 2 * (4 * hidden * hidden + 2 * hidden * config["intermediate_size"]) + 4 * hidden * context
    return float(layers * layer + MASK_RATE * 2 * (hidden * hidden + hidden * config["vocab_size"]))


def utilisation(setting: Setting, tokens_per_second: float) -> float | None:
    """Return the model's FLOPs over the GPU's bf16 peak; None for a GPU that is not in the table."""
    import torch

    if setting.device != "cuda":
        return None
    name = torch.cuda.get_device_name()
    peak = next((peak for part, peak in PEAK_FLOPS.items() if part in name), None)
    return flops_per_token(setting) * tokens_per_second / peak if peak else None


ENGINES: dict[str, Callable[[Setting], StepTimes]] = {
    "biosqueeze": run_biosqueeze,
    "biosqueeze-cached": run_cached,
    "biosqueeze-auto": partial(run_biosqueeze, auto=True),
    "reference": distill_reference.run,
    "reference-masked": partial(distill_reference.run, select_first=True),
    "textbrewer": distill_textbrewer.run,
    "textbrewer-autocast": partial(distill_textbrewer.run, autocast=True),
}


def measure(setting: Setting) -> dict[str, Any]:
    """Run once in this process and return the measurements."""
    import torch
    import transformers  # noqa: F401  loaded before memory is sampled

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch.set_num_threads(setting.threads)
    monitor = Monitor()
    monitor.start()
    times = ENGINES[setting.engine](setting)
    measured = times.measured() | monitor.measured(times.span, setting.device)
    return {
        **{name: value for name, value in asdict(setting).items() if name not in ("work", "reference_batch")},
        **measured,
        "bytes_per_token": measured["peak_bytes"] / measured["tokens_per_step"],
        "flops_per_token": flops_per_token(setting),
        "utilisation": utilisation(setting, measured["tokens_per_second"]),
    }
