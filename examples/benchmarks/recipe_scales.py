"""What the papers' recipes take at their laptop scale: the table of the results page.

    python recipe_scales.py articles.txt.gz /data/benchmarks --out scales --jobs 2

TEXT holds documents with blank lines between them; DATA has a folder ncbi-disease. Each recipe runs as it is shipped,
but for the text (README of the recipes, "Data"), with one thread. Two things that laptops cannot fetch are made: the
miniatures of bioformer_study get random weights, and the questions of squad_to_bioasq ask for the word after another
word of the text.

A recipe whose record exists is skipped. The table goes to standard output and to OUT/table.md.
"""

import argparse
import concurrent.futures
import gzip
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from biosqueeze.cli.recipe_file import read_recipe
from biosqueeze.cli.shipped_recipes import shipped_recipes

OWN = ("quickstart", "relation_encodings", "tagging_schemes")  # no paper's model
MINIATURES = {"google/bert_uncased_L-8_H-128_A-2": (8, 128, 2), "google/bert_uncased_L-2_H-256_A-4": (2, 256, 4)}
DOCUMENTS = 3000
QUESTIONS = {"train": 1600, "dev": 200, "test": 200}


def main() -> None:
    """Run the recipes that have no record yet, and print the table."""
    arguments = _parser().parse_args()
    names = arguments.recipes or [name for name in shipped_recipes() if name not in OWN]
    work = arguments.out / "work"
    if not work.exists():
        _prepare(work, arguments.text.resolve(), arguments.data.resolve())
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(lambda name: _measure(name, arguments.out, arguments.text.resolve()), names))
    table = "\n".join(_table(arguments.out, names)) + "\n"
    (arguments.out / "table.md").write_text(table, encoding="utf-8")
    sys.stdout.write(table)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, metavar="TEXT", help="documents with blank lines between them, may be .gz")
    parser.add_argument("data", type=Path, metavar="DATA", help="folder with the folder ncbi-disease")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1, help="recipes side by side, one thread each")
    parser.add_argument("--recipes", nargs="+", choices=tuple(shipped_recipes()), help="default: all of papers")
    return parser


def _prepare(work: Path, text: Path, data: Path) -> None:
    """Make the directory that recipes run in: the data where they expect it, and models for the Hub's."""
    partial = work.with_name("work.partial")
    for folder in ("squad2", "bioasq-7b"):
        _write_questions(partial / "benchmarks" / folder, text)
    (partial / "benchmarks" / "ncbi-disease").symlink_to(data / "ncbi-disease")
    for name, shape in MINIATURES.items():
        _save_miniature(partial / name, *shape)
    partial.rename(work)


def _write_questions(folder: Path, text: Path) -> None:
    """Write questions in SQuAD's format."""
    folder.mkdir(parents=True)
    rng = random.Random(0)
    documents = _documents(text)
    for split, count in QUESTIONS.items():
        asked = [_question(next(documents), rng, f"{split}-{number}") for number in range(count)]
        content = {"version": "1.1", "data": [{"title": split, "paragraphs": asked}]}
        (folder / f"{split}.json").write_text(json.dumps(content), encoding="utf-8")


def _documents(text: Path) -> Iterator[str]:
    """Yield the documents of at least 20 words, in one line each."""
    opened = gzip.open if text.suffix == ".gz" else open
    with opened(text, "rt", encoding="utf-8") as lines:
        document: list[str] = []
        for line in lines:
            if line.strip():
                document.append(line.strip())
                continue
            if len(joined := " ".join(document).split()) >= 20:
                yield " ".join(joined[:100])
            document = []


def _question(context: str, rng: random.Random, key: str) -> dict[str, Any]:
    words = context.split()
    place = rng.randrange(1, len(words))
    start = len(" ".join(words[:place])) + 1
    answer = {"text": words[place], "answer_start": start}
    asked = {"id": key, "question": f"Which word follows {words[place - 1]}?", "answers": [answer]}
    return {"context": context, "qas": [asked]}


def _save_miniature(target: Path, layers: int, hidden: int, heads: int) -> None:
    """Write a BERT with random weights and the demo's tokenizer."""
    from transformers import AutoTokenizer, BertConfig, BertModel

    from biosqueeze.checkpoint import open_checkpoint

    tokenizer = AutoTokenizer.from_pretrained(open_checkpoint("demo:minilm").path)
    config = BertConfig(
        vocab_size=len(tokenizer),
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
    )
    BertModel(config).save_pretrained(target)
    tokenizer.save_pretrained(target)


def _measure(name: str, out: Path, text: Path) -> None:
    """Run a recipe, unless it has a record, and write its times."""
    record = out / "records" / f"{name}.json"
    if record.exists():
        return
    for directory in (record.parent, out / "logs"):
        directory.mkdir(exist_ok=True)
    target = out.resolve() / "runs" / name
    shutil.rmtree(target, ignore_errors=True)  # of an interrupted measurement
    steps = read_recipe(shipped_recipes()[name], (), "laptop")
    words = ["run", name, "--scale", "laptop", "--out", str(target), "--json"]
    if any(step.name == "corpus" for step in steps):
        words += ["--set", f"corpus.inputs={text}", "--set", f"corpus.sample=text={DOCUMENTS}"]
    seconds, processor, peak = _timed(words, out / "work", out / "logs" / f"{name}.log")
    stages = [step.stage for step in steps]
    result = {"stages": stages, "seconds": seconds, "processor_seconds": processor, "peak_gib": peak}
    record.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def _timed(words: Sequence[str], directory: Path, log: Path) -> tuple[float, float, float]:
    """Return seconds, processor seconds of all its processes, and peak memory of the largest in GiB.

    Raises:
        SystemExit: the recipe failed.
    """
    threads = {"OMP_NUM_THREADS": "1", "BIOSQUEEZE_BENCH_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment = {**os.environ, **threads}
    environment["BIOSQUEEZE_CACHE"] = str((log.parent / "cache" / log.stem).resolve())  # nothing is there already
    begin = time.monotonic()
    with log.open("w", encoding="utf-8") as messages:
        process = subprocess.Popen(
            [sys.executable, "-m", "biosqueeze", *words],
            cwd=directory,
            env=environment,
            stdout=messages,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"biosqueeze {' '.join(words)} failed: see {log}")
    return time.monotonic() - begin, usage.ru_utime + usage.ru_stime, _gib(usage)


def _gib(usage: resource.struct_rusage) -> float:
    return usage.ru_maxrss / 2**20


def _table(out: Path, names: Sequence[str]) -> Iterator[str]:
    yield "| recipe | steps | minutes | processor minutes | peak GiB |"
    yield "|---|---|---|---|---|"
    for name in names:
        record: Mapping[str, Any] = json.loads((out / "records" / f"{name}.json").read_text(encoding="utf-8"))
        minutes, processor = record["seconds"] / 60, record["processor_seconds"] / 60
        steps = ", ".join(record["stages"])
        yield f"| {name} | {steps} | {minutes:.1f} | {processor:.1f} | {record['peak_gib']:.1f} |"


if __name__ == "__main__":
    main()
