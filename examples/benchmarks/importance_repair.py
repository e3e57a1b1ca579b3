"""F1 of cut taggers by importance, before and after repair, and after distillation: see README.md.

    python importance_repair.py NCBI_DISEASE --cuts ffn-40,joint-50 --seeds 1
    python importance_repair.py NCBI_DISEASE BC2GM --distill                    # both whole tables: many hours
    python importance_repair.py NCBI_DISEASE BC2GM --parts joint --distill      # a part of them, into the same --out

MiniLM (6 layers x 384, 12 heads, ffn 1536) is fine-tuned once for each data set, or given with --teachers. Every score
is a file in OUT/records; runs that have one are skipped, so parts can be added, in any order. The table has what there
is. A cut by magnitude without repair reads no data and is made once; the others once for each seed of --calibration.
"""

import argparse
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stage_runs import StageRuns

from biosqueeze import registry
from biosqueeze.text_table import markdown

CUTS = {  # the share of the encoder's parameters that is cut; of ffn-40, of the neurons
    "ffn-40": ("--ffn", "922"),
    "depth-25": ("--layers", "4"),  # a third: 4.5 layers do not exist
    "depth-50": ("--layers", "3"),
    "depth-75": ("--layers", "1"),  # five sixths: 1.5 layers do not exist
    "ffn-25": ("--ffn", "960"),
    "ffn-50": ("--ffn", "384"),  # all neurons are two thirds of the parameters, so there is no 75
    "width-25": ("--heads", "10", "--ffn", "1408"),
    "width-50": ("--heads", "9", "--ffn", "960"),
    "width-75": ("--width", "0.5"),
    "joint-25": ("--layers", "5", "--heads", "11", "--ffn", "1472"),
    "joint-50": ("--layers", "4", "--heads", "10", "--ffn", "1408"),
    "joint-75": ("--layers", "3", "--heads", "9", "--ffn", "960"),
}
PARTS = ("depth", "ffn", "width", "joint")
LAYERS_ONLY = ("block-influence", "leave-one-out")
DEFAULT = "default"  # without --importance: layers by the loss after repair, the rest by Fisher


def main() -> None:
    """Fine-tune, cut, evaluate, and print the table."""
    options = parse()
    inputs = {name: str(getattr(options, name)) for name in ("tokens", "steps", "distill_steps", "lr")}
    runs = StageRuns(options.out, options.threads, inputs)
    teachers = options.teachers or [fine_tune(runs, data, options.steps) for data in options.data]
    rows: list[Sequence[str]] = []
    for data, teacher in zip(options.data, teachers, strict=True):
        rows.append([data.name, "none", "", f"{f1_of(runs, f'{data.name}-teacher', teacher, data):.2f}", "", ""])
        for cut in options.cuts.split(","):
            for importance in options.importances.split(","):
                if applies(importance, cut):
                    rows.append(Cell(runs, options, data, teacher, cut, importance).row())
                    print(" | ".join(rows[-1]), flush=True)
    table = markdown(["data", "cut", "importance", "F1, cut", "F1, repaired", "F1, distilled"], rows)
    (options.out / "table.md").write_text(table + "\n", encoding="utf-8")
    print(table)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", type=Path, help="directories of NER data")
    parser.add_argument("--out", type=Path, default=Path("importance-repair"))
    parser.add_argument("--teachers", nargs="+", type=Path, help="fine-tuned MiniLMs, one for each directory")
    parser.add_argument("--parts", default=",".join(PARTS), help="kinds of cuts: depth, ffn, width, joint")
    parser.add_argument("--cuts", help=f"which cuts, in place of --parts: {', '.join(CUTS)}")
    parser.add_argument("--importances", default=",".join([*registry.names("importance"), DEFAULT]))
    parser.add_argument("--seeds", type=int, default=3, help="samples of calibration data")
    parser.add_argument("--tokens", default="16384", help="of calibration data")
    parser.add_argument("--steps", default="600", help="of the fine-tuning")
    parser.add_argument("--distill", action="store_true", help="distil each repaired model")
    parser.add_argument("--distill-steps", help="steps of the distillation; default: one epoch")
    parser.add_argument("--lr", default="4e-4", help="of the distillation")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    parts = options.parts.split(",")
    options.cuts = options.cuts or ",".join(cut for cut in CUTS if cut.partition("-")[0] in parts)
    unknown = [name for name in [*parts, *options.cuts.split(",")] if name not in (*PARTS, *CUTS)]
    if unknown or (options.teachers and len(options.teachers) != len(options.data)):
        parser.error(f"unknown: {unknown}" if unknown else "give --teachers one checkpoint for each directory")
    return options


def applies(importance: str, cut: str) -> bool:
    """Return whether a cut has a row for an importance: not where it scores nothing or another row is the same."""
    if importance in LAYERS_ONLY:
        return cut.startswith("depth")
    return importance != DEFAULT or "--layers" in CUTS[cut]


def fine_tune(runs: StageRuns, data: Path, steps: str) -> Path:
    """Return the teacher of a data set."""
    words = ("demo:minilm", "--data", str(data), "--lr", "2e-4", "--warmup", "0.1", "--steps", steps)
    return runs.make(data.name, "finetune", *words, "--eval-every", steps)


@dataclass(frozen=True)
class Cell:
    """One row of the table: a data set, a cut and an importance."""

    runs: StageRuns
    options: argparse.Namespace
    data: Path
    teacher: Path
    cut: str
    importance: str

    def row(self) -> Sequence[str]:
        """Return the mean F1 over seeds: cut, repaired, distilled."""
        seeds = range(self.options.seeds)
        alone = [self.cut_alone(seed) for seed in self.seeds_alone()]
        pairs = [self.repaired(seed) for seed in seeds]
        repaired, distilled = [pair[0] for pair in pairs], [pair[1] for pair in pairs if pair[1] is not None]
        scores = (mean_and_deviation(values) for values in (alone, repaired, distilled))
        return (self.data.name, self.cut, self.importance, *scores)

    def seeds_alone(self) -> range:
        """Return the seeds of cuts without repair: one where no data are read, none where only the repair chooses."""
        return range({DEFAULT: 0, "magnitude": 1}.get(self.importance, self.options.seeds))

    def cut_alone(self, seed: int) -> float:
        """Return the F1 of the cut alone."""
        name = self.name("none", seed)
        if not self.runs.record(name):
            calibration = () if self.importance == "magnitude" else self.calibration()
            cut = self.shrink(name, seed, ("--repair", "none", *calibration))
            f1_of(self.runs, name, cut, self.data)
            shutil.rmtree(cut)
        return f1_of(self.runs, name, self.teacher, self.data)

    def repaired(self, seed: int) -> tuple[float, float | None]:
        """Return the F1 of the repaired cut, and after distillation if that is asked for."""
        name, runs = self.name("least-squares", seed), self.runs
        last = f"{name}-distilled" if self.options.distill else name
        if not runs.record(last):
            cut = self.shrink(name, seed, ("--repair", "least-squares", *self.calibration()))
            f1_of(runs, name, cut, self.data)
            if self.options.distill:
                distilled = self.distil(last, cut)
                f1_of(runs, last, distilled, self.data)
                shutil.rmtree(distilled)
            shutil.rmtree(cut)
        repaired = f1_of(runs, name, self.teacher, self.data)
        known = runs.record(f"{name}-distilled")
        return repaired, 100 * float(known["metrics"]["f1"]) if known else None

    def name(self, repair: str, seed: int) -> str:
        """Return the name of a run."""
        return f"{self.data.name}-{self.cut}-{self.importance}-{repair}-{seed}"

    def calibration(self) -> tuple[str, ...]:
        """Return the options of the calibration data."""
        return ("--calibration", str(self.data), "--calibration-tokens", self.options.tokens)

    def shrink(self, name: str, seed: int, words: Sequence[str]) -> Path:
        """Return the teacher with this cut."""
        named = () if self.importance == DEFAULT else ("--importance", self.importance)
        return self.runs.make(name, "shrink", str(self.teacher), *CUTS[self.cut], *named, "--seed", str(seed), *words)

    def distil(self, name: str, student: Path) -> Path:
        """Return a cut model after its distillation from the teacher on the task."""
        steps = self.options.distill_steps
        length = ("--steps", steps, "--eval-every", steps) if steps else ("--epochs", "1")
        words = ("--teacher", str(self.teacher), "--data", str(self.data), "--lr", self.options.lr, *length)
        return self.runs.make(name, "distill", str(student), *words, "--batch-size", "16")


def f1_of(runs: StageRuns, name: str, checkpoint: Path, data: Path) -> float:
    """Return the F1 on the test split, in percent; of a run with a record, that of the record."""
    record = runs.record(name)
    if record is None:
        words = ["evaluate", str(checkpoint), "--data", str(data), "--task", "ner"]
        record = runs.save_record(name, runs.biosqueeze(name, words))
    return 100 * float(record["metrics"]["f1"])


def mean_and_deviation(values: Sequence[float]) -> str:
    """Return such as 81.20 ± 0.31; without a deviation for one value."""
    if len(values) < 2:
        return f"{values[0]:.2f}" if values else ""
    return f"{statistics.fmean(values):.2f} ± {statistics.stdev(values):.2f}"


if __name__ == "__main__":
    main()
