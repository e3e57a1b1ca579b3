"""Which losses keep most of a task teacher? The table of the README, run by run.

    python distill_objectives.py DATA PUBMED.txt.gz --out objectives --jobs 2 --threads 1

DATA holds the directories ncbi-disease and bc5cdr-chem (train.tsv, devel.tsv, test.tsv), the text is unlabelled
sentences. The teacher is all-MiniLM-L6-v2 (6 x 384) fine-tuned on the task. Its students are cut from it: 3 x 384 are
its layers 1, 3 and 5; 4 x 312 are its layers 1, 2, 4 and 5 with narrower heads and 1,200 neurons, TinyBERT's shape.
They are the layers that the losses compare theirs with.

1. Every mix of losses on NCBI-disease, one seed, the same steps, rate and text (a warm start is on top, its minutes
   are counted). Where --mixes names no more than go on, there is nothing to choose and this is left out.
2. The best two by F1 on dev, the mean of both students, three seeds, on both data sets, for longer: the shallower
   student is given more steps, its bar is higher.

What is done is not done again: each run leaves a file in OUT/records, and one that was interrupted goes on where it
was. The tables go to standard output and to OUT/table.md.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BASE = "demo:minilm"
SCREENED = "ncbi-disease"
# How the teachers of README.md are fine-tuned.
TEACHERS = {
    SCREENED: ("--epochs", "10", "--lr", "2e-4"),
    "bc5cdr-chem": ("--epochs", "6", "--lr", "2e-4", "--label-all-pieces"),
}
BARS = {"3x384": 0.99, "4x312": 0.97}
STARTS = {
    "3x384": ("--layers", "1,3,5"),
    "4x312": ("--layers", "1,2,4,5", "--hidden", "312", "--ffn", "1200"),
}
# A teacher's soft labels regularise enough, and a step is faster without; one row shows the other.
NO_DROPOUT = ("--dropout", "0")
WARM = ("--warm-start", "finetune")
# Nearly all sentences are shorter; the rest is trained on in windows, and scored in those of the teacher.
TRAINED_LENGTH = ("--max-length", "128")
SCORED_LENGTH = ("--max-length", "256")
# The soft labels alone, with each other loss that applies to a task, and the published combinations; both students
# have the teacher's 12 heads, so that attention can be compared.
MIXES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
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
    """One student, distilled and scored."""

    data: str
    student: str
    mix: str
    steps: int
    seed: int
    lr: float
    unlabelled: float

    @property
    def name(self) -> str:
        """For files."""
        mix = self.mix.replace(" + ", "+").replace(", ", "-").replace(" ", "-")
        return f"{self.data}.{self.student}.{mix}.{self.steps}.{self.lr:g}.{self.unlabelled:g}.{self.seed}"


class Lab:
    """Where everything is made: runs biosqueeze and remembers what came out."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.out: Path = arguments.out
        for name in ("records", "logs", "made"):
            (self.out / name).mkdir(parents=True, exist_ok=True)
        self._same_text()

    def _same_text(self) -> None:
        """Runs on other text are not to be put into one table.

        Raises:
            SystemExit: the directory has some.
        """
        asked = {name: str(getattr(self.arguments, name)) for name in ("data", "text")}
        path = self.out / "text.json"
        if not path.exists():
            path.write_text(json.dumps(asked, indent=2) + "\n", encoding="utf-8")
        elif (earlier := json.loads(path.read_text(encoding="utf-8"))) != asked:
            other = ", ".join(f"{name} {value}" for name, value in earlier.items() if asked.get(name) != value)
            raise SystemExit(f"{self.out} holds runs with {other}; ask for the same, or give another --out")

    def data(self, name: str) -> str:
        """The directory of a data set."""
        return str(Path(self.arguments.data, name))

    def make(self, name: str, stage: str, *words: str) -> Path:
        """Run a stage into OUT/made/NAME, unless it is there; go on with what was interrupted."""
        target = self.out / "made" / name
        if (target / "biosqueeze.json").exists():
            return target
        partial = target.with_name(f"{target.name}.partial")
        again = ["--resume"] if any(partial.glob("state*")) else ["--force"]
        self.biosqueeze(name, [stage, *words, "--out", str(target), *again])
        return target

    def biosqueeze(self, log: str, words: Sequence[str]) -> dict[str, Any]:
        """What a stage says of itself; its messages go to OUT/logs.

        Raises:
            RuntimeError: it failed; the last lines say why.
        """
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.arguments.threads), "TOKENIZERS_PARALLELISM": "false"}
        command = [sys.executable, "-m", "biosqueeze", *words, "--json"]
        path = self.out / "logs" / f"{log}.log"
        with path.open("a", encoding="utf-8") as messages:
            done = subprocess.run(
                command, env=environment, stdout=subprocess.PIPE, stderr=messages, text=True, check=False
            )
        if done.returncode:
            raise RuntimeError(f"biosqueeze {' '.join(words)}: {_last_line(path)}")
        said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return said

    def record(self, name: str) -> dict[str, Any] | None:
        """What an earlier run came to."""
        path = self.out / "records" / f"{name}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def note(self, name: str, result: dict[str, Any]) -> dict[str, Any]:
        """Keep it for the next time, whole or not at all."""
        path = self.out / "records" / f"{name}.json"
        draft = path.with_suffix(".part")
        draft.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        draft.replace(path)
        return result

    def score(self, name: str, checkpoint: Path, data: str) -> dict[str, Any]:
        """F1 on test (in percent), the best on dev and the minutes of the training."""
        said = self.biosqueeze(
            name, ["evaluate", str(checkpoint), "--data", self.data(data), *SCORED_LENGTH, "--backend", "torch"]
        )
        noted = json.loads((checkpoint / "biosqueeze.json").read_text(encoding="utf-8"))["metrics"]
        minutes = (noted["seconds"] + _warm_seconds(checkpoint)) / 60
        return {"f1": 100 * said["metrics"]["f1"], "dev": 100 * noted["f1"], "minutes": minutes, "training": noted}

    def teacher(self, data: str) -> dict[str, Any]:
        """The fine-tuned teacher of a data set and its scores."""
        name = f"teacher.{data}"
        checkpoint = self.make(name, "finetune", BASE, "--data", self.data(data), *TEACHERS[data])
        known = self.record(name)
        return known or self.note(name, {**self.score(name, checkpoint, data), "path": str(checkpoint)})

    def start(self, data: str, student: str) -> str:
        """What the distillation of a student starts from."""
        return str(self.make(f"start.{data}.{student}", "shrink", self.teacher(data)["path"], *STARTS[student]))

    def run(self, cell: Cell) -> dict[str, Any]:
        """Distil and score one student."""
        known = self.record(cell.name)
        if known:
            return known
        losses, more = MIXES[cell.mix]
        teacher, options = self.teacher(cell.data), self.arguments
        words = [self.start(cell.data, cell.student), "--teacher", teacher["path"], "--data", self.data(cell.data)]
        words += ["--corpus", options.text, "--unlabelled", str(cell.unlabelled), "--seed", str(cell.seed)]
        words += ["--steps", str(cell.steps), "--eval-every", str(cell.steps), "--lr", str(cell.lr)]
        words += [word for loss in losses for word in ("--loss", loss)]
        made = self.make(cell.name, "distill", *words, *NO_DROPOUT, *TRAINED_LENGTH, *more)
        result = {**vars(cell), **self.score(cell.name, made, cell.data), "teacher_f1": teacher["f1"]}
        if not options.keep:
            shutil.rmtree(made)
        return self.note(cell.name, result)


def _warm_seconds(checkpoint: Path) -> float:
    """How long a warm start took, from the log that it leaves."""
    log = checkpoint / "warm-start.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return max((json.loads(line).get("seconds", 0.0) for line in lines), default=0.0)


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def run_all(lab: Lab, cells: Iterable[Cell]) -> list[dict[str, Any]]:
    """Several side by side; what fails is told and left out."""
    wanted = list(dict.fromkeys(cells))
    for data, student in dict.fromkeys((cell.data, cell.student) for cell in wanted):
        lab.teacher(data)
        lab.start(data, student)  # what cells share is made before they run side by side

    def attempt(cell: Cell) -> dict[str, Any] | None:
        try:
            result = lab.run(cell)
        except RuntimeError as error:
            print(f"{cell.name} failed: {error}", file=sys.stderr, flush=True)
            return None
        said = f"{cell.name}: F1 {result['f1']:.2f} on test, {result['dev']:.2f} on dev, {result['minutes']:.1f} min"
        print(said, file=sys.stderr, flush=True)
        return result

    with ThreadPoolExecutor(lab.arguments.jobs) as pool:
        return [result for result in pool.map(attempt, wanted) if result]


def best(results: Sequence[dict[str, Any]], count: int) -> list[str]:
    """The mixes with the highest F1 on dev, the mean over the students; a warm start, which has more steps, is none."""
    scores = {mix: [r["dev"] for r in results if r["mix"] == mix] for mix in MIXES if MIXES[mix][1] != WARM}
    most = max(map(len, scores.values()))  # what failed on a student is not compared
    ranked = sorted((mix for mix in scores if len(scores[mix]) == most), key=lambda mix: -statistics.mean(scores[mix]))
    return ranked[:count]


def kept(result: dict[str, Any]) -> float:
    """The share of the teacher's F1."""
    return float(result["f1"] / result["teacher_f1"])


def screening_table(results: Sequence[dict[str, Any]]) -> str:
    """Every mix, one seed; the best on dev first."""
    lines = ["| student | losses | dev F1 | test F1 | of the teacher | minutes |", "|---|---|---|---|---|---|"]
    for student in BARS:
        for r in sorted((r for r in results if r["student"] == student), key=lambda r: -r["dev"]):
            numbers = f"{r['dev']:.2f} | {r['f1']:.2f} | {kept(r):.1%} | {r['minutes']:.1f}"
            lines.append(f"| {student} | {r['mix']} | {numbers} |")
    return "\n".join(lines)


def final_table(results: Sequence[dict[str, Any]]) -> str:
    """Mean and deviation over the seeds."""
    lines = [
        "| data | student | steps | losses | seeds | dev F1 | test F1 | teacher | of the teacher | bar | minutes |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for data, student, mix in dict.fromkeys((r["data"], r["student"], r["mix"]) for r in results):
        same = [r for r in results if (r["data"], r["student"], r["mix"]) == (data, student, mix)]
        dev, test, minutes = ([r[name] for r in same] for name in ("dev", "f1", "minutes"))
        numbers = [str(len(same)), _spread(dev), _spread(test), f"{same[0]['teacher_f1']:.2f}"]
        numbers += [f"{_spread([100 * kept(r) for r in same])} %", f"{BARS[student]:.0%}"]
        numbers += [f"{statistics.mean(minutes):.1f}"]
        lines.append(f"| {data} | {student} | {same[0]['steps']:,} | {mix} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def _spread(values: Sequence[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{deviation}"


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="directory that holds ncbi-disease and bc5cdr-chem")
    parser.add_argument("text", help="unlabelled sentences: .txt, .jsonl, either with .gz")
    parser.add_argument("--out", type=Path, default=Path("objectives"))
    parser.add_argument("--students", default=",".join(BARS), help="parted by commas")
    parser.add_argument("--mixes", default="", help=f"parted by ';', all if left out: {'; '.join(MIXES)}")
    parser.add_argument("--screen-steps", type=int, default=300, help="of each distillation that is compared first")
    parser.add_argument("--screen-lr", type=float, default=4e-4)
    parser.add_argument("--screen-unlabelled", type=float, default=2.0, help="sentences of the text per labelled one")
    parser.add_argument("--steps", default="2400,800", help="of the best, a number for each student")
    parser.add_argument("--lr", type=float, default=8e-4)
    parser.add_argument("--unlabelled", type=float, default=1.0, help="sentences of the text per labelled one")
    parser.add_argument("--best", type=int, default=2, help="how many mixes go on")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--threads", type=int, default=2, help="threads of each run")
    parser.add_argument("--keep", action="store_true", help="keep the students, and not only what they scored")
    arguments = parser.parse_args()
    unknown = [mix for mix in _mixes(arguments) if mix not in MIXES]
    if unknown:
        parser.error(f"there is no mix {unknown[0]!r}; known: {'; '.join(MIXES)}")
    arguments.students = arguments.students.split(",")
    arguments.steps = [int(steps) for steps in arguments.steps.split(",")]
    if len(arguments.steps) != len(arguments.students):
        parser.error(f"--steps needs a number for each of {', '.join(arguments.students)}")
    return arguments


def _mixes(arguments: argparse.Namespace) -> list[str]:
    return [mix.strip() for mix in arguments.mixes.split(";")] if arguments.mixes else list(MIXES)


def screen(lab: Lab) -> tuple[list[str], str]:
    """The mixes that go on, and the table that they were chosen by, if there was a choice."""
    asked, mixes = lab.arguments, _mixes(lab.arguments)
    if len(mixes) <= asked.best:
        return mixes, ""
    setting = (asked.screen_steps, 0, asked.screen_lr, asked.screen_unlabelled)
    results = run_all(lab, (Cell(SCREENED, student, mix, *setting) for student in asked.students for mix in mixes))
    table = f"NCBI-disease, seed 0, {asked.screen_steps:,} steps each\n\n{screening_table(results)}\n"
    print(table)
    return best(results, asked.best), table


def compare(lab: Lab, mixes: Sequence[str]) -> str:
    """Every seed, data set and student: the second table."""
    asked = lab.arguments
    steps = dict(zip(asked.students, asked.steps, strict=True))
    results = run_all(
        lab,
        (
            Cell(data, student, mix, steps[student], seed, asked.lr, asked.unlabelled)
            for seed in range(asked.seeds)
            for data in TEACHERS
            for student in asked.students
            for mix in mixes
        ),
    )
    table = f"The best, {asked.seeds} seeds\n\n{final_table(results)}\n"
    print(table)
    return table


def main() -> None:
    """Screen on one data set, then measure the best on both."""
    lab = Lab(parse())
    chosen, first = screen(lab)
    (lab.out / "table.md").write_text(first, encoding="utf-8")
    second = compare(lab, chosen)
    (lab.out / "table.md").write_text("\n".join(filter(None, (first, second))), encoding="utf-8")


if __name__ == "__main__":
    main()
