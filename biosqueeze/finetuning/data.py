"""The task of a fine-tuning, its training and dev examples, and the metric that selects the best checkpoint."""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from biosqueeze.benchmarks.counts import warn_of_counts
from biosqueeze.benchmarks.suite import Benchmark, resolve_task
from biosqueeze.data.output_types import TOKENS
from biosqueeze.data.records.splits import shortened
from biosqueeze.data.sampling import class_of, describe_draw, draw_examples, hold_out
from biosqueeze.errors import UsageError
from biosqueeze.finetuning.run_processes import SPLIT_SEED
from biosqueeze.manifest import TaskRecord
from biosqueeze.options.rules import alternatives
from biosqueeze.progress import note, warn
from biosqueeze.registry import closest
from biosqueeze.tasks import Dataset, Task, open_task
from biosqueeze.tasks.encoding.tag_schemes import split_tag
from biosqueeze.tasks.formulation import Formulation
from biosqueeze.tasks.sniffing import Guess, guess


@dataclass(frozen=True)
class TaskSetup:
    """A task, named by its kind (ner) or by a benchmark (blurb/ncbi-disease)."""

    name: str  # as given
    kind: str
    task: Task
    benchmark: Benchmark | None = None

    def for_data(self, data: Dataset) -> Self:
        """Return the setup with the tag scheme, or the single or multiple labels, of the data."""
        return replace(self, task=self.task.with_scheme(data.scheme))

    def record(self, data: Dataset, metric: str, path: str, max_length: int) -> TaskRecord:
        """Return the manifest's description of the task.

        Args:
            data: whose labels the model has.
            metric: that selected the best checkpoint.
            path: of the data, as given.
            max_length: tokens in a sequence.
        """
        return TaskRecord(
            name=self.kind,
            data=path,
            labels=tuple(data.labels),
            scheme=data.scheme,
            metric=metric,
            max_length=max_length,
            formulation=self.task.formulation.non_defaults(),
            benchmark=self.name if self.name != self.kind else None,
            pairs=tuple(data.pairs),
        )


def open_task_setup(name: str, formulation: Formulation, written: Collection[str] = ()) -> TaskSetup:
    """Return the task of a kind or of a named benchmark; options that were given replace the benchmark's.

    Args:
        name: of the kind or benchmark.
        formulation: of the options.
        written: names of options that were given, which count even where they equal the default.
    """
    kind, benchmark = resolve_task(name)
    if benchmark:
        values = dict(benchmark.formulation)
        if formulation.tagger == "crf":  # it has one tag per word
            values.pop("label_all_pieces", None)
        values |= formulation.non_defaults()
        values |= {
            field.name: getattr(formulation, field.name) for field in fields(formulation) if field.name in written
        }
        formulation = replace(formulation, **values)
    return TaskSetup(name, kind, open_task(kind, formulation), benchmark)


def certain_task(source: str, formulation: Formulation) -> Guess:
    """Return the task kind that a data source is for.

    Raises:
        SqueezeError: there is no such source, or no kind reads it.
        UsageError: several kinds read it; the message has the likeliest.
    """
    guessed = guess(source, formulation)
    if not guessed.is_certain:
        raise UsageError(
            f"{source} fits several tasks: {guessed.reason}, and {alternatives(guessed.others)} would read it too; "
            f"give --task {guessed.kind}, which is the likeliest, or --task {alternatives(guessed.others)}"
        )
    return guessed


@dataclass(frozen=True)
class SplitOptions:
    """How train and dev are read and divided; see the options of the same names."""

    data: str
    seed: int
    dev_share: float | None = None
    with_dev: bool = False
    train_size: int | None = None


def read_splits(setup: TaskSetup, options: SplitOptions) -> Dataset:
    """Read train and dev, hold out --dev-share of it as dev, and draw --train-size examples.

    A run of a search holds out the same examples as the others, whatever its seed.

    Raises:
        SqueezeError: the data cannot be read.
    """
    share = options.dev_share
    data = setup.task.read(options.data, ("train",) if share and not options.with_dev else ("train", "dev"))
    splits = dict(data.splits)
    if setup.benchmark and not setup.benchmark.folds:
        warn_of_counts(setup.benchmark, data, setup.task.formulation.negative)
    if share:
        pool, name = (splits["train"], "train") if not options.with_dev else (splits["train"] + splits["dev"], "both")
        splits["train"], splits["dev"] = hold_out(pool, share, _split_seed(options))
        note(f"{len(splits['dev']):,} examples of {name} are held out as dev, {len(splits['train']):,} are left")
    if options.train_size:
        total = len(splits["train"])
        splits["train"] = draw_examples(splits["train"], options.train_size, options.seed)
        note(f"trained on {describe_draw(splits['train'], total)}, drawn with seed {options.seed}")
        _warn_of_undrawn_labels(data, splits["train"])
    return replace(data, splits=splits)


def _warn_of_undrawn_labels(data: Dataset, drawn: Sequence[Any]) -> None:
    """Warn of labels, or types of entities, that no drawn example has."""
    if not data.output_type.has_classes:
        return
    found = {label for example in drawn for label in ((example.gold,) if class_of(example) else example.gold)}
    labels = set(data.labels)
    if data.output_type == TOKENS:
        found, labels = ({split_tag(tag)[1] for tag in tags} for tags in (found, labels))
    if missing := sorted(labels - found):
        warn(f"no drawn example has {shortened(missing)}, so the model cannot learn that; draw more examples")


def _split_seed(options: SplitOptions) -> int:
    text = os.environ.get(SPLIT_SEED, "")
    return int(text) if text.isdecimal() else options.seed


def select_metric(setup: TaskSetup, name: str | None, data: Dataset) -> str:
    """Return the dev score that selects the best checkpoint: --metric, else the benchmark's, else the task kind's.

    Args:
        setup: for these data, see `TaskSetup.for_data`.
        name: as given, if at all.
        data: with a dev split.

    Raises:
        UsageError: the task has no score of that name.
    """
    task = setup.task
    gold = [example.gold for example in data.splits["dev"]]
    # A count is an int; a threshold is no score.
    scores = task.score(gold, gold).items()
    known = [name for name, value in scores if not (isinstance(value, int) or name.endswith("_thresh"))]
    metric = name or (setup.benchmark.metric if setup.benchmark else task.METRIC)
    if metric not in known:
        raise UsageError(f"--metric: there is no score {metric!r}.{closest(metric, known)} Known: {', '.join(known)}")
    return metric
