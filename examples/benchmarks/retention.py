"""How much of a fine-tuned teacher its students keep: the retention tables of the results page.

    python retention.py DATA TEXT --out retention --sets ncbi-disease,bc5cdr-chem,bc2gm --seeds 1 --jobs 2 --threads 1

DATA holds a directory for each set of `SETS`; TEXT is unlabelled text for `biosqueeze distill --corpus`. For each set
all-MiniLM-L6-v2 is fine-tuned until dev stops rising. Each student is cut from that teacher and trained with each
setting: `default` is `biosqueeze distill START --teacher T --data D --corpus TEXT` with no other option, `labels` the
same student fine-tuned on the labels alone until dev stops rising. --setting "NAME: OPTIONS OF DISTILL" adds more.

Students are scored on dev and test, and on test again after `quantize`; a paired bootstrap over the test examples
compares them with their teacher. Settings are chosen on CHOSEN_ON; FROZEN is run at the end, with all settings fixed.
Finished runs are skipped, interrupted ones continue. Every run leaves OUT/records/NAME.json; the table has what there
is, so that sets, students and seeds can be added on other days: --table prints it and runs nothing. The records behind
the page are in examples/benchmarks/retention.
"""

import argparse
import shlex
import statistics
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import paired_bootstrap
from stage_runs import StageRuns, mean_and_deviation, metrics_of

MINILM = "demo:minilm"
CHOSEN_ON = ("ncbi-disease", "bc5cdr-chem", "bc2gm")
FROZEN = ("bc5cdr-disease", "jnlpba", "hoc", "chemprot")
UNTIL_DEV_STOPS = ("--schedule", "plateau", "--steps", "20000")
LABELS = "labels"
# Directory in DATA, kind of task, and tokens of a sequence.
SETS = {
    **{name: (name, "ner", 128) for name in (*CHOSEN_ON, "bc5cdr-disease", "jnlpba")},
    "hoc": ("hoc/blurb", "classification", 256),
    "chemprot": ("chemprot/scibert", "relation", 128),
    "pubmedqa": ("pubmedqa", "nli", 512),
    "biosses": ("biosses/blurb", "similarity", 128),
}
# Options of `finetune`: read from the first token, MiniLM hardly learns from the 64 pairs of BIOSSES.
HEADS = {"similarity": ("--representation", "cosine")}
# Kinds of which any text is unlabelled data; the others need records.
READS_TEXT = ("ner", "classification", "similarity")
# Options of `shrink`. A name is layers x hidden size, or the share of the encoder's parameters that is cut.
STUDENTS = {
    "3x384": ("--layers", "1,3,5"),
    "4x312": ("--layers", "1,2,4,5", "--hidden", "312", "--ffn", "1200"),
    "6x312": ("--hidden", "312", "--ffn", "1200"),
    "joint-50": ("--layers", "4", "--heads", "10", "--ffn", "1408"),
    "joint-75": ("--layers", "3", "--heads", "9", "--ffn", "960"),
}


@dataclass(frozen=True)
class Student:
    """One training: a data set, a shape, a setting and a seed."""

    data: str
    shape: str
    setting: str
    seed: int

    @property
    def name(self) -> str:
        """The name for files."""
        return f"{self.data}.{self.shape}.{self.setting}.{self.seed}".replace(" ", "-")


class Workspace(StageRuns):
    """The teachers, starts and students of one comparison."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        inputs = {name: str(getattr(arguments, name)) for name in ("data", "text", "teacher_lr", "teacher_patience")}
        super().__init__(arguments.out, arguments.threads, inputs)
        self.settings = {LABELS: (), "default": (), **dict(map(_setting, arguments.setting))}

    def data(self, name: str) -> str:
        """Return the directory of a data set."""
        return str(self.arguments.data / SETS[name][0])

    def teacher(self, name: str) -> str:
        """Return the path of the teacher of a data set, fine-tuned where it is missing."""
        _, task, length = SETS[name]
        words = ("--data", self.data(name), "--task", task, *HEADS.get(task, ()), "--max-length", str(length))
        patience = self.arguments.teacher_patience
        words += ("--patience", str(patience)) if patience else ()
        return str(self.make(f"{name}.teacher", "finetune", MINILM, *words, *self.labels_alone()))

    def labels_alone(self) -> tuple[str, ...]:
        """Return how a model is fine-tuned on the labels alone."""
        return ("--lr", self.arguments.teacher_lr, *UNTIL_DEV_STOPS)

    def start(self, name: str, shape: str) -> str:
        """Return the path of a student before training, cut from its teacher where it is missing."""
        return str(self.make(f"{name}.{shape}.start", "shrink", self.teacher(name), *STUDENTS[shape]))

    def trained(self, student: Student) -> Path:
        """Return a student, trained where it is missing."""
        start, data = self.start(student.data, student.shape), self.data(student.data)
        task = SETS[student.data][1]
        common = (start, "--data", data, "--seed", str(student.seed))
        if student.setting == LABELS:
            words = [*HEADS.get(task, ()), "--max-length", str(SETS[student.data][2]), *self.labels_alone()]
            return self.make(student.name, "finetune", *common, *words)
        words = ["--teacher", self.teacher(student.data), *self.settings[student.setting]]
        if task in READS_TEXT:
            words += ["--corpus", str(self.arguments.text)]
        return self.make(student.name, "distill", *common, *words)

    def teacher_scores(self, name: str) -> dict[str, Any]:
        """Return dev and test of a teacher."""
        known = self.record(f"{name}.teacher")
        if known:
            return known
        test = paired_bootstrap.predict(self.teacher(name), self.data(name), "torch")
        return self.save_record(f"{name}.teacher", _trained(Path(self.teacher(name)), test))

    def scores(self, student: Student) -> dict[str, Any]:
        """Train and score a student."""
        known, options = self.record(student.name), shlex.join(self.settings[student.setting])
        if known:
            if known.get("options", options) != options:
                raise SystemExit(
                    f"{student.name} was made with the options {known['options']!r}; name the setting anew"
                )
            return known
        checkpoint, data = self.trained(student), self.data(student.data)
        of_teacher = paired_bootstrap.predict(self.teacher(student.data), data, "torch")
        test = paired_bootstrap.predict(str(checkpoint), data, "torch")
        int8 = self.make(f"{student.name}.int8", "quantize", str(checkpoint))
        quantized = paired_bootstrap.predict(str(int8), data, "onnxruntime:int8")
        low, high = paired_bootstrap.interval(test, of_teacher, self.arguments.resamples)
        result = {
            **_trained(checkpoint, test),
            "options": options,
            "int8": 100 * quantized.score,
            "low": 100 * low,
            "high": 100 * high,
        }
        return self.save_record(student.name, result)


def _trained(checkpoint: Path, test: paired_bootstrap.Predictions) -> dict[str, Any]:
    """Return dev and test in percent, steps and minutes of a training."""
    metrics = metrics_of(checkpoint)
    return {
        "dev": 100 * metrics[test.task.METRIC],
        "test": 100 * test.score,
        "steps": metrics["steps"],
        "minutes": metrics["seconds"] / 60,
        "revision": _revision(),
    }


def _revision() -> str:
    """Return the commit that this file is of."""
    command = ("git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _setting(text: str) -> tuple[str, tuple[str, ...]]:
    name, _, words = text.partition(":")
    return name.strip(), tuple(shlex.split(words))


def run(workspace: Workspace) -> None:
    """Train and score what is missing: the teachers first, then seed by seed."""
    options = workspace.arguments
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(workspace.teacher_scores, options.sets))
        list(pool.map(workspace.start, *zip(*product(options.sets, options.students), strict=True)))
        list(pool.map(workspace.scores, students(workspace)))


def students(workspace: Workspace) -> list[Student]:
    """Return all trainings, those of the first seed first."""
    options = workspace.arguments
    rows = product(range(options.seeds), options.sets, options.students, options.settings or workspace.settings)
    return [Student(data, shape, setting, seed) for seed, data, shape, setting in rows]


def table(workspace: Workspace) -> str:
    """Format a row for each data set, shape and setting that has records, and the mean of their ratios."""
    options = workspace.arguments
    lines = [
        "| data | student | setting | seeds | steps | minutes | dev | test | teacher, dev and test | of the teacher | "
        "95% by examples, seed 0 | int8 - float |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    ratios: dict[tuple[str, str], list[float]] = {}
    for shape, setting, data in product(options.students, options.settings or workspace.settings, options.sets):
        names = (Student(data, shape, setting, seed).name for seed in range(options.seeds))
        runs = [record for name in names if (record := workspace.record(name))]
        teacher = workspace.record(f"{data}.teacher")
        if not runs or not teacher:
            continue
        kept = [100 * each["test"] / teacher["test"] for each in runs]
        ratios.setdefault((shape, setting), []).append(statistics.mean(kept))
        cells = [data, shape, setting, str(len(runs)), f"{statistics.mean(each['steps'] for each in runs):,.0f}"]
        cells += [mean_and_deviation([each[key] for each in runs]) for key in ("minutes", "dev", "test")]
        cells += [f"{teacher['dev']:.2f}, {teacher['test']:.2f}", f"{mean_and_deviation(kept)}%"]
        cells += [f"{runs[0]['low']:.1f} to {runs[0]['high']:.1f}%"]
        lines.append(f"| {' | '.join([*cells, mean_and_deviation([each['int8'] - each['test'] for each in runs])])} |")
    lines += ["", "| student | setting | sets | mean of the ratios | lowest |", "|---|---|---|---|---|"]
    for (shape, setting), values in ratios.items():
        lines.append(f"| {shape} | {setting} | {len(values)} | {statistics.mean(values):.2f}% | {min(values):.2f}% |")
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def names(text: str) -> list[str]:
        return text.split(",")

    parser.add_argument("data", type=Path, help="directory of the data sets")
    parser.add_argument("text", help="unlabelled text, one sentence per line")
    parser.add_argument("--out", type=Path, default=Path("retention"))
    parser.add_argument("--sets", type=names, default=list(CHOSEN_ON), help=", ".join(SETS))
    parser.add_argument("--students", type=names, default=["3x384", "4x312"], help=", ".join(STUDENTS))
    parser.add_argument("--setting", action="append", default=[], help='"NAME: OPTIONS OF DISTILL", repeatable')
    parser.add_argument("--settings", type=names, help="names of the settings to run; default: all")
    parser.add_argument("--teacher-lr", default="2e-4")
    parser.add_argument("--teacher-patience", type=int, help="of the teachers; default: that of finetune")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--resamples", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1, help="parallel runs")
    parser.add_argument("--threads", type=int, default=2, help="threads of each run")
    parser.add_argument("--table", action="store_true", help="print the table of the records, and run nothing")
    return parser.parse_args()


def main() -> None:
    """Run the comparison."""
    workspace = Workspace(parse())
    if not workspace.arguments.table:
        run(workspace)
    text = table(workspace)
    (workspace.out / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
