"""Fine-tune an encoder on a labelled task; the checkpoint that was best on dev is kept."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from biosqueeze.benchmarks.suite import task_names
from biosqueeze.checkpoint import Checkpoint, copy_curves, copy_files, open_checkpoint, write_result
from biosqueeze.errors import UsageError
from biosqueeze.finetuning.options import OF_SEARCHES, FineTuningOptions
from biosqueeze.options import (
    Bounds,
    CheckpointArgument,
    Common,
    Excludes,
    Group,
    OnDisk,
    OptionField,
    Outcome,
    Plan,
    Purpose,
    Requires,
    Suggests,
    Syntax,
    between_0_and_1,
    option_fields,
)
from biosqueeze.output import StageRecord, check_output, check_place, derive_out, inputs_of, open_output
from biosqueeze.progress import note, quietly
from biosqueeze.summaries import trained_summary
from biosqueeze.system import processes
from biosqueeze.tasks.formulation import Formulation
from biosqueeze.training.resuming.finished import recorded_hashes, resume_where_saved, take_over

if TYPE_CHECKING:
    from biosqueeze.finetuning.data import SplitOptions, TaskSetup
    from biosqueeze.finetuning.grid import GridPoint
    from biosqueeze.finetuning.search import SearchPlan
    from biosqueeze.tasks import Dataset

PURPOSE = Purpose.TRAIN
EXAMPLES = (
    ("Fine-tune for named entities", "biosqueeze finetune dmis-lab/biobert-v1.1 --data NCBI-disease --epochs 5"),
    (
        "Fine-tune for another task, by its named benchmark",
        "biosqueeze finetune student --data HoC --task blurb/hoc",
    ),
    (
        "Search learning rate and batch size with 3 seeds each",
        "biosqueeze finetune student --data NCBI-disease --grid lr=3e-5,1e-4 --grid batch_size=16,32 --seeds 3",
    ),
    ("Hold out dev from train", "biosqueeze finetune student --data my-data --dev-share 0.1 --patience 3"),
)


@dataclass(frozen=True, kw_only=True)
class Options(Formulation, FineTuningOptions):
    """Fine-tune an encoder on a labelled task.

    The checkpoint with the best score on dev is kept. With --grid, --seeds or --folds this is a search: every run is a
    process of its own, the combination with the best mean on dev is selected, and its best run is written, with a table
    of all runs in results/search.json. Repeat the command to continue an interrupted search.
    """

    checkpoint: CheckpointArgument
    data: Annotated[
        str,
        "Directory with train, dev and test files, hub:NAME, or demo:ner for generated sentences.",
        OnDisk(),
        Common(),
        Group.DATA,
    ]
    task: Annotated[
        str | None,
        "Task kind, such as ner, or a named benchmark, such as blurb/ncbi-disease. Default: the kind that the data "
        "are for, if that is certain.",
        Suggests(task_names),
        Common(),
        Group.TASK,
    ] = None
    dev_share: Annotated[
        float | None,
        "Share of train to hold out as dev, in place of the data's own dev split.",
        between_0_and_1(),
        Common(),
        Group.DATA,
    ] = None
    with_dev: Annotated[
        bool,
        "Train on the dev split too, as BioBERT's train_dev files do; --dev-share is then taken from both.",
        Requires("dev_share", why="dev examples to select the best checkpoint by, such as --dev-share 0.05"),
        Group.DATA,
    ] = False
    metric: Annotated[
        str | None, "Score on dev that selects the best checkpoint. Default: that of the task.", Group.DEV
    ] = None
    epochs: Annotated[float, "Passes over the training data. Unused with --steps."] = 5.0
    lr: Annotated[
        float,
        "Peak learning rate. The papers take 5e-5 for base models; small models train better with 1e-4 to 3e-4.",
    ] = 5e-5
    max_length: Annotated[
        int,
        "Tokens in a sequence; longer sentences (ner, pico) and passages (qa) are split into overlapping windows, "
        "other inputs are cut.",
        Common(),
    ] = 256
    resume: Annotated[
        bool | Literal["auto"],
        "Continue an interrupted run from its last saved training state. With auto, start where none is saved: for "
        "jobs that may be ended at any time and are then repeated.",
        Excludes("grid", "seeds", "folds", why="repeat the command of a search to continue it"),
    ] = False
    grid: Annotated[
        tuple[str, ...],
        "Values of an option, repeatable: train every combination, keep the one that is best on dev.",
        Syntax("OPTION=A,B,..."),
        Group.SEARCH,
    ] = ()
    seeds: Annotated[
        int,
        "Runs of each combination, with the seeds --seed, --seed + 1, ...",
        Bounds(least=1),
        Common(),
        Group.SEARCH,
    ] = 1
    folds: Annotated[
        bool, "--data holds numbered folds, each with its own splits: train and test on each.", Group.SEARCH
    ] = False
    jobs: Annotated[
        int | None,
        "Runs at the same time. Default: one per GPU, or one on a CPU.",
        Bounds(least=1),
        Requires("grid", "seeds", "folds"),
        Group.SEARCH,
    ] = None


@dataclass(frozen=True)
class _FineTuningRequest:
    """The options resolved against the checkpoint and the data."""

    options: Options  # with a task
    source: Checkpoint
    setup: "TaskSetup"
    out: Path
    reason: str  # why this task, if it was not given

    def read(self, source: str) -> "tuple[Dataset, str]":
        """Read train and dev of a directory; return them with the metric that selects the best checkpoint.

        Raises:
            SqueezeError: the data do not open.
            UsageError: there is no such metric, or the data or the model do not fit the options.
        """
        from biosqueeze.finetuning.data import read_splits, select_metric
        from biosqueeze.finetuning.point_checks import check_points_on_data, read_at_points
        from biosqueeze.models.loading.load import load_config

        splits, points = _split_options(self.options, source), _points(self.options)
        data = read_splits(self.setup, splits)
        if self.reason:
            note(self.reason)
        metric = select_metric(self.setup.for_data(data), self.options.metric, data)
        config, examples = load_config(self.source), len(data.splits["train"])
        check_points_on_data(self.options, points, config, data.output_type, examples)
        read_at_points(self.options, points, self.setup, splits)
        return data, metric

    def checked(self) -> "Dataset":
        """Return the data, of folds the first, and check what a training would refuse: see `read`.

        Raises:
            SqueezeError: the data do not open, or do not fit the options.
        """
        if not self.options.folds:
            return self.read(self.options.data)[0]
        first, *others = _folds(self.options)
        note(f"{self.options.data}: {len(others) + 1} folds")
        data = self._checked_fold(first)
        splits = ("train", "test") if self.options.dev_share else ("train", "dev", "test")
        with quietly():
            self.setup.task.read(first, splits)
            for fold in others:
                self.setup.task.read(fold, splits)
                self._checked_fold(fold)
        return data

    def _checked_fold(self, source: str) -> "Dataset":
        try:
            return self.read(source)[0]
        except UsageError as error:
            raise UsageError(f"{source}: {error}") from error


def _resolve(options: Options, *, weights: bool = True) -> _FineTuningRequest:
    """Open the checkpoint, decide the task and the output, and check what needs no training.

    Raises:
        SqueezeError: the checkpoint or the data do not open, or the output cannot be written.
        UsageError: the task is not certain, or an option, or a value of --grid, does not fit it.
    """
    from biosqueeze.finetuning.data import certain_task, open_task_setup
    from biosqueeze.finetuning.point_checks import check_points
    from biosqueeze.models.device import select_device
    from biosqueeze.training.option_checks import check_training_options

    if processes.sharding():
        raise UsageError("--use_fsdp shards the teacher of distill, and finetune has none; launch without it")
    source = open_checkpoint(options.checkpoint, weights=weights)
    reason, form = "", Formulation.from_options(options)
    if options.task is None:
        data = _folds(options)[0] if options.folds else options.data
        guessed = certain_task(data, form)
        options = replace(options, task=guessed.kind)
        reason = f"task {guessed.kind}, because {guessed.reason}; --task names another"
    setup = open_task_setup(str(options.task), form, options.written)
    check_training_options(options, evaluated=True)
    if _is_search(options):
        last_seed = options.seed + options.seeds - 1
        shared = {"checkpoint": options.checkpoint, "seed": last_seed, **_shared_by_runs(options)}
        check_points(Options, shared, _points(options))
        _check_axes(options)
    select_device(options.device)
    out = Path(options.out) if options.out else derive_out(source, str(options.task).replace("/", "-"))
    check_place(out, inputs_of(options, source))
    return _FineTuningRequest(options, source, setup, out, reason)


def _check_axes(options: Options) -> None:
    """Check that no option has both one value and those of a grid.

    Raises:
        UsageError: --grid has values for an option that is given.
    """
    for name in dict.fromkeys(name for point in _points(options) for name in point):
        if options.is_given(name):
            flag = name.replace("_", "-")
            raise UsageError(f"--{flag} has no effect, because --grid sets {flag} too; leave out one of the two")


def _split_options(options: Options, source: str) -> "SplitOptions":
    from biosqueeze.finetuning.data import SplitOptions

    return SplitOptions(
        data=source,
        seed=options.seed,
        dev_share=options.dev_share,
        with_dev=options.with_dev,
        train_size=options.train_size,
    )


def plan(options: Options) -> Plan:
    """Describe what would be trained on how many examples; reads the data and the config."""
    from biosqueeze.data.lengths import fitting_length
    from biosqueeze.finetuning.runs import check_existing
    from biosqueeze.models.count import parameters_of
    from biosqueeze.models.custom_heads.load import count_headed_parameters, custom_head_of
    from biosqueeze.models.families import longest_input
    from biosqueeze.models.loading.load import load_config
    from biosqueeze.models.tokenizers.text_tokenizer import check_tokenizer_files

    request = _resolve(options, weights=False)
    options, source, setup = request.options, request.source, request.setup
    out = check_output(request.out, inputs_of(options, source), force=options.force, resume=options.resume is True)
    check_tokenizer_files(source)
    fitting_length(options.max_length, longest_input(load_config(source)))
    data = request.checked()
    if _is_search(options):
        search_runs = list(_search_plan(options, out).runs())
        if not options.force:
            check_existing(search_runs)
        runs = [run.name for run in search_runs]
        return Plan(out=out, steps=(f"fine-tune {source.name} for {options.task} {len(runs)} times", *runs))
    counts = ", ".join(f"{len(items):,} in {name}" for name, items in data.splits.items())
    custom_head = custom_head_of(setup.task.formulation)
    count = len(data.labels)
    labels = f" with {count} label{'s' * (count > 1)} ({', '.join(data.labels)})" if data.labels else ""
    return Plan(
        out=out,
        steps=(
            f"fine-tune {source.name} for {options.task}{labels}",
            f"train on {counts}: {options.length}, batch {options.batch_size} x {options.accumulate}, "
            f"lr {options.lr:g}",
        ),
        parameters_before=parameters_of(source),
        parameters_after=count_headed_parameters(source, custom_head, len(data.labels))
        if custom_head
        else parameters_of(source, head=setup.task.HEAD, labels=len(data.labels) or None),
    )


def run(options: Options) -> Outcome:
    """Train, keep the best checkpoint on dev, and write it."""
    from biosqueeze.finetuning.fine_tune import FineTuningInputs, fine_tune
    from biosqueeze.finetuning.finetuned_checkpoint import trained_on_dev

    request = _resolve(options)
    options, source, out = request.options, request.source, request.out
    if _is_search(options):
        request.checked()
        return _search(options, source, out)
    if done := take_over(out, "finetune", options):
        return done
    options, hashes = resume_where_saved(out, options), recorded_hashes(options)
    with open_output(out, inputs_of(options, source), force=options.force, resume=bool(options.resume)) as output:
        data, metric = request.read(options.data)
        setup = request.setup.for_data(data)
        is_changed = options.reinit_layers or options.dev_share or options.with_dev
        may_keep_start = not (is_changed or trained_on_dev(source))
        inputs = FineTuningInputs(source, setup.task, data, metric, output.path, may_keep_start)
        trained, length = fine_tune(options, inputs)
        metrics = trained.as_metrics()
        task = setup.record(data, metric, options.data, length)
        record = StageRecord(
            stage="finetune",
            parent=source,
            options=options,
            task=task,
            metrics=metrics,
            inputs=hashes,
        )
        written = output.finish(record)
    summary = trained_summary(written, metrics, metric) if processes.is_main() else None
    return Outcome(written.path, {"metrics": metrics}, summary=summary)


def _is_search(options: Options) -> bool:
    is_search = bool(options.grid or options.folds or options.seeds != 1)
    if is_search and processes.count() > 1:
        raise UsageError("a search starts its own processes, one per GPU; start it without the launcher")
    return is_search


def _search(options: Options, source: Checkpoint, out: Path) -> Outcome:
    """Do all runs, then write the checkpoint of the selected one."""
    from biosqueeze.finetuning.search import search

    hashes = recorded_hashes(options)
    with open_output(out, inputs_of(options, source), force=options.force) as output:
        search_plan = _search_plan(options, out)
        search_plan.prepare_directory(source, force=options.force)
        result = search(search_plan, options.jobs)
        best = open_checkpoint(str(result.best.directory))
        copy_files(best, output.path)
        copy_curves(best, output.path)
        metrics = {**(best.manifest.metrics if best.manifest else {}), "chosen": result.best.name}
        record = StageRecord(
            stage="finetune",
            parent=source,
            options=options,
            task=best.task,
            metrics=metrics,
            inputs=hashes,
        )
        write_result(Checkpoint(output.path, str(output.path)), "search", result.as_dict())
        written = output.finish(record)
    search_plan.remove_directory()
    summary = trained_summary(written, metrics, result.metric)
    return Outcome(written.path, {"metrics": metrics, "search": result.as_dict()}, summary=summary)


def _search_plan(options: Options, out: Path) -> "SearchPlan":
    from biosqueeze.finetuning.search import SearchPlan

    shared, points = _shared_by_runs(options), _points(options)
    directories = _folds(options) if options.folds else []
    seeds = range(options.seed, options.seed + options.seeds)
    return SearchPlan(options.checkpoint, out.with_name(out.name + ".runs"), shared, points, seeds, directories)


def _points(options: Options) -> "list[GridPoint]":
    from biosqueeze.finetuning.grid import parse_grid

    return parse_grid(options.grid, _fields_of_runs())


def _shared_by_runs(options: Options) -> dict[str, Any]:
    """Return the options of all runs of a search."""
    # A value that is given matters even where it equals the default: --epochs ends a training with a plateau, and
    # `label-all-pieces = false` replaces that of a benchmark.
    return {
        name: value
        for name, field in _fields_of_runs().items()
        if (value := getattr(options, name)) not in ((), None) and (value != field.default or name in options.written)
    }


def _fields_of_runs() -> dict[str, OptionField]:
    return {field.name: field for field in option_fields(Options) if field.name not in OF_SEARCHES}


def _folds(options: Options) -> list[str]:
    from biosqueeze.finetuning.folds import complete_folds

    return [str(path) for path in complete_folds(Path(options.data).expanduser())]
