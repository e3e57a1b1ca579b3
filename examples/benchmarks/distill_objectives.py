"""Compare distillation losses on two NER tasks: the tables of the results page.

    python distill_objectives.py DATA PUBMED.txt.gz --out objectives --jobs 2 --threads 1

DATA contains the directories ncbi-disease and bc5cdr-chem (train.tsv, devel.tsv, test.tsv); the text is unlabelled
sentences. The teacher is all-MiniLM-L6-v2 (6 x 384) fine-tuned on the task. The students are cut from it: 3 x 384 are
its layers 1, 3 and 5; 4 x 312 are its layers 1, 2, 4 and 5 with narrower heads and 1,200 neurons, TinyBERT's shape.
The losses compare each student layer with the teacher layer that it was cut from.

1. Every combination of losses on NCBI-disease, with one seed and the same steps, learning rate and text (a warm start
   comes in addition, and its minutes are counted). Skipped where --losses lists no more than --best.
2. The best two by dev F1, the mean of both students, with three seeds on both data sets, for longer: the shallower
   student gets more steps, because more is required of it.

Finished runs are skipped: each writes a file in OUT/records; interrupted runs continue. The tables go to standard
output and to OUT/table.md.
"""

import argparse
import json
import shutil
import statistics
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stage_runs import StageRuns, mean_and_deviation, metrics_of

BASE = "demo:minilm"
SCREENED = "ncbi-disease"
# Options that the teachers of results/distilling_tasks.md are fine-tuned with.
TEACHERS = {
    SCREENED: ("--epochs", "10", "--lr", "2e-4"),
    "bc5cdr-chem": ("--epochs", "6", "--lr", "2e-4", "--label-all-pieces"),
}
REQUIRED = {"3x384": 0.99, "4x312": 0.97}
STARTS = {
    "3x384": ("--layers", "1,3,5"),
    "4x312": ("--layers", "1,2,4,5", "--hidden", "312", "--ffn", "1200", "--importance", "magnitude"),
}
# Soft labels regularize enough, and a step is faster without dropout; one row has dropout for comparison.
NO_DROPOUT = ("--dropout", "0")
WARM = ("--warm-start", "finetune")
# Nearly all sentences are shorter; longer ones are split into windows, in evaluation into those of the teacher.
TRAINED_LENGTH = ("--max-length", "128")
SCORED_LENGTH = ("--max-length", "256")
# The soft labels alone, with each other loss that applies to a task, and the published combinations; both students
# have the teacher's 12 heads, so that attention can be compared.
COMBINATIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "hard": (("hard=1",), ()),
    "kl": (("kl=1",), ()),
    "soft": (("soft=1",), ()),
    "kl + hard": (("kl=1", "hard=1"), ()),
    "kl + cosine": (("kl=1", "cosine=1"), ()),
    "kl + mse": (("kl=1", "mse=1"), ()),
    "kl + hidden": (("kl=1", "hidden=1"), ()),
    "kl + hidden-cosine": (("kl=1", "hidden-cosine=1"), ()),
    "kl + embedding": (("kl=1", "embedding=1"), ()),
    "kl + attention": (("kl=1", "attention=1"), ()),
    "kl + attention-kl": (("kl=1", "attention-kl=1"), ()),
    "kl + minilm": (("kl=1", "minilm=1"), ()),
    "kl + minilmv2": (("kl=1", "minilmv2=1"), ()),
    "tinybert": (("tinybert=1",), ()),
    "mobilebert": (("kl=1", "hidden=1", "attention-kl=1"), ("--projection", "per-layer")),
    "kl + cosine, dropout 0.1": (("kl=1", "cosine=1"), ("--dropout", "0.1")),
    "kl + cosine, warm start": (("kl=1", "cosine=1"), WARM),
}


@dataclass(frozen=True)
class Cell:
    """The settings of one student that is distilled and evaluated."""

    data: str
    student: str
    losses: str  # a key of COMBINATIONS
    steps: int
    seed: int
    lr: float
    unlabelled: float

    @property
    def name(self) -> str:
        """The name for files."""
        losses = self.losses.replace(" + ", "+").replace(", ", "-").replace(" ", "-")
        return f"{self.data}.{self.student}.{losses}.{self.steps}.{self.lr:g}.{self.unlabelled:g}.{self.seed}"


class Workspace(StageRuns):
    """Runs biosqueeze in a directory and records the results."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        super().__init__(arguments.out, arguments.threads, {"data": str(arguments.data), "text": str(arguments.text)})

    def data(self, name: str) -> str:
        """Return the directory of a data set."""
        return str(Path(self.arguments.data, name))

    def evaluate(self, name: str, checkpoint: Path, data: str) -> dict[str, Any]:
        """Return F1 on test (in percent), the best on dev and the minutes of the training."""
        result = self.biosqueeze(
            name, ["evaluate", str(checkpoint), "--data", self.data(data), *SCORED_LENGTH, "--backend", "torch"]
        )
        training = metrics_of(checkpoint)
        minutes = (training["seconds"] + _warm_seconds(checkpoint)) / 60
        return {
            "f1": 100 * result["metrics"]["f1"],
            "dev": 100 * training["f1"],
            "minutes": minutes,
            "training": training,
        }

    def teacher(self, data: str) -> dict[str, Any]:
        """Fine-tune the teacher of a data set, and return its scores."""
        name = f"teacher.{data}"
        checkpoint = self.make(name, "finetune", BASE, "--data", self.data(data), *TEACHERS[data])
        known = self.record(name)
        return known or self.save_record(name, {**self.evaluate(name, checkpoint, data), "path": str(checkpoint)})

    def start(self, data: str, student: str) -> str:
        """Cut a student from its teacher, and return its path."""
        return str(self.make(f"start.{data}.{student}", "shrink", self.teacher(data)["path"], *STARTS[student]))

    def run(self, cell: Cell) -> dict[str, Any]:
        """Distil and evaluate one student."""
        known = self.record(cell.name)
        if known:
            return known
        losses, flags = COMBINATIONS[cell.losses]
        teacher, options = self.teacher(cell.data), self.arguments
        words = [self.start(cell.data, cell.student), "--teacher", teacher["path"], "--data", self.data(cell.data)]
        words += ["--corpus", options.text, "--unlabelled", str(cell.unlabelled), "--seed", str(cell.seed)]
        words += ["--steps", str(cell.steps), "--eval-every", str(cell.steps), "--lr", str(cell.lr)]
        words += [word for loss in losses for word in ("--loss", loss)]
        student = self.make(cell.name, "distill", *words, *NO_DROPOUT, *TRAINED_LENGTH, *flags)
        result = {**vars(cell), **self.evaluate(cell.name, student, cell.data), "teacher_f1": teacher["f1"]}
        if not options.keep:
            shutil.rmtree(student)
        return self.save_record(cell.name, result)


def _warm_seconds(checkpoint: Path) -> float:
    """Return the seconds of a warm start, from its log."""
    log = checkpoint / "warm-start.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return max((json.loads(line).get("seconds", 0.0) for line in lines), default=0.0)


def run_all(workspace: Workspace, cells: Iterable[Cell]) -> list[dict[str, Any]]:
    """Run cells in parallel; report and skip those that fail."""
    unique = list(dict.fromkeys(cells))
    for data, student in dict.fromkeys((cell.data, cell.student) for cell in unique):
        workspace.teacher(data)
        workspace.start(data, student)  # the inputs that cells share are made first

    def attempt(cell: Cell) -> dict[str, Any] | None:
        try:
            result = workspace.run(cell)
        except RuntimeError as error:
            print(f"{cell.name} failed: {error}", file=sys.stderr, flush=True)
            return None
        line = f"{cell.name}: F1 {result['f1']:.2f} on test, {result['dev']:.2f} on dev, {result['minutes']:.1f} min"
        print(line, file=sys.stderr, flush=True)
        return result

    with ThreadPoolExecutor(workspace.arguments.jobs) as pool:
        return [result for result in pool.map(attempt, unique) if result]


def best(results: Sequence[dict[str, Any]], count: int) -> list[str]:
    """Return the losses with the highest mean dev F1 of the students; without warm starts, which have more steps."""
    names = [name for name, (_, flags) in COMBINATIONS.items() if flags != WARM]
    scores = {name: [r["dev"] for r in results if r["losses"] == name] for name in names}
    most = max(map(len, scores.values()))  # losses that failed on a student are not compared
    complete = (name for name in names if len(scores[name]) == most)
    ranked = sorted(complete, key=lambda name: -statistics.mean(scores[name]))
    return ranked[:count]


def retained(result: dict[str, Any]) -> float:
    """Return the share of the teacher's F1."""
    return float(result["f1"] / result["teacher_f1"])


def screening_table(results: Sequence[dict[str, Any]]) -> str:
    """Format all losses with one seed, the best dev F1 first."""
    lines = ["| student | losses | dev F1 | test F1 | of the teacher | minutes |", "|---|---|---|---|---|---|"]
    for student in REQUIRED:
        for r in sorted((r for r in results if r["student"] == student), key=lambda r: -r["dev"]):
            numbers = f"{r['dev']:.2f} | {r['f1']:.2f} | {retained(r):.1%} | {r['minutes']:.1f}"
            lines.append(f"| {student} | {r['losses']} | {numbers} |")
    return "\n".join(lines)


def final_table(results: Sequence[dict[str, Any]]) -> str:
    """Format mean and standard deviation over the seeds."""
    lines = [
        "| data | student | steps | losses | seeds | dev F1 | test F1 | teacher "
        "| of the teacher | required | minutes |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for data, student, losses in dict.fromkeys((r["data"], r["student"], r["losses"]) for r in results):
        same = [r for r in results if (r["data"], r["student"], r["losses"]) == (data, student, losses)]
        dev, test, minutes = ([r[name] for r in same] for name in ("dev", "f1", "minutes"))
        numbers = [str(len(same)), mean_and_deviation(dev), mean_and_deviation(test), f"{same[0]['teacher_f1']:.2f}"]
        numbers += [f"{mean_and_deviation([100 * retained(r) for r in same])} %", f"{REQUIRED[student]:.0%}"]
        numbers += [f"{statistics.mean(minutes):.1f}"]
        lines.append(f"| {data} | {student} | {same[0]['steps']:,} | {losses} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="directory with ncbi-disease and bc5cdr-chem")
    parser.add_argument("text", help="unlabelled sentences: .txt, .jsonl, optionally .gz")
    parser.add_argument("--out", type=Path, default=Path("objectives"))
    parser.add_argument("--students", default=",".join(REQUIRED), help="comma-separated")
    parser.add_argument("--losses", default="", help=f"separated by ';'; default: {'; '.join(COMBINATIONS)}")
    parser.add_argument("--screen-steps", type=int, default=300, help="of each distillation of the first table")
    parser.add_argument("--screen-lr", type=float, default=4e-4)
    parser.add_argument("--screen-unlabelled", type=float, default=2.0, help="unlabelled sentences per labelled one")
    parser.add_argument("--steps", default="2400,800", help="of the second table, a number for each student")
    parser.add_argument("--lr", type=float, default=8e-4)
    parser.add_argument("--unlabelled", type=float, default=1.0, help="unlabelled sentences per labelled one")
    parser.add_argument("--best", type=int, default=2, help="how many losses go into the second table")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="parallel runs")
    parser.add_argument("--threads", type=int, default=2, help="threads of each run")
    parser.add_argument("--keep", action="store_true", help="keep the students, not only their scores")
    arguments = parser.parse_args()
    unknown = [name for name in _combinations(arguments) if name not in COMBINATIONS]
    if unknown:
        parser.error(f"--losses {unknown[0]!r} is unknown; known: {'; '.join(COMBINATIONS)}")
    arguments.students = arguments.students.split(",")
    arguments.steps = [int(steps) for steps in arguments.steps.split(",")]
    if len(arguments.steps) != len(arguments.students):
        parser.error(f"--steps needs a number for each of {', '.join(arguments.students)}")
    return arguments


def _combinations(arguments: argparse.Namespace) -> list[str]:
    return [name.strip() for name in arguments.losses.split(";")] if arguments.losses else list(COMBINATIONS)


def screen(workspace: Workspace) -> tuple[list[str], str]:
    """Return the losses of the second table, and the first table, if there was a choice."""
    arguments, names = workspace.arguments, _combinations(workspace.arguments)
    if len(names) <= arguments.best:
        return names, ""
    setting = (arguments.screen_steps, 0, arguments.screen_lr, arguments.screen_unlabelled)
    cells = (Cell(SCREENED, student, name, *setting) for student in arguments.students for name in names)
    results = run_all(workspace, cells)
    table = f"NCBI-disease, seed 0, {arguments.screen_steps:,} steps each\n\n{screening_table(results)}\n"
    print(table)
    return best(results, arguments.best), table


def compare(workspace: Workspace, names: Sequence[str]) -> str:
    """Run every seed, data set and student, and return the second table."""
    arguments = workspace.arguments
    steps = dict(zip(arguments.students, arguments.steps, strict=True))
    results = run_all(
        workspace,
        (
            Cell(data, student, name, steps[student], seed, arguments.lr, arguments.unlabelled)
            for seed in range(arguments.seeds)
            for data in TEACHERS
            for student in arguments.students
            for name in names
        ),
    )
    table = f"The best, {arguments.seeds} seeds\n\n{final_table(results)}\n"
    print(table)
    return table


def main() -> None:
    """Compare all losses on one data set, then the best on both."""
    workspace = Workspace(parse())
    chosen, first = screen(workspace)
    (workspace.out / "table.md").write_text(first, encoding="utf-8")
    second = compare(workspace, chosen)
    (workspace.out / "table.md").write_text("\n".join(filter(None, (first, second))), encoding="utf-8")


if __name__ == "__main__":
    main()
