"""What pretraining brings to a task: the tables of the results page.

    python pretraining_tasks.py ABSTRACTS NCBI_DISEASE --out pretraining --jobs 2 --threads 1

ABSTRACTS is what `biosqueeze corpus` reads, NCBI_DISEASE a directory with train.tsv, devel.tsv and test.tsv. Two
hundredths of the abstracts are held out; those that contain a sentence of the test set are dropped. Small models get a
vocabulary of their own.

continued: all-MiniLM-L6-v2, and the same continued on the abstracts by masked whole words.
objectives: one small shape from random weights by masked pieces, by masked whole words with next sentences, and by
    replaced tokens, for equal FLOPs; and the same shape untrained.
shapes: three shapes whose layers have the same number of weights, by masked pieces, for equal tokens.

Each model is fine-tuned on NCBI-disease with several seeds and the same steps. Finished runs are skipped, interrupted
ones continue. The tables go to standard output and to OUT/table.md.
"""

import argparse
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fitted_head
from stage_runs import StageRuns, mean_and_deviation, metrics_of

MINILM = "demo:minilm"
SMALL = ("--shape", "bert-mini", "--dropout", "0", "--betas", "0.9,0.98")
WORDS = ("--mask-unit", "word")
# Layers, hidden size, heads of 32 and FFN; the matrices of the layers have 393,216 weights in each row.
SHAPES = {
    "1 x 192": ("1", "192", "6", "640"),
    "2 x 128": ("2", "128", "4", "512"),
    "4 x 96": ("4", "96", "3", "320"),
}
OBJECTIVES_SHAPE = "1 x 192"  # which learned most in the comparison of the shapes
GENERATOR_SHARE = "0.5"  # a quarter of so small a model would be one and a half heads wide
CONTINUED_BATCH = 32
PARTS = ("continued", "objectives", "shapes")


@dataclass(frozen=True)
class Model:
    """A model that is fine-tuned: how it is made, and the learning rate that suits it."""

    name: str
    words: tuple[str, ...]  # of `pretrain`; none: all-MiniLM-L6-v2 as it is
    lr: float

    @property
    def directory(self) -> str:
        """The name for files."""
        return self.name.replace(" ", "-").replace(",", "").replace("+", "and")


class Workspace(StageRuns):
    """The corpus, the vocabulary and the models of one comparison."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        trainings = ("steps", "batch_size", "lr", "task_steps", "task_lr")
        inputs = {name: str(getattr(arguments, name)) for name in ("abstracts", "data", *trainings)}
        super().__init__(arguments.out, arguments.threads, inputs)

    @property
    def corpus(self) -> str:
        """The corpus, built where it is missing."""
        out = self.out / "corpus"
        if not out.exists():
            held_out = ("--held-out", "0.02", "--against", self.arguments.data)
            self.biosqueeze("corpus", ["corpus", self.arguments.abstracts, "--out", str(out), *held_out])
        return str(out)

    def vocabulary(self) -> str:
        """Return the small models' vocabulary, trained where it is missing."""
        size = str(self.arguments.vocabulary)
        return str(self.make("vocabulary", "vocab", self.corpus, "--uncased", "--size", size))

    def shape(self, name: str) -> tuple[str, ...]:
        """Return the options of a small model."""
        layers, hidden, heads, ffn = SHAPES[name]
        sizes = ("--layers", layers, "--hidden", hidden, "--heads", heads, "--ffn", ffn)
        return (*SMALL, *sizes, "--tokenizer", self.vocabulary())

    def pretrained(self, model: Model) -> str:
        """Return the path of a model, trained where it is missing."""
        if not model.words:
            return MINILM
        words = [*self.text(), *model.words, "--save-every", "1000"]
        return str(self.make(model.directory, "pretrain", *words))

    def text(self) -> tuple[str, ...]:
        """Return the options of the text of all models."""
        return ("--corpus", self.corpus, "--batch-size", str(self.arguments.batch_size), "--max-length", "128")

    def step_flops(self, name: str, words: Sequence[str]) -> float:
        """Return the FLOPs of one step, as `pretrain --dry-run` prints them."""
        log = f"{Model(name, (), 0).directory}.cost"
        if known := self.record(log):
            return float(known["flops"])
        one = ("--steps", "1", "--out", "unused", "--dry-run")
        plan = self.biosqueeze(log, ["pretrain", *self.text(), *words, *one])
        found = re.search(r"([\d.e+]+) FLOPs", " ".join(plan["steps"]))
        if found is None:
            raise RuntimeError(f"no FLOPs in the plan of {name}")
        return float(self.save_record(log, {"flops": float(found[1])})["flops"])

    def fitted_head_loss(self) -> float:
        """Return MiniLM's held-out loss with a head that was fitted while the encoder was frozen."""
        known = self.record("fitted-head")
        if not known:
            options, directory = self.arguments, self.out / "checkpoints"
            training = fitted_head.Fitting(options.head_steps, CONTINUED_BATCH, options.threads)
            known = self.save_record("fitted-head", fitted_head.scores(MINILM, self.corpus, training, directory))
        return float(known["mlm"])

    def fine_tuned(self, model: Model, seed: int) -> dict[str, Any]:
        """Fine-tune a model with a seed, and return F1 on test and dev in percent."""
        name = f"{model.directory}.ncbi.{seed}"
        known = self.record(name)
        if known:
            return known
        data = ("--data", self.arguments.data)
        steps = str(self.arguments.task_steps)
        settings = ("--steps", steps, "--eval-every", steps, "--lr", str(model.lr), "--seed", str(seed))
        checkpoint = self.make(name, "finetune", self.pretrained(model), *data, *settings)
        scores = self.biosqueeze(name, ["evaluate", str(checkpoint), *data, "--backend", "torch"])["metrics"]
        return self.save_record(name, {"f1": 100 * scores["f1"], "dev": 100 * metrics_of(checkpoint)["f1"]})


def tables(workspace: Workspace) -> str:
    """Make all models and return the tables."""
    options = workspace.arguments
    parts: dict[str, tuple[str, list[Model]]] = {}
    if "continued" in options.parts:
        parts["continued"] = "all-MiniLM-L6-v2", continued(options.continued_steps)
    if "objectives" in options.parts:
        parts["objectives"] = f"{OBJECTIVES_SHAPE} from random weights, equal FLOPs", objectives(workspace)
    if "shapes" in options.parts:
        parts["shapes"] = "Depth and width, equal tokens", shapes(workspace)
    run(workspace, list({model.name: model for _, models in parts.values() for model in models}.values()))
    return "\n".join(f"{title}\n\n{table(workspace, models)}\n" for title, models in parts.values())


def run(workspace: Workspace, models: Sequence[Model]) -> None:
    """Pretrain and fine-tune what is missing."""
    with ThreadPoolExecutor(workspace.arguments.jobs) as pool:
        list(pool.map(workspace.pretrained, reversed(models)))  # the longest first
        futures = [
            pool.submit(workspace.fine_tuned, model, seed)
            for seed in range(workspace.arguments.seeds)
            for model in models
        ]
        for future in futures:
            future.result()


def continued(steps: int) -> list[Model]:
    """Return MiniLM before and after."""
    length = ("--steps", str(steps), "--batch-size", str(CONTINUED_BATCH), "--eval-every", str(max(1, steps // 3)))
    return [Model("MiniLM", (), 2e-4), Model("MiniLM continued", (MINILM, *WORDS, *length, "--lr", "2e-4"), 2e-4)]


def objectives(workspace: Workspace) -> list[Model]:
    """Return the small shape untrained, and trained by each objective for the FLOPs of --steps of the first."""
    options, shape = workspace.arguments, workspace.shape(OBJECTIVES_SHAPE)
    electra = ("--shape", "electra-small", "--embedding", SHAPES[OBJECTIVES_SHAPE][1])
    rows = {
        "whole words + next sentences": ("--objective", "mlm+nsp", *WORDS),
        "replaced tokens": ("--objective", "rtd", *electra, "--generator-share", GENERATOR_SHARE),
    }
    pieces = masked_pieces(workspace, OBJECTIVES_SHAPE)
    untrained = (*shape, "--steps", "1", "--lr", "0")
    models = [Model(f"{OBJECTIVES_SHAPE}, untrained", untrained, options.task_lr), pieces]
    budget = options.steps * workspace.step_flops(pieces.name, pieces.words)
    for name, words in rows.items():
        full = f"{OBJECTIVES_SHAPE}, {name}"
        steps = round(budget / workspace.step_flops(full, (*shape, *words)))
        models.append(Model(full, (*shape, *words, "--steps", str(steps), "--lr", str(options.lr)), options.task_lr))
    return models


def masked_pieces(workspace: Workspace, shape: str) -> Model:
    """Return a shape that is trained by masked language modelling."""
    options = workspace.arguments
    words = (*workspace.shape(shape), "--steps", str(options.steps), "--lr", str(options.lr))
    return Model(f"{shape}, masked pieces", words, options.task_lr)


def shapes(workspace: Workspace) -> list[Model]:
    """Return the shapes of equal size."""
    return [masked_pieces(workspace, name) for name in SHAPES]


def table(workspace: Workspace, models: Sequence[Model]) -> str:
    """Format parameters, training, held-out loss and F1 over the seeds."""
    lines = [
        "| model | parameters | steps | tokens | FLOPs | minutes | held-out loss | dev F1 | test F1 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for model in models:
        scores = [workspace.fine_tuned(model, seed) for seed in range(workspace.arguments.seeds)]
        spreads = [mean_and_deviation([score[split] for score in scores]) for split in ("dev", "f1")]
        cells = [*_training(workspace, model), *spreads]
        lines.append(f"| {' | '.join([model.name, *cells])} |")
    return "\n".join(lines)


def _training(workspace: Workspace, model: Model) -> list[str]:
    """Format parameters, steps, tokens, FLOPs, minutes and held-out loss of a pretraining."""
    path = workspace.pretrained(model)
    facts = workspace.biosqueeze("inspect", ["inspect", path])
    parameters = f"{facts['parameters']['total'] / 1e6:.2f}M"
    if not model.words:
        return [parameters, "-", "-", "-", "-", f"{workspace.fitted_head_loss():.3f} (fitted head)"]
    metrics = metrics_of(Path(path))
    flops = metrics["steps"] * workspace.step_flops(model.name, model.words)
    numbers = (f"{metrics['steps']:,}", f"{metrics['tokens']:,}", f"{flops:.2e}", f"{metrics['seconds'] / 60:.1f}")
    return [parameters, *numbers, f"{metrics['held_out']['mlm']:.3f}"]


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("abstracts", help="PubMed XML, text or JSON lines")
    parser.add_argument("data", help="directory of NCBI-disease")
    parser.add_argument("--out", type=Path, default=Path("pretraining"))
    parser.add_argument("--parts", type=lambda text: text.split(","), default=PARTS, help=",".join(PARTS))
    parser.add_argument("--continued-steps", type=int, default=300)
    parser.add_argument("--head-steps", type=int, default=100, help="of MiniLM's head alone, for the loss before")
    parser.add_argument("--steps", type=int, default=2000, help="of a small model by masked pieces")
    parser.add_argument("--batch-size", type=int, default=8, help="blocks of 128 tokens, of a small model")
    parser.add_argument("--lr", type=float, default=1.5e-3, help="of the pretraining of a small model")
    parser.add_argument("--vocabulary", type=int, default=8192, help="pieces of the small models")
    parser.add_argument("--task-steps", type=int, default=300, help="of 16 sentences")
    parser.add_argument("--task-lr", type=float, default=1e-3, help="of the fine-tuning of a small model")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="parallel runs")
    parser.add_argument("--threads", type=int, default=2, help="threads of each run")
    return parser.parse_args()


def main() -> None:
    """Run all comparisons."""
    workspace = Workspace(parse())
    text = tables(workspace)
    (workspace.out / "table.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
