"""F1 of cut taggers by importance, before and after repair, and after distillation: see results/shrinking.md.

    python importance_repair.py NCBI_DISEASE --cuts ffn-40,joint-50 --seeds 1
    python importance_repair.py NCBI_DISEASE BC2GM --distill                    # both whole tables: many hours
    python importance_repair.py NCBI_DISEASE BC2GM --parts joint --distill      # a part of them, into the same --out

MiniLM (6 layers x 384, 12 heads, ffn 1536) is fine-tuned once for each data set, or given with --teachers. Every score
is a file in OUT/records; runs that have one are skipped, so parts can be added, in any order. The tables have what
there is. A cut by magnitude without repair reads no data and is made once; the others once for each seed of their
calibration. Importances that choose the same layers make the same model, which is evaluated and distilled once.
"""

import argparse
import hashlib
import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

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
STATES = ("cut", "cut and repaired", "cut, repaired, distilled")
DEFAULT = "default"  # without --importance: layers by the loss after repair, the rest by Fisher


def main() -> None:
    """Fine-tune, cut, evaluate, and print the tables."""
    options = parse()
    inputs = {name: str(getattr(options, name)) for name in ("tokens", "steps", "distill_steps", "lr", "backend")}
    runs = StageRuns(options.out, options.threads, inputs)
    parts = []
    for number, data in enumerate(options.data):
        teacher = options.teachers[number] if options.teachers else fine_tune(runs, data, options.steps)
        whole = f1_of(runs, f"{data.name}-teacher", teacher, data, options.backend)
        cells = [Cell(runs, options, data, teacher, *names) for names in product(options.cuts, options.importances)]
        cells = [cell for cell in cells if applies(cell.importance, cell.cut)]
        for seed, cell in product(range(0 if options.table else options.seeds), cells):
            cell.run(seed)
        parts += [f"{data.name}: the teacher has {whole:.2f}.", *tables(cells)]
    text = "\n\n".join(parts)
    (options.out / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)


def tables(cells: Sequence["Cell"]) -> list[str]:
    """Return a table of cuts and importances for each of `STATES` that was recorded."""
    scores = {(cell.cut, cell.importance): cell.scores() for cell in cells}
    cuts, importances = ({key[place]: None for key in scores} for place in (0, 1))
    parts = []
    for number, state in enumerate(STATES):
        filled = {key: mean_and_deviation(states[number]) for key, states in scores.items()}
        rows = [[cut, *(filled.get((cut, importance), "") for importance in importances)] for cut in cuts]
        if any(filled.values()):
            parts.append(markdown([state, *importances], rows))
    return parts


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
    parser.add_argument("--backend", default="torch", help="of the evaluations; torch:bf16 halves their time")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="print the tables of the records, and cut nothing")
    options = parser.parse_args()
    parts = options.parts.split(",")
    in_parts = [cut for cut in CUTS if cut.partition("-")[0] in parts]
    options.cuts = options.cuts.split(",") if options.cuts else in_parts
    options.importances = options.importances.split(",")
    unknown = [name for name in [*parts, *options.cuts] if name not in (*PARTS, *CUTS)]
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
    """A data set, a cut and an importance."""

    runs: StageRuns
    options: argparse.Namespace
    data: Path
    teacher: Path
    cut: str
    importance: str

    def run(self, seed: int) -> None:
        """Cut, repair and, if that is asked for, distil, where there is no record of it."""
        alone, repaired, distilled = self.names(seed)
        if seed in self.seeds_alone() and not self.runs.record(alone):
            calibration = () if self.importance == "magnitude" else self.calibration()
            cut = self.shrink(alone, seed, ("--repair", "none", *calibration))
            self.score(alone, cut)
            shutil.rmtree(cut)
        if not self.runs.record(distilled if self.options.distill else repaired):
            cut = self.shrink(repaired, seed, ("--repair", "least-squares", *self.calibration()))
            self.score(repaired, cut)
            if self.options.distill:
                self.distil_and_score(distilled, cut)
            shutil.rmtree(cut)

    def score(self, name: str, cut: Path) -> None:
        """Record the test F1 of a cut model, where there is no record of it."""
        self.once(name, f"cut {digest(cut)}", lambda: self.evaluate(name, cut))

    def distil_and_score(self, name: str, cut: Path) -> None:
        """Record the test F1 of a cut model after its distillation, where there is no record of it."""

        def run() -> dict[str, Any]:
            student = self.distil(name, cut)
            result = self.evaluate(name, student)
            shutil.rmtree(student)
            return result

        self.once(name, f"distilled {digest(cut)}", run)

    def once(self, name: str, model: str, run: Callable[[], dict[str, Any]]) -> None:
        """Record a result; where a run of the same model has a record, that result."""
        if self.runs.record(name) is None:
            known = next((record for record in self.runs.records() if record.get("model") == model), None)
            self.runs.save_record(name, known or {**run(), "model": model})

    def evaluate(self, name: str, checkpoint: Path) -> dict[str, Any]:
        """Return the metrics of a checkpoint on the test split."""
        return evaluate(self.runs, name, checkpoint, self.data, self.options.backend)

    def seeds_alone(self) -> range:
        """Return the seeds of cuts without repair: one where no data are read, none where only the repair chooses."""
        return range({DEFAULT: 0, "magnitude": 1}.get(self.importance, self.options.seeds))

    def scores(self) -> tuple[Sequence[float], ...]:
        """Return the recorded F1 in percent of the seeds, for each of `STATES`."""
        names = zip(*map(self.names, range(self.options.seeds)), strict=True)
        return tuple(tuple(f1(record) for name in state if (record := self.runs.record(name))) for state in names)

    def names(self, seed: int) -> tuple[str, ...]:
        """Return the names of the records of a seed, for each of `STATES`."""
        cell = f"{self.data.name}-{self.cut}-{self.importance}"
        return f"{cell}-none-{seed}", f"{cell}-least-squares-{seed}", f"{cell}-least-squares-{seed}-distilled"

    def calibration(self) -> tuple[str, ...]:
        """Return the options of the calibration data."""
        return ("--calibration", str(self.data), "--calibration-tokens", self.options.tokens)

    def shrink(self, name: str, seed: int, words: Sequence[str]) -> Path:
        """Return the teacher with this cut."""
        named = () if self.importance == DEFAULT else ("--importance", self.importance)
        return self.runs.make(name, "shrink", str(self.teacher), *CUTS[self.cut], *named, "--seed", str(seed), *words)

    def distil(self, name: str, student: Path) -> Path:
        """Return a cut model after its distillation from the teacher on the task."""
        return self.runs.make(name, "distill", str(student), *self.training())

    def training(self) -> tuple[str, ...]:
        """Return the options of the distillation."""
        steps = self.options.distill_steps
        length = ("--steps", steps, "--eval-every", steps) if steps else ("--epochs", "1")
        data = ("--teacher", str(self.teacher), "--data", str(self.data))
        return (*data, "--lr", self.options.lr, *length, "--batch-size", "16")


def f1_of(runs: StageRuns, name: str, checkpoint: Path, data: Path, backend: str = "torch") -> float:
    """Return the F1 on the test split, in percent; of a run with a record, that of the record."""
    return f1(runs.record(name) or runs.save_record(name, evaluate(runs, name, checkpoint, data, backend)))


def evaluate(runs: StageRuns, name: str, checkpoint: Path, data: Path, backend: str) -> dict[str, Any]:
    """Return the metrics of a checkpoint on the test split."""
    return runs.biosqueeze(
        name, ["evaluate", str(checkpoint), "--data", str(data), "--task", "ner", "--backend", backend]
    )


def digest(checkpoint: Path) -> str:
    """Return the SHA-256 of the weights of a checkpoint."""
    return hashlib.sha256((checkpoint / "model.safetensors").read_bytes()).hexdigest()


def f1(record: dict[str, Any]) -> float:
    """Return the F1 of a record, in percent."""
    return 100 * float(record["metrics"]["f1"])


def mean_and_deviation(values: Sequence[float]) -> str:
    """Return such as 81.20 ± 0.31; without a deviation for one value."""
    if len(values) < 2:
        return f"{values[0]:.2f}" if values else ""
    return f"{statistics.fmean(values):.2f} ± {statistics.stdev(values):.2f}"


if __name__ == "__main__":
    main()
