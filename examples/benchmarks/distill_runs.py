"""The engines of distill_throughput.py by name, ours, and what is measured of a run."""

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
from distill_setting import LEARNING_RATE, MASK_RATE, WARM_UP, Setting, Watch, sentence_lengths

PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12, "RTX 4090": 165e12}
"""Dense bf16 products a second, by a part of the GPU's name."""


class Monitor(threading.Thread):
    """What this process holds and has computed, looked at every few milliseconds."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        import psutil

        self.process = psutil.Process()
        self.before = self._memory()
        self.seen: list[tuple[float, int, float]] = []

    def _memory(self) -> int:
        return int(self.process.memory_info().rss)

    def run(self) -> None:
        """Look until the process ends."""
        while True:
            self.seen.append((time.time(), self._memory(), time.process_time()))
            time.sleep(0.005)

    def measured(self, span: tuple[float, float], device: str) -> dict[str, Any]:
        """In that time: the most bytes, less what was there when this was made, and the seconds of CPU.

        On CUDA the bytes are the most that was ever allocated.
        """
        import torch

        inside = [seen for seen in self.seen if span[0] <= seen[0] <= span[1]]
        most = max(memory for _, memory, _ in inside) - self.before
        return {
            "peak_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else most,
            "cpu_seconds": inside[-1][2] - inside[0][2],
        }


def run_ours(setting: Setting, cache: Path | None = None) -> Watch:
    """`biosqueeze distill` as it is, without the command line; each step as metrics.jsonl has it."""
    from biosqueeze.stages.distill import Options, run

    with tempfile.TemporaryDirectory(dir=setting.work) as directory:
        out = Path(directory, "student")
        run(
            Options(
                checkpoint=setting.model(setting.student),
                teacher=(setting.model("teacher"),),
                corpus=(str(setting.corpus),),
                loss=(setting.mix.combination,),
                steps=WARM_UP + setting.steps,
                batch_size=setting.batch_size,
                max_length=setting.length,
                precision="bf16" if setting.precision == "bf16" else "fp32",
                lr=LEARNING_RATE,
                seed=setting.seed,
                save_every=1_000_000,
                out=str(out),
                **({"cache_teacher": str(cache)} if cache else {}),
            )
        )
        return _watch_of(out / "metrics.jsonl")


def _watch_of(metrics: Path) -> Watch:
    """What the engine noted of each step; the file was last written at the end of the last."""
    entries = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    steps = [entry for entry in entries if "tokens" in entry]
    started = metrics.stat().st_mtime - steps[-1]["seconds"]
    watch = Watch()
    for step in steps:
        watch.step(step["tokens"], started + step["seconds"])
    return watch


def run_cached(setting: Setting) -> Watch:
    """The same with what the teacher said in an earlier run.

    Raises:
        SystemExit: nothing was kept.
    """
    cache = Path(setting.work, f"cache-{setting.student}")
    watch = run_ours(setting, cache)
    if not any(cache.rglob("*")):
        raise SystemExit(f"the engine has kept nothing in {cache}")
    return watch


def flops_per_token(setting: Setting) -> float:
    """Products and sums that one real token needs: 6 per weight of the student (forward, backward), 2 of the teacher.

    Counted are the matrices of the layers, attention to the tokens of its own sentence (4 x width x tokens in each
    layer, three times that for the student), and the vocabulary for the masked tokens alone.
    """
    lengths = sentence_lengths(setting)
    reach = sum(length * length for length in lengths) / sum(lengths)
    forward = {who: _forward_flops(setting.model(who), reach) for who in ("teacher", setting.student)}
    taught = 0.0 if setting.engine == "biosqueeze-cached" else forward["teacher"]
    return 3 * forward[setting.student] + taught


def _forward_flops(directory: str, reach: float) -> float:
    config = json.loads(Path(directory, "config.json").read_text(encoding="utf-8"))
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    layer = 2 * (4 * hidden * hidden + 2 * hidden * config["intermediate_size"]) + 4 * hidden * reach
    return float(layers * layer + MASK_RATE * 2 * (hidden * hidden + hidden * config["vocab_size"]))


def utilisation(setting: Setting, tokens_per_second: float) -> float | None:
    """The share of the GPU's bf16 products that the model needed; None where the GPU is not in the table."""
    import torch

    if setting.device != "cuda":
        return None
    name = torch.cuda.get_device_name()
    peak = next((peak for part, peak in PEAK_FLOPS.items() if part in name), None)
    return flops_per_token(setting) * tokens_per_second / peak if peak else None


ENGINES: dict[str, Callable[[Setting], Watch]] = {
    "biosqueeze": run_ours,
    "biosqueeze-cached": run_cached,
    "reference": distill_reference.run,
    "reference-masked": partial(distill_reference.run, select_first=True),
    "textbrewer": distill_textbrewer.run,
    "textbrewer-autocast": partial(distill_textbrewer.run, autocast=True),
}


def measure(setting: Setting) -> dict[str, Any]:
    """One run in this process; what it took."""
    import torch
    import transformers  # noqa: F401  loaded before memory is looked at

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch.set_num_threads(setting.threads)
    monitor = Monitor()
    monitor.start()
    watch = ENGINES[setting.engine](setting)
    measured = watch.measured() | monitor.measured(watch.span, setting.device)
    return {
        **{name: value for name, value in asdict(setting).items() if name not in ("work", "reference_batch")},
        **measured,
        "bytes_per_token": measured["peak_bytes"] / measured["tokens_per_step"],
        "flops_per_token": flops_per_token(setting),
        "utilisation": utilisation(setting, measured["tokens_per_second"]),
    }
