"""Fine-tuning throughput on token classification: biosqueeze's loop against the stock transformers Trainer.

    python finetune_throughput.py NCBI_DISEASE_DIR                 # or demo:ner, or any directory of column files
    python finetune_throughput.py demo:ner --examples 320 --rounds 2 --precisions fp32

Both train the same model on the same encoded windows for the same number of whole epochs, with the same batch size,
precision, threads, optimiser, learning rate, warm-up, clipping and dropout; no evaluation, no checkpoints. The Trainer
keeps its own defaults for the rest, with DataCollatorForTokenClassification, which pads each batch to its longest
sequence. Each run is a subprocess; the two engines alternate, and the first one changes from round
to round. The time is measured from the start of training to the end of the last step: collation is included; imports,
loading and encoding are not. Padding is not counted as tokens.
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
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ENGINES = ("biosqueeze", "trainer")


@dataclass(frozen=True)
class Setting:
    """One run: the engine, and everything that must be equal in both engines."""

    engine: str
    precision: str
    data: str
    model: str
    epochs: int
    batch_size: int
    max_length: int
    lr: float
    threads: int
    examples: int | None
    seed: int


@dataclass(frozen=True)
class Loaded:
    """A model with a fresh head and the encoded training windows."""

    model: Any
    tokenizer: Any
    features: list[dict[str, Any]]

    @property
    def tokens(self) -> int:
        """Return the tokens in one epoch, without padding."""
        return sum(len(feature["input_ids"]) for feature in self.features)


def load(setting: Setting) -> Loaded:
    """Load the model and encode the windows with biosqueeze, the same for both engines."""
    from biosqueeze.checkpoint import open_checkpoint
    from biosqueeze.models.loading.load import load_model, load_tokenizer
    from biosqueeze.tasks import open_task

    task = open_task("ner")
    data = task.read(setting.data, ("train",))
    source = open_checkpoint(setting.model)
    tokenizer = load_tokenizer(source)
    examples = data.splits["train"][: setting.examples]
    windows = task.encode(examples, data.labels, tokenizer, setting.max_length)
    model = load_model(source, task.HEAD, labels=data.labels, seed=setting.seed).model
    return Loaded(model, tokenizer, [dict(window.features) for window in windows])


def train_ours(setting: Setting, loaded: Loaded, directory: Path) -> tuple[float, int]:
    """Train; return seconds and tokens."""
    from biosqueeze.finetuning.learner import FineTuner
    from biosqueeze.training.job import TrainingJob
    from biosqueeze.training.loop import train
    from biosqueeze.training.options import TrainingOptions
    from biosqueeze.training.sources import Mixture

    options = TrainingOptions(
        epochs=setting.epochs,
        batch_size=setting.batch_size,
        lr=setting.lr,
        precision="bf16" if setting.precision == "bf16" else "fp32",
        max_length=setting.max_length,
        save_every=1_000_000,
        seed=setting.seed,
    )
    source = Mixture(loaded.features, None, 0.0, loaded.tokenizer.pad_token_id)
    job = TrainingJob("fine-tune", FineTuner(loaded.model), source, options, directory)
    summary = train(job)
    return summary.seconds, summary.tokens


def train_theirs(setting: Setting, loaded: Loaded, directory: Path) -> tuple[float, int]:
    """Train; return seconds and tokens."""
    from transformers import DataCollatorForTokenClassification, Trainer, TrainingArguments

    pad = DataCollatorForTokenClassification(loaded.tokenizer)
    tokens_seen = 0

    def collate(features: list[dict[str, Any]]) -> Any:
        nonlocal tokens_seen
        tokens_seen += sum(len(feature["input_ids"]) for feature in features)
        return pad(features)

    clock = _clock()
    trainer = Trainer(
        model=loaded.model,
        args=TrainingArguments(
            output_dir=str(directory),
            num_train_epochs=setting.epochs,
            per_device_train_batch_size=setting.batch_size,
            learning_rate=setting.lr,
            warmup_steps=0.1,  # below 1 it is a share
            weight_decay=0.01,
            max_grad_norm=1.0,
            bf16=setting.precision == "bf16",
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            seed=setting.seed,
        ),
        train_dataset=[_as_lists(feature) for feature in loaded.features],
        data_collator=collate,
        callbacks=[clock],
    )
    trainer.train()
    return clock.ended - clock.started, tokens_seen


def _as_lists(feature: dict[str, Any]) -> dict[str, list[int]]:
    """Return the features as lists, as a tokenizer returns them and the Trainer's examples pass them."""
    ids = feature["input_ids"].tolist()
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": feature["labels"].tolist()}


def _clock() -> Any:
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        started = ended = 0.0

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.started = time.monotonic()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.ended = time.monotonic()

    return Clock()


def work(setting: Setting) -> dict[str, Any]:
    """Run one training in this process; return time and throughput."""
    import torch

    torch.set_num_threads(setting.threads)
    loaded = load(setting)
    train = {"biosqueeze": train_ours, "trainer": train_theirs}[setting.engine]
    with tempfile.TemporaryDirectory() as directory:
        seconds, tokens = train(setting, loaded, Path(directory))
    expected = loaded.tokens * setting.epochs
    if tokens != expected:
        raise SystemExit(f"{setting.engine} trained on {tokens} tokens, {expected} were expected")
    return {
        "engine": setting.engine,
        "precision": setting.precision,
        "seconds": seconds,
        "tokens": tokens,
        "examples": len(loaded.features) * setting.epochs,
        "tokens_per_second": tokens / seconds,
        "examples_per_second": len(loaded.features) * setting.epochs / seconds,
    }


def run_in_process(setting: Setting) -> dict[str, Any]:
    """Run one training in a subprocess."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(setting.threads),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    words = [sys.executable, __file__, "--worker", json.dumps(asdict(setting))]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{setting.engine} failed:\n{done.stderr[-4000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def rounds(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Run all trainings, alternating the engines."""
    results = []
    for precision in arguments.precisions.split(","):
        for number in range(arguments.rounds):
            order = ENGINES if number % 2 == 0 else ENGINES[::-1]
            for engine in order:
                result = {"round": number, **run_in_process(_setting(arguments, engine, precision))}
                results.append(result)
                speed = f"{result['tokens_per_second']:,.0f} tokens/s in {result['seconds']:.1f} s"
                print(f"{precision} round {number + 1}: {engine} {speed}", file=sys.stderr)
    return results


def _setting(arguments: argparse.Namespace, engine: str, precision: str) -> Setting:
    return Setting(
        engine=engine,
        precision=precision,
        data=arguments.data,
        model=arguments.model,
        epochs=arguments.epochs,
        batch_size=arguments.batch_size,
        max_length=arguments.max_length,
        lr=arguments.lr,
        threads=arguments.threads,
        examples=arguments.examples,
        seed=0,
    )


def compare(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each precision: both medians, and the median over the rounds of ours / theirs."""
    rows = []
    for precision in dict.fromkeys(result["precision"] for result in results):
        of = {
            engine: [r for r in results if r["engine"] == engine and r["precision"] == precision] for engine in ENGINES
        }
        pairs = zip(of["biosqueeze"], of["trainer"], strict=True)
        ratios = [ours["tokens_per_second"] / theirs["tokens_per_second"] for ours, theirs in pairs]
        row: dict[str, Any] = {"precision": precision, "rounds": len(ratios), "ratios": ratios}
        for engine in ENGINES:
            for rate in ("tokens_per_second", "examples_per_second"):
                row[f"{engine}_{rate}"] = statistics.median(result[rate] for result in of[engine])
        rows.append(row | {"ratio": statistics.median(ratios)})
    return rows


def machine(threads: int) -> dict[str, Any]:
    """Return the CPU and the versions of the packages."""
    from importlib.metadata import version

    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    versions = {package: version(package) for package in ("biosqueeze", "torch", "transformers", "accelerate", "numpy")}
    return {"cpu": name, "cpus": os.cpu_count(), "threads": threads, "python": platform.python_version(), **versions}


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| precision | biosqueeze tokens/s (examples/s) | Trainer tokens/s (examples/s) | ratio, median (range) |",
        "|---|---|---|---|",
    ]
    for row in rows:
        cells = [
            f"{row[f'{engine}_tokens_per_second']:,.0f} ({row[f'{engine}_examples_per_second']:.1f})"
            for engine in ENGINES
        ]
        low, high = min(row["ratios"]), max(row["ratios"])
        lines.append(f"| {row['precision']} | {' | '.join(cells)} | {row['ratio']:.2f} ({low:.2f} to {high:.2f}) |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default="demo:ner", help="directory with train.tsv, or demo:ner")
    parser.add_argument("--model", default="demo:minilm")
    parser.add_argument("--precisions", default="fp32,bf16", help="separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=1, help="whole passes over the data in each run")
    parser.add_argument("--examples", type=int, help="number of sentences to train on, for a quick run")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--max-length", type=int, default=256)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file for all measurements")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        with contextlib.redirect_stdout(sys.stderr):
            result = work(Setting(**json.loads(arguments.worker)))
        print(json.dumps(result))
        return
    results = rounds(arguments)
    rows, where = compare(results), machine(arguments.threads)
    if arguments.json:
        settings = {name: value for name, value in vars(arguments).items() if name not in ("json", "worker")}
        report = {"machine": where, "settings": settings, "comparison": rows, "runs": results}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    each = f"{results[0]['examples']:,} examples, {results[0]['tokens']:,} real tokens in each run"
    print(f"{arguments.model}, batch size {arguments.batch_size}: {each}\n")
    print(table(rows))
    print("\n" + ", ".join(f"{key} {value}" for key, value in where.items()))


if __name__ == "__main__":
    main()
