"""A cut tagger before and after a short distillation, and the mean of both: see results/shrinking.md.

    python start_and_mean.py NCBI_DISEASE --teacher TEACHER --cuts width-25,joint-25 --importances fisher,default

Every cut is made, repaired and distilled for an epoch as importance_repair.py does, and the last weights are kept
whatever they score. The table has F1 on dev and test of the start, of the last weights, and of their mean; by those on
dev `distill` keeps one of the three. Every score is a file in OUT/records; runs that have one are skipped.
"""

import argparse
import shutil
from itertools import product
from pathlib import Path
from unittest import mock

from importance_repair import CUTS, Cell, applies, f1
from safetensors.torch import load_file, save_file
from stage_runs import StageRuns

from biosqueeze.cli import main as cli
from biosqueeze.text_table import markdown
from biosqueeze.training.best_weights import BestWeights

STATES, SPLITS = ("start", "last", "mean"), ("dev", "test")


def main() -> None:
    """Cut, distil, average, evaluate, and print the table."""
    options = parse()
    inputs = {name: str(getattr(options, name)) for name in ("data", "teacher", "tokens", "lr", "backend")}
    runs = StageRuns(options.out, options.threads, inputs)
    rows = []
    for cut, importance, seed in product(options.cuts, options.importances, range(options.seeds)):
        if applies(importance, cut):
            cell = Cell(runs, options, options.data, options.teacher, cut, importance)
            rows.append([cut, importance, str(seed), *(f"{score:.2f}" for score in scores(cell, seed))])
    columns = [f"{state}, {split}" for split, state in product(SPLITS, STATES)]
    print(markdown(["cut", "importance", "sample", *columns], rows))


def scores(cell: Cell, seed: int) -> list[float]:
    """Return F1 in percent of the start, the last weights and their mean, on dev and then on test."""
    runs, scored = cell.runs, [f"{cell.names(seed)[1]}-{state}-{split}" for split, state in product(SPLITS, STATES)]
    if not all(map(runs.record, scored)):
        paths = make(cell, seed)
        for name, (split, path) in zip(scored, product(SPLITS, paths), strict=True):
            words = ["--data", str(cell.data), "--task", "ner", "--split", split, "--backend", cell.options.backend]
            runs.save_record(name, runs.biosqueeze(name, ["evaluate", str(path), *words]))
        for path in paths:
            shutil.rmtree(path)
    return [f1(record) for name in scored if (record := runs.record(name))]


def make(cell: Cell, seed: int) -> tuple[Path, Path, Path]:
    """Return the checkpoints of the three states."""
    name = cell.names(seed)[1]
    start = cell.shrink(name, seed, ("--repair", "least-squares", *cell.calibration()))
    last, mean = (start.with_name(f"{name}-{state}") for state in ("last", "mean"))
    with mock.patch.object(BestWeights, "begin", lambda *_: None):  # so that the last weights are saved
        if cli.run(["distill", str(start), *cell.training(), "--out", str(last), "--force"]):
            raise SystemExit(f"{name} was not distilled")
    shutil.copytree(last, mean, dirs_exist_ok=True)
    first, second = (load_file(path / "model.safetensors") for path in (start, last))
    weights = {key: (first[key] + second[key]) / 2 for key in first}
    save_file(weights, mean / "model.safetensors", {"format": "pt"})
    return start, last, mean


def names(listed: str) -> list[str]:
    """Split a comma-separated list."""
    return listed.split(",")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a directory of NER data")
    parser.add_argument("--teacher", type=Path, required=True, help="a MiniLM that was fine-tuned on it")
    parser.add_argument("--cuts", default="width-25,joint-25", type=names, help=", ".join(CUTS))
    parser.add_argument("--importances", default="fisher,default", type=names)
    parser.add_argument("--seeds", type=int, default=3, help="samples of calibration data")
    parser.add_argument("--tokens", default="16384", help="of calibration data")
    parser.add_argument("--lr", default="4e-4", help="of the distillation")
    parser.add_argument("--backend", default="torch", help="of the evaluations; torch:bf16 halves their time")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("start-and-mean"))
    parser.set_defaults(distill_steps=None)
    return parser.parse_args()


if __name__ == "__main__":
    main()
