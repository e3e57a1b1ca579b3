"""Pretraining throughput: biosqueeze's engine against plain transformers loops with the stock collator.

    python pretrain_throughput.py --text pubmed_abstracts.txt.gz --json throughput.json
    python pretrain_throughput.py --text pubmed_abstracts.txt.gz --rows bioformer-8l:rtd --steps 5
    python pretrain_throughput.py --text pubmed_abstracts.txt.gz --one reference:bert-base:rtd --work DIR

Models: bioformer-8l (8 x 512) and bert-base (12 x 768) with random weights and 28,996 cased tokens trained on the text;
for rtd, ELECTRA discriminators of these sizes and generators of a quarter of the width. Objectives: mlm+nsp with
whole-word masking, and rtd. Both engines load the same models and train on the same documents with the same precision,
threads, AdamW, learning rate, clipping at 1 and dropout; a step has the same number of real tokens on average.
biosqueeze computes a step in parts (--accumulate), whose gradients add up to those of the step; the plain loop takes it
at once. Each run has a process of its own; the engines take turns, in reverse order in every other round.

The time runs from the end of the second step to the end of the last: collation, masking and logging are included;
imports, loading, tokenization and the first two steps are not. Padding is not counted as tokens. Memory is the peak of
the process in that time above that after the imports (CUDA: the maximum allocated), per real token of a step. Where
other work runs beside it, the ratio of tokens per CPU second is steadier than that of tokens per second.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pretrain_reference
from distill_runs import Monitor, step_times
from distill_setting import LEARNING_RATE, VOCABULARY, WARM_UP, StepTimes, make_tokenizer
from distill_throughput import machine, ratios_of

from biosqueeze.pretraining.options import Objective

SHAPES: dict[str, dict[str, Any]] = {
    "bioformer-8l": {"num_hidden_layers": 8, "hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048},
    "bert-base": {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
}
OBJECTIVES: tuple[Objective, ...] = ("mlm+nsp", "rtd")
GENERATOR_SHARE = 0.25
ROWS = ",".join(f"{model}:{objective}" for model in SHAPES for objective in OBJECTIVES)
SPEED_BAR, MEMORY_BAR = 2.5, 1 / 3  # on two cores with bf16 units

Result = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """The settings of one run; all but the engine are equal in both engines."""

    engine: str
    shape: str
    objective: Objective
    work: str
    length: int
    batch_size: int
    accumulate: int
    steps: int
    precision: str
    device: str
    threads: int
    tokens_per_step: float  # of biosqueeze's run, which the plain loop's batches are matched to
    seed: int = 0

    @property
    def corpus(self) -> Path:
        """The file of documents, one sentence per line, with blank lines between them."""
        return Path(self.work, "corpus.txt")

    @property
    def model(self) -> str:
        """The directory of the model."""
        return str(Path(self.work, f"{self.shape}-{self.objective}"))

    def autocast(self) -> AbstractContextManager[Any]:
        """Return a context of bf16 autocast, if the precision is bf16."""
        import torch

        return torch.autocast(self.device, torch.bfloat16) if self.precision == "bf16" else nullcontext()


def prepare(text: str, documents: int, work: Path) -> None:
    """Write the corpus, the tokenizer and the models with random weights, unless they exist."""
    if (work / "prepared").exists():
        return
    import gzip

    work.mkdir(parents=True, exist_ok=True)
    opened = gzip.open if text.endswith(".gz") else open
    with opened(text, "rt", encoding="utf-8") as file:
        chosen = "".join(islice(file, documents * 9)).split("\n\n")[:documents]
    (work / "corpus.txt").write_text("\n\n".join(chosen) + "\n", encoding="utf-8")
    tokenizer = make_tokenizer([line for document in chosen for line in document.splitlines()])
    _write_models(tokenizer, work)
    (work / "prepared").touch()


def _write_models(tokenizer: Any, work: Path) -> None:
    from transformers import BertConfig, BertForPreTraining, ElectraConfig, ElectraForPreTraining, set_seed

    from biosqueeze.pretraining.replaced_tokens import new_generator

    set_seed(0)
    for name, shape in SHAPES.items():
        BertForPreTraining(BertConfig(vocab_size=VOCABULARY, **shape)).save_pretrained(work / f"{name}-mlm+nsp")
        config = ElectraConfig(vocab_size=VOCABULARY, embedding_size=shape["hidden_size"], **shape)
        model = ElectraForPreTraining(config)
        model.save_pretrained(work / f"{name}-rtd")
        new_generator(model, GENERATOR_SHARE, seed=1).save_pretrained(work / f"{name}-rtd-generator")
        for folder in ("mlm+nsp", "rtd", "rtd-generator"):
            tokenizer.save_pretrained(work / f"{name}-{folder}")


def run_biosqueeze(setting: Setting) -> StepTimes:
    """Run `biosqueeze pretrain` in this process; times and tokens of its steps come from metrics.jsonl."""
    from biosqueeze.stages.pretrain import Options, run

    with tempfile.TemporaryDirectory(dir=setting.work) as directory:
        out = Path(directory, "model")
        run(
            Options(
                checkpoint=setting.model,
                corpus=(str(setting.corpus),),
                objective=setting.objective,
                mask_unit="word" if setting.objective == "mlm+nsp" else "piece",
                steps=WARM_UP + setting.steps,
                batch_size=setting.batch_size // setting.accumulate,
                accumulate=setting.accumulate,
                max_length=setting.length,
                precision="bf16" if setting.precision == "bf16" else "fp32",
                lr=LEARNING_RATE,
                seed=setting.seed,
                save_every=1_000_000,
                out=str(out),
                generator=setting.model + "-generator" if setting.objective == "rtd" else None,
            )
        )
        return step_times(out / "metrics.jsonl")


ENGINES = {"biosqueeze": run_biosqueeze, "reference": pretrain_reference.run}


def measure(setting: Setting) -> Result:
    """Run once in this process and return the measurements."""
    import torch
    import transformers  # noqa: F401  loaded before memory is sampled

    torch.set_num_threads(setting.threads)
    monitor = Monitor()
    monitor.start()
    times = ENGINES[setting.engine](setting)
    measured = times.measured() | monitor.measured(times.span, setting.device)
    facts = {name: value for name, value in asdict(setting).items() if name not in ("work", "tokens_per_step")}
    return {
        **facts,
        **measured,
        "bytes_per_token": measured["peak_bytes"] / measured["tokens_per_step"],
        "tokens_per_cpu_second": measured["tokens"] / measured["cpu_seconds"],
    }


def setting_of(arguments: argparse.Namespace, row: str) -> Setting:
    """Return the setting of ENGINE:MODEL:OBJECTIVE.

    Raises:
        SystemExit: there is no such row.
    """
    engine, _, rest = row.partition(":")
    shape, _, objective = rest.partition(":")
    objectives = [known for known in OBJECTIVES if known == objective]
    if engine not in ENGINES or shape not in SHAPES or not objectives:
        raise SystemExit(f"{row!r}: give ENGINE:MODEL:OBJECTIVE of {list(ENGINES)}, {list(SHAPES)}, {OBJECTIVES}")
    names = ("length", "batch_size", "accumulate", "steps", "precision", "device", "threads", "tokens_per_step")
    values = {name: getattr(arguments, name) for name in names}
    return Setting(engine=engine, shape=shape, objective=objectives[0], work=str(arguments.work), **values)


def run_one(arguments: argparse.Namespace, row: str, tokens_per_step: float) -> Result:
    """Run once in a separate process."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(arguments.threads),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": "ignore",
        "BIOSQUEEZE_CACHE": str(arguments.work / "cache"),
        **({"CUDA_VISIBLE_DEVICES": ""} if arguments.device == "cpu" else {}),
    }
    names = (
        "text",
        "documents",
        "work",
        "length",
        "batch_size",
        "accumulate",
        "steps",
        "precision",
        "device",
        "threads",
    )
    words = [word for name in names for word in (f"--{name.replace('_', '-')}", str(getattr(arguments, name)))]
    command = [sys.executable, __file__, *words, "--tokens-per-step", str(tokens_per_step), "--one", row]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{row} failed:\n{done.stderr[-4000:]}")
    result: Result = json.loads(done.stdout.splitlines()[-1])
    _log(f"{row} {result['tokens_per_second']:,.0f} tokens/s, {result['peak_bytes'] / 2**20:,.0f} MiB")
    return result


def measured(arguments: argparse.Namespace) -> Iterator[Result]:
    """Run everything, the engines in turns, and yield the results."""
    tokens: dict[str, float] = {}
    for number in range(arguments.rounds):
        for row in arguments.rows.split(","):
            # The first run of biosqueeze tells how many tokens its steps have.
            order = list(ENGINES) if number % 2 == 0 else list(ENGINES)[::-1]
            for engine in order:
                default = float(arguments.batch_size * arguments.length)
                result = run_one(arguments, f"{engine}:{row}", tokens.get(row, default))
                if engine == "biosqueeze":
                    tokens.setdefault(row, result["tokens_per_step"])
                yield {"round": number, **result}


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def summarise(results: Sequence[Result]) -> Iterator[Result]:
    """Yield a row for each model and objective: medians, and the ratios of speed and memory within each round."""
    for shape, objective in dict.fromkeys((r["shape"], r["objective"]) for r in results):
        runs = {
            engine: {
                r["round"]: r
                for r in results
                if (r["shape"], r["objective"], r["engine"]) == (shape, objective, engine)
            }
            for engine in ENGINES
        }
        row: Result = {"model": shape, "objective": objective, "rounds": len(runs["biosqueeze"])}
        for engine, by_round in runs.items():
            for name in ("tokens_per_second", "peak_bytes", "bytes_per_token", "tokens_per_step"):
                row[f"{engine} {name}"] = statistics.median(result[name] for result in by_round.values())
        row["faster"] = ratios_of(runs["biosqueeze"], runs["reference"], "tokens_per_second")
        row["faster_per_cpu_second"] = ratios_of(runs["biosqueeze"], runs["reference"], "tokens_per_cpu_second")
        row["memory"] = statistics.median(ratios_of(runs["biosqueeze"], runs["reference"], "bytes_per_token"))
        yield row


def show(rows: Sequence[Result]) -> None:
    """Print the results as a Markdown table."""
    columns = ["model", "objective", "plain, tokens/s", "biosqueeze, tokens/s", "ratio", "ratio per CPU second"]
    columns += ["plain, KiB/token", "biosqueeze, KiB/token", "ratio"]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * 2 + "---:|" * 7)
    for row in rows:
        ratios = row["faster"]
        spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""
        cells = [f"`{row['model']}`", row["objective"]]
        cells += [f"{row[f'{engine} tokens_per_second']:,.0f}" for engine in ("reference", "biosqueeze")]
        cells += [f"{statistics.median(ratios):.2f}{spread}", f"{statistics.median(row['faster_per_cpu_second']):.2f}"]
        cells += [f"{row[f'{engine} bytes_per_token'] / 2**10:,.0f}" for engine in ("reference", "biosqueeze")]
        print("| " + " | ".join([*cells, f"{row['memory']:.2f}"]) + " |")
    for row in rows:
        faster = statistics.median(row["faster"])
        reached = faster >= SPEED_BAR and row["memory"] <= MEMORY_BAR
        verdict = "reached" if reached else "missed"
        print(f"{row['model']} {row['objective']}: {faster:.2f} x speed, {row['memory']:.2f} x memory: {verdict}")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, help="one sentence per line, blank lines between documents: .txt, .gz")
    parser.add_argument(
        "--documents", type=int, default=2_000, help="documents to train on, from the start of the text"
    )
    parser.add_argument("--rows", default=ROWS, help="comma-separated MODEL:OBJECTIVE")
    parser.add_argument("--steps", type=int, default=10, help=f"measured steps, after {WARM_UP} of warm-up")
    parser.add_argument("--length", type=int, default=128, help="tokens in a sequence")
    parser.add_argument("--batch-size", type=int, default=64, help="sequences in a step of biosqueeze")
    parser.add_argument("--accumulate", type=int, default=4, help="parts in which biosqueeze computes a step")
    parser.add_argument("--tokens-per-step", type=float, default=8192.0, help="real tokens in a step of the plain loop")
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, help="directory to keep models and text for later runs")
    parser.add_argument("--json", type=Path, help="file for all measurements")
    parser.add_argument("--one", metavar="ENGINE:MODEL:OBJECTIVE", help="run once in this process and print JSON")
    return parser.parse_args()


def main() -> None:
    """Run everything and print the table."""
    arguments = parse()
    with contextlib.ExitStack() as stack:
        if arguments.work is None:
            arguments.work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with contextlib.redirect_stdout(sys.stderr):
            prepare(arguments.text, arguments.documents, arguments.work)
        if arguments.one:
            with contextlib.redirect_stdout(sys.stderr):
                result = measure(setting_of(arguments, arguments.one))
            print(json.dumps(result))
            return
        results = list(measured(arguments))
    rows, where = list(summarise(results)), machine(arguments)
    if arguments.json:
        whole = {"machine": where, "comparison": rows, "runs": results}
        arguments.json.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    show(rows)
    print("\n" + ", ".join(f"{key} {value}" for key, value in where.items()))


if __name__ == "__main__":
    main()
