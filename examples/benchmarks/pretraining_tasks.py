"""What pretraining brings to a task: the tables of the README.

    python pretraining_tasks.py ABSTRACTS NCBI_DISEASE --out pretraining --jobs 2 --threads 1

ABSTRACTS is what `biosqueeze corpus` reads, NCBI_DISEASE a directory with train.tsv, devel.tsv and test.tsv. Two
hundredths of the abstracts are held out; those that contain a sentence of the test set are dropped. Small models get a
vocabulary of their own.

1. all-MiniLM-L6-v2, and the same continued on the abstracts by masked whole words.
2. One small shape from random weights, by masked pieces, by masked whole words with next sentences, and by replaced
   tokens, for equal FLOPs; and the same shape untrained.
3. Shapes of equal size, deep and wide, by masked whole words, for equal tokens.

Each model is fine-tuned on NCBI-disease with several seeds and the same steps. Finished runs are skipped, interrupted
ones continue. The tables go to standard output and to OUT/table.md.
"""

import argparse
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stage_runs import StageRuns, metrics_of

MINILM = "demo:minilm"
SMALL = ("--shape", "bert-mini")
WORDS = ("--mask-unit", "word")
# Layers, hidden size, heads of 64 or 68 and FFN: the weights of the layers differ by less than 1%.
SHAPES = {
    "2 x 384": ("2", "384", "6", "1536"),
    "4 x 272": ("4", "272", "4", "1088"),
    "8 x 192": ("8", "192", "3", "768"),
}
MIDDLE = "4 x 272"


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
        super().__init__(
            arguments.out, arguments.threads, {"abstracts": str(arguments.abstracts), "data": str(arguments.data)}
        )

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
        return str(self.make("vocabulary", "vocab", self.corpus, "--kind", "wordpiece", "--size", size))

    def shape(self, name: str) -> tuple[str, ...]:
        """Return the options of a small model."""
        layers, hidden, heads, ffn = SHAPES[name]
        sizes = ("--layers", layers, "--hidden", hidden, "--heads", heads, "--ffn", ffn)
        return (*SMALL, *sizes, "--tokenizer", self.vocabulary())

    def pretrained(self, model: Model) -> str:
        """Return the path of a model, trained where it is missing."""
        if not model.words:
            return MINILM
        words = [*model.words, "--corpus", self.corpus, "--batch-size", str(self.arguments.batch_size)]
        return str(self.make(model.directory, "pretrain", *words, "--max-length", "128", "--save-every", "100"))

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
    parts = {
        "all-MiniLM-L6-v2": continued(options.continued_steps),
        f"{MIDDLE} from random weights": objectives(workspace),
        f"Depth and width, {options.steps:,} steps": shapes(workspace),
    }
    return "\n".join(f"{title}\n\n{table(workspace, models)}\n" for title, models in parts.items())


def continued(steps: int) -> list[Model]:
    """Return MiniLM before and after."""
    words = (MINILM, *WORDS, "--steps", str(steps), "--lr", "2e-4", "--eval-every", str(max(1, steps // 4)))
    return [Model("MiniLM", (), 2e-4), Model("MiniLM continued", words, 2e-4)]


def objectives(workspace: Workspace) -> list[Model]:
    """Return the small shape untrained, and trained by each objective for the FLOPs of --steps of the first."""
    shape, lr, steps = workspace.shape(MIDDLE), workspace.arguments.lr, workspace.arguments.steps
    rows = {
        "masked pieces": ("--objective", "mlm"),
        "masked whole words + next sentences": ("--objective", "mlm+nsp", *WORDS),
        "replaced tokens": ("--objective", "rtd", "--shape", "electra-small"),
    }
    models = [Model("untrained", (*shape, "--steps", "1", "--lr", "0"), workspace.arguments.task_lr)]
    for name, words in rows.items():
        costs = [_flops(workspace, (*shape, *of)) for of in (rows["masked pieces"], words)]
        equal = max(1, round(steps * costs[0] / costs[1]))
        trained = (*shape, *words, "--steps", str(equal), "--lr", str(lr))
        models.append(Model(name, trained, workspace.arguments.task_lr))
    return models


def shapes(workspace: Workspace) -> list[Model]:
    """Return the shapes of equal size."""
    options = workspace.arguments
    trained = (*WORDS, "--steps", str(options.steps), "--lr", str(options.lr))
    return [Model(name, (*workspace.shape(name), *trained), options.task_lr) for name in SHAPES]


def _flops(workspace: Workspace, words: Sequence[str]) -> float:
    """Return the FLOPs of one step, as `pretrain --dry-run` computes them."""
    batch = ("--batch-size", str(workspace.arguments.batch_size), "--max-length", "128", "--steps", "1")
    plan = workspace.biosqueeze(
        "cost", ["pretrain", *words, "--corpus", workspace.corpus, *batch, "--out", "unused", "--dry-run"]
    )
    return float(plan["cost"]["flops"])


def table(workspace: Workspace, models: Sequence[Model]) -> str:
    """Train and fine-tune the models, and format parameters, training, held-out loss and F1 over the seeds."""
    with ThreadPoolExecutor(workspace.arguments.jobs) as pool:
        paths = list(pool.map(workspace.pretrained, models))
        seeds = range(workspace.arguments.seeds)
        futures = [[pool.submit(workspace.fine_tuned, model, seed) for seed in seeds] for model in models]
        scores = [[future.result() for future in row] for row in futures]
    lines = [
        "| model | parameters | tokens | minutes | held-out loss | dev F1 | test F1 |",
        "|---|---|---|---|---|---|---|",
    ]
    for model, path, of_seeds in zip(models, paths, scores, strict=True):
        facts = _training(workspace, model, path)
        lines.append(f"| {' | '.join([model.name, *facts, *(_spread(of_seeds, split) for split in ('dev', 'f1'))])} |")
    return "\n".join(lines)


def _training(workspace: Workspace, model: Model, path: str) -> list[str]:
    """Format parameters, tokens, minutes and held-out loss of a pretraining."""
    facts = workspace.biosqueeze("inspect", ["inspect", path])
    parameters = f"{facts['parameters']['total'] / 1e6:.1f}M"
    if not model.words:
        return [parameters, "-", "-", "-"]
    metrics = metrics_of(Path(path))
    held_out = metrics.get("held_out", {})
    loss = f"{held_out['mlm']:.3f}" if "mlm" in held_out else "-"
    return [parameters, f"{metrics['tokens']:,}", f"{metrics['seconds'] / 60:.1f}", loss]


def _spread(results: Sequence[dict[str, Any]], split: str) -> str:
    values = [result[split] for result in results]
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{deviation}"


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("abstracts", help="PubMed XML, text or JSON lines")
    parser.add_argument("data", help="directory of NCBI-disease")
    parser.add_argument("--out", type=Path, default=Path("pretraining"))
    parser.add_argument("--continued-steps", type=int, default=300)
    parser.add_argument("--steps", type=int, default=1500, help="of a small model by masked pieces")
    parser.add_argument("--batch-size", type=int, default=32, help="blocks of 128 tokens")
    parser.add_argument("--lr", type=float, default=1e-3, help="of the pretraining of a small model")
    parser.add_argument("--vocabulary", type=int, default=8192, help="pieces of the small models")
    parser.add_argument("--task-steps", type=int, default=300, help="of 16 sentences")
    parser.add_argument("--task-lr", type=float, default=5e-4, help="of the fine-tuning of a small model")
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
