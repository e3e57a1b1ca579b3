"""Teachers of other families for a BERT student: the table of the results page.

    python cross_family.py TEXT NCBI_DISEASE --out cross --jobs 2 --threads 1

Each teacher is fine-tuned on NCBI-disease: all-MiniLM-L6-v2, and encoders of other families that begin with its layers
and have a tokenizer of their own (`family_starts.py`; TEXT is gzipped text for the tokenizers). The student is MiniLM's
layers 1, 3 and 5. It learns from each teacher by `biosqueeze distill START --teacher T --data D`, and from the labels
alone by `biosqueeze finetune`, with the same batches, steps and learning rate, and several seeds. Finished runs are
skipped, interrupted ones continue. The table goes to standard output and to OUT/table.md.
"""

import argparse
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import family_starts
from stage_runs import StageRuns, mean_and_deviation, metrics_of

MINILM, LABELS = "MiniLM (BERT)", "labels alone"
TEACHERS = (MINILM, *family_starts.FAMILIES)
KEPT_LAYERS = "1,3,5"


class Workspace(StageRuns):
    """The teachers and students of one comparison."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        trainings = ("teacher_epochs", "teacher_lr", "steps", "eval_every", "lr", "vocabulary")
        inputs = {name: str(getattr(arguments, name)) for name in ("text", "data", *trainings)}
        super().__init__(arguments.out, arguments.threads, inputs)

    def start(self, teacher: str) -> str:
        """Return a teacher's encoder before fine-tuning, built where it is missing."""
        if teacher == MINILM:
            return "demo:minilm"
        path: Path = self.out / "starts" / teacher
        if not (path / "tokenizer.json").exists():
            family_starts.build(teacher, self.arguments.text, self.arguments.vocabulary, path)
        return str(path)

    def teacher(self, name: str) -> Path:
        """Return a fine-tuned teacher."""
        options = self.arguments
        length = ("--epochs", str(options.teacher_epochs), "--lr", str(options.teacher_lr))
        return self.make(_file_name(name), "finetune", self.start(name), *self.common(), *length)

    def student(self, teacher: str, seed: int) -> Path:
        """Return a student that learnt from a teacher, or from the labels alone."""
        options, name = self.arguments, f"{_file_name(teacher)}.student.{seed}"
        start = str(self.make("start", "shrink", "demo:minilm", "--layers", KEPT_LAYERS))
        length = ("--steps", str(options.steps), "--eval-every", str(options.eval_every), "--lr", str(options.lr))
        words = (start, *self.common(), *length, "--batch-size", "16", "--seed", str(seed))
        if teacher == LABELS:
            return self.make(name, "finetune", *words)
        return self.make(name, "distill", *words, "--teacher", str(self.teacher(teacher)))

    def common(self) -> tuple[str, ...]:
        """Return the options of all trainings."""
        return ("--data", str(self.arguments.data), "--task", "ner", "--max-length", "128")

    def scores(self, checkpoint: Path) -> dict[str, Any]:
        """Return F1 of entities on dev and test in percent, and the minutes of the training."""
        known = self.record(checkpoint.name)
        if known:
            return known
        words = ["evaluate", str(checkpoint), "--data", str(self.arguments.data), "--task", "ner", "--backend", "torch"]
        test = self.biosqueeze(checkpoint.name, words)["metrics"]["f1"]
        trained = metrics_of(checkpoint)
        result = {"test": 100 * test, "dev": 100 * trained["f1"], "minutes": trained["seconds"] / 60}
        return self.save_record(checkpoint.name, result)


def table(workspace: Workspace) -> str:
    """Train what is missing and return the table."""
    seeds = range(workspace.arguments.seeds)
    with ThreadPoolExecutor(workspace.arguments.jobs) as pool:
        labels = [pool.submit(workspace.student, LABELS, seed) for seed in seeds]
        list(pool.map(workspace.teacher, TEACHERS))
        others = [pool.submit(workspace.student, teacher, seed) for seed in seeds for teacher in TEACHERS]
        for future in (*labels, *others):
            future.result()
    alone = [workspace.scores(workspace.student(LABELS, seed)) for seed in seeds]
    lines = [
        "| teacher | dev F1 | test F1 | minutes | student: dev F1 | test F1 | over labels alone | minutes |",
        "|---|---|---|---|---|---|---|---|",
        f"| none: {LABELS} | - | - | - | {_row(alone, alone)} |",
    ]
    for name in TEACHERS:
        own = workspace.scores(workspace.teacher(name))
        students = [workspace.scores(workspace.student(name, seed)) for seed in seeds]
        cells = f"{name} | {own['dev']:.2f} | {own['test']:.2f} | {own['minutes']:.1f}"
        lines.append(f"| {cells} | {_row(students, alone)} |")
    return "\n".join(lines) + "\n"


def _row(students: Sequence[dict[str, Any]], alone: Sequence[dict[str, Any]]) -> str:
    gains = [ours["test"] - theirs["test"] for ours, theirs in zip(students, alone, strict=True)]
    gain = "-" if students is alone else f"{statistics.mean(gains):+.2f}"
    minutes = statistics.mean(student["minutes"] for student in students)
    dev, test = (mean_and_deviation([student[split] for student in students]) for split in ("dev", "test"))
    return f"{dev} | {test} | {gain} | {minutes:.1f}"


def _file_name(name: str) -> str:
    return name.split(" (")[0].replace(" ", "-")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="gzipped text for the tokenizers")
    parser.add_argument("data", type=Path, help="directory of NCBI-disease")
    parser.add_argument("--out", type=Path, default=Path("cross-family"))
    parser.add_argument("--vocabulary", type=int, default=8192, help="pieces of each family's tokenizer")
    parser.add_argument("--teacher-epochs", type=int, default=6)
    parser.add_argument("--teacher-lr", type=float, default=2e-4)
    parser.add_argument("--steps", type=int, default=1356, help="of a student; of 16 sentences")
    parser.add_argument("--eval-every", type=int, default=339, help="steps between evaluations on dev")
    parser.add_argument("--lr", type=float, default=4e-4, help="of a student")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="parallel runs")
    parser.add_argument("--threads", type=int, default=2, help="threads of each run")
    return parser.parse_args()


def main() -> None:
    """Run the comparison."""
    workspace = Workspace(parse())
    text = table(workspace)
    (workspace.out / "table.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
