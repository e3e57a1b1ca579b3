"""Which losses carry over how a teacher compares separately encoded texts: see results/distilling_tasks.md.

    python text_pairs.py TEACHER TEXT BIOSSES --out text-pairs

TEACHER was fine-tuned with --representation cosine. Students of its layers 1, 3 and 5 are distilled on the first lines
of TEXT, and each is compared with the teacher on pairs of neighbouring lines at its end: Pearson's correlation of their
scores, and the root of their mean squared difference. BIOSSES is a data set for the score on the test split.
"""

import argparse
import gzip
from itertools import islice
from pathlib import Path

import numpy as np
from stage_runs import StageRuns, metrics_of

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.finetuning.finetuned_checkpoint import task_of
from biosqueeze.finetuning.task_model import InferenceSettings, load_task_model
from biosqueeze.tasks.encoding.sequences import TextExample
from biosqueeze.text_table import markdown

LOSSES = {"task": ("task",), "kl, hidden": ("kl", "hidden"), "text-pairs": ("text-pairs",)}
LINES, PAIRS = 40_000, 400


def main() -> None:
    """Distil, compare, and print the table."""
    options = parse()
    lines = [line for line in options.text.read_text(encoding="utf-8").splitlines() if line.strip()]
    held_out = lines[-2 * PAIRS :]
    runs = StageRuns(options.out, options.threads, {"teacher": str(options.teacher), "text": str(options.text)})
    text = options.out / "train.txt.gz"
    with gzip.open(text, "wt", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in islice(lines, min(LINES, len(lines) - 2 * PAIRS)))
    start = runs.make("start", "shrink", str(options.teacher), "--layers", "1,3,5")
    expected, rows = scores(options.teacher, held_out), []
    for name, losses in {"before training": (), **LOSSES}.items():
        student, minutes = start, ""
        if losses:
            words = ("--teacher", str(options.teacher), "--corpus", str(text), "--steps", str(options.steps))
            sizes = ("--batch-size", "16", "--max-length", "64")
            named = [word for loss in losses for word in ("--loss", loss)]
            student = runs.make(name.replace(", ", "-"), "distill", str(start), *words, *sizes, *named)
            minutes = f"{metrics_of(student)['seconds'] / 60:.1f}"
        found = scores(student, held_out)
        result = runs.biosqueeze("evaluate", ["evaluate", str(student), "--data", str(options.data)])
        correlation, error = np.corrcoef(expected, found)[0, 1], np.sqrt(np.mean((expected - found) ** 2))
        rows.append([name, minutes, f"{correlation:.4f}", f"{error:.3f}", f"{result['metrics']['pearson']:.4f}"])
    print(markdown(["losses", "minutes", "correlation with the teacher", "difference", "BIOSSES test"], rows))


def scores(checkpoint: Path, lines: list[str]) -> np.ndarray:
    """Return the scores of pairs of neighbouring lines."""
    opened = open_checkpoint(str(checkpoint))
    inference = InferenceSettings(backend="torch", batch_size=32, max_length=None, threads=None, device="cpu")
    model = load_task_model(opened, task_of(opened, None, "to compare")[1], inference)
    pairs = zip(lines[::2], lines[1::2], strict=True)
    return np.array(model.predict([TextExample(pair, None) for pair in pairs]))


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teacher", type=Path)
    parser.add_argument("text", type=Path, help="plain text, a sentence a line")
    parser.add_argument("data", type=Path, help="pairs with a score")
    parser.add_argument("--out", type=Path, default=Path("text-pairs"))
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
