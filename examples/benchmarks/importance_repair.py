"""F1 of cut taggers by importance, before and after repair, and after distillation: see README.md.

    python importance_repair.py NCBI_DISEASE --cuts ffn-40,joint-50 --seeds 1
    python importance_repair.py NCBI_DISEASE BC2GM --distill           # the whole table: hours

MiniLM (6 layers x 384, 12 heads, ffn 1536) is fine-tuned once for each data set. Finished runs are skipped.
"""

import argparse
import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path

from stage_runs import StageRuns

from biosqueeze import registry
from biosqueeze.text_table import markdown

CUTS = {  # the share of the encoder's parameters that is cut; of ffn-40, of the neurons
    "ffn-40": ("--ffn", "922"),
    "depth-25": ("--layers", "4"),  # a third: 4.5 layers do not exist
    "depth-50": ("--layers", "3"),
    "depth-75": ("--layers", "1"),
    "ffn-25": ("--ffn", "960"),
    "ffn-50": ("--ffn", "384"),  # all neurons are two thirds of the parameters
    "width-25": ("--heads", "10", "--ffn", "1408"),
    "width-50": ("--heads", "9", "--ffn", "960"),
    "width-75": ("--width", "0.5"),
    "joint-25": ("--layers", "5", "--heads", "11", "--ffn", "1472"),
    "joint-50": ("--layers", "4", "--heads", "10", "--ffn", "1408"),
    "joint-75": ("--layers", "3", "--heads", "9", "--ffn", "960"),
}
LAYERS_ONLY = ("block-influence", "leave-one-out")


def main() -> None:
    """Fine-tune, cut, evaluate, and print the table."""
    options = parse()
    runs = StageRuns(options.out, options.threads, {"data": ", ".join(map(str, options.data))})
    rows = []
    for data in options.data:
        teacher = fine_tune(runs, data, options.steps)
        rows.append([data.name, "teacher", "", f"{f1_of(runs, f'{data.name}-teacher', teacher, data):.2f}", "", ""])
        for cut in options.cuts.split(","):
            for importance in options.importances.split(","):
                if cut.startswith("depth") or importance not in LAYERS_ONLY:
                    rows.append(row(runs, options, data, teacher, cut, importance))
                    print(" | ".join(rows[-1]), flush=True)
    print(markdown(["data", "cut", "importance", "F1, cut", "F1, repaired", "F1, distilled"], rows))


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", type=Path, help="directories of NER data")
    parser.add_argument("--out", type=Path, default=Path("importance-repair"))
    parser.add_argument("--cuts", default=",".join(CUTS))
    parser.add_argument("--importances", default=",".join(registry.names("importance")))
    parser.add_argument("--seeds", type=int, default=3, help="samples of calibration data")
    parser.add_argument("--tokens", default="16384", help="of calibration data")
    parser.add_argument("--steps", default="600", help="of the fine-tuning")
    parser.add_argument("--distill", action="store_true", help="distil each repaired model for one epoch")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def fine_tune(runs: StageRuns, data: Path, steps: str) -> Path:
    """Return the teacher of a data set."""
    words = ("demo:minilm", "--data", str(data), "--lr", "2e-4", "--warmup", "0.1", "--steps", steps)
    return runs.make(data.name, "finetune", *words, "--eval-every", steps)


def row(
    runs: StageRuns, options: argparse.Namespace, data: Path, teacher: Path, cut: str, importance: str
) -> Sequence[str]:
    """Return the mean F1 over seeds of a cut: alone, repaired, and distilled."""
    scores: dict[str, list[float]] = {"none": [], "least-squares": [], "distilled": []}
    for seed in range(options.seeds):
        for repair in ("none", "least-squares"):
            name = f"{data.name}-{cut}-{importance}-{repair}-{seed}"
            if runs.record(name) and not options.distill:
                scores[repair].append(100 * runs.record(name)["metrics"]["f1"])
                continue
            needs_data = importance != "magnitude" or repair != "none"
            calibration = ("--calibration", str(data), "--calibration-tokens", options.tokens) if needs_data else ()
            words = (str(teacher), *CUTS[cut], "--importance", importance, "--repair", repair, "--seed", str(seed))
            student = runs.make(name, "shrink", *words, *calibration)
            scores[repair].append(f1_of(runs, name, student, data))
            if repair == "least-squares" and options.distill:
                losses = ("--teacher", str(teacher), "--data", str(data), "--epochs", "1")
                distilled = runs.make(f"{name}-distilled", "distill", str(student), *losses)
                scores["distilled"].append(f1_of(runs, f"{name}-distilled", distilled, data))
            shutil.rmtree(student, ignore_errors=True)
    return (data.name, cut, importance, *(mean_and_deviation(values) for values in scores.values()))


def f1_of(runs: StageRuns, name: str, checkpoint: Path, data: Path) -> float:
    """Return the F1 on the test split, in percent."""
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
