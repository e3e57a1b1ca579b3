"""A gradual cut against a cut at once, with equal training: see results/shrinking.md.

    python gradual.py NCBI_DISEASE --out gradual
    python gradual.py NCBI_DISEASE --steps-of 2,4 --seeds 3 --steps 1200

MiniLM (6 layers x 384, 12 heads, ffn 1536) is fine-tuned on the data. Its cut to 3 layers with 9 heads and 960 neurons,
which removes 75% of the encoder's parameters, is done at once, or in steps by a recipe with `steps_of`. Each student is
distilled from the uncut teacher with as many training steps in all. Recipes resume, and finished runs are skipped.
"""

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

from importance_repair import DEFAULT, f1_of, fine_tune, mean_and_deviation
from stage_runs import StageRuns, metrics_of

from biosqueeze.text_table import markdown

CUT = {"layers": '"3"', "heads": "9", "ffn": "960"}


def main() -> None:
    """Train what is missing and print the table."""
    options = parse()
    inputs = {name: str(getattr(options, name)) for name in ("data", "teacher", "teacher_steps", "steps", "lr")}
    runs = StageRuns(options.out, options.threads, inputs)
    teacher = options.teacher or fine_tune(runs, options.data, options.teacher_steps)
    whole = f1_of(runs, "teacher", teacher, options.data)
    rows = [["the teacher, uncut", "", f"{whole:.2f}", "", ""]]
    for count in (1, *map(int, options.steps_of.split(","))):
        rows.append(row(runs, options, teacher, count, whole))
        print(" | ".join(rows[-1]), flush=True)
    table = markdown(["cuts", "training steps", "F1", "of the teacher", "minutes"], rows)
    (options.out / "table.md").write_text(table + "\n", encoding="utf-8")
    print(table)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="directory of NCBI-disease")
    parser.add_argument("--out", type=Path, default=Path("gradual"))
    parser.add_argument("--teacher", type=Path, help="a MiniLM that is fine-tuned on the data")
    parser.add_argument("--teacher-steps", default="600", help="of the fine-tuning")
    parser.add_argument("--steps-of", default="2,3,4", help="numbers of cuts that are compared with one")
    parser.add_argument("--steps", type=int, default=1200, help="of each student's training, over all its cuts")
    parser.add_argument("--lr", default="4e-4", help="of the distillation")
    parser.add_argument(
        "--importance", default=DEFAULT, help=f"of the cuts; {DEFAULT}: what shrink chooses by with --calibration"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def row(runs: StageRuns, options: argparse.Namespace, teacher: Path, count: int, whole: float) -> list[str]:
    """Return the scores of students that were cut in a number of steps."""
    scores, minutes = [], []
    for seed in range(options.seeds):
        name = f"{count}-{options.importance}-{seed}"
        trained = train(runs, options, teacher, count, seed)
        scores.append(f1_of(runs, name, trained[-1], options.data))
        minutes.append(sum(metrics_of(path)["seconds"] for path in trained) / 60)
    mean = statistics.fmean(scores)
    each = options.steps // count
    steps = f"{count} x {each}" if count > 1 else str(each)
    share = f"{mean / whole:.1%}"
    return [str(count), steps, mean_and_deviation(scores), share, f"{statistics.fmean(minutes):.1f}"]


def train(runs: StageRuns, options: argparse.Namespace, teacher: Path, count: int, seed: int) -> Sequence[Path]:
    """Run the recipe of one student; return the checkpoints after its trainings."""
    name = f"{count}-{options.importance}-{seed}"
    folder = runs.out / "checkpoints" / name
    recipe = runs.out / f"{name}.toml"
    recipe.write_text(recipe_text(options, teacher, count, seed), encoding="utf-8")
    runs.biosqueeze(name, ["run", str(recipe), "--out", str(folder)])
    return [folder / f"student-{number}" for number in range(1, count)] + [folder / "student"]


def recipe_text(options: argparse.Namespace, teacher: Path, count: int, seed: int) -> str:
    """Return the recipe of a cut in a number of steps, with a training after each."""
    steps, data = options.steps // count, options.data.resolve()
    importance = f'importance = "{options.importance}"\n' if options.importance != DEFAULT else ""
    if options.importance != "magnitude":
        importance += f'calibration = "{data}"\n'
    sizes = "".join(f"{size} = {value}\n" for size, value in CUT.items())
    return (
        f'[cut]\nstage = "shrink"\ncheckpoint = "{teacher.resolve()}"\n{sizes}{importance}'
        f"steps_of = {count}\nseed = {seed}\n\n"
        f'[student]\nstage = "distill"\nteacher = "{teacher.resolve()}"\ndata = "{data}"\n'
        f"steps = {steps}\neval_every = {steps}\nlr = {options.lr}\nbatch_size = 16\nseed = {seed}\n"
    )


if __name__ == "__main__":
    main()
