"""Memory of a distillation on plain text, per token of a batch, by the size of the vocabulary.

    python distill_memory.py --out memory

Teachers have random weights, two layers x 128, and the vocabulary of BioBERT or of XLM-RoBERTa; the student has one of
the layers. Each run is a process of its own; the peak of a batch of 32 x 128 tokens less that of a batch of 8 x 128,
divided by the difference in tokens, is the memory per token. The rows with a cache read the teacher's outputs, which a
first run stored, from the disk.
"""

import argparse
import random
import shutil
import sys
from pathlib import Path

from full_size import CONFIGS, build, measure

TEACHERS = ("bert-shallow", "xlm-roberta-shallow")
BATCHES = (8, 32)
LENGTH = 128


def main() -> None:
    """Print a row for each teacher, with and without a cache."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    text = arguments.out / "text.txt"
    words = random.Random(0)
    lines = (" ".join("".join(words.choices("abcdefgh", k=3)) for _ in range(2 * LENGTH)) for _ in range(64))
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name in TEACHERS:
        teacher = arguments.out / name
        if not teacher.is_dir():
            build(*CONFIGS[name], teacher)
        for cache in (False, True):
            costs = []
            for batch in BATCHES:
                out, stored = arguments.out / "student", arguments.out / f"cache-{name}-{batch}"
                shutil.rmtree(out, ignore_errors=True)
                options = ["--student", "distil", "--teacher", str(teacher), "--corpus", str(text)]
                options += ["--steps", str(arguments.steps), "--batch-size", str(batch), "--max-length", str(LENGTH)]
                options += ["--cache-teacher", str(stored)] if cache else []
                command = [sys.executable, "-m", "biosqueeze", "distill", *options, "--out", str(out), "--force"]
                if cache and not stored.is_dir():
                    measure(command)  # fills the cache
                costs.append(measure(command))
            small, large = costs
            tokens = (BATCHES[1] - BATCHES[0]) * LENGTH
            per_token = (large.gib - small.gib) * 2**30 / 1e6 / tokens
            seconds = (large.cpu - small.cpu) / (tokens * arguments.steps) * 1e3
            row = (name, "cache" if cache else "live", f"{small.gib:.2f}", f"{large.gib:.2f}")
            print("| " + " | ".join((*row, f"{per_token:.3f}", f"{seconds:.2f}")) + " |", flush=True)


if __name__ == "__main__":
    main()
