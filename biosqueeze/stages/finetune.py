"""Fine-tune an encoder on a labelled task; the checkpoint that was best on dev is kept."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from biosqueeze import processes
from biosqueeze.checkpoint import Checkpoint, copy_curves, copy_files, open_checkpoint, write_result
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.files import read_json, write_json
from biosqueeze.finetuning.options import FineTuningOptions
from biosqueeze.manifest import TaskRecord
from biosqueeze.options import Argument, Outcome, Plan, option_fields
from biosqueeze.output import StageRecord, derive_out, open_output
from biosqueeze.progress import note
from biosqueeze.registry import closest
from biosqueeze.tasks.formulation import Formulation
from biosqueeze.training.options import fitting_length

if TYPE_CHECKING:
    from biosqueeze import search
    from biosqueeze.tasks import Dataset, Task
    from biosqueeze.training.loop import TrainingSummary

_OF_SEARCH = ("checkpoint", "sources", "out", "force", "resume", "seed", "grid", "seeds", "folds", "jobs")

EXAMPLE = "biosqueeze finetune dmis-lab/biobert-v1.1 --data NCBI-disease --epochs 5"


@dataclass(frozen=True, kw_only=True)
class Options(Formulation, FineTuningOptions):
    """Fine-tune an encoder on a labelled task, keeping what is best on dev.

    With --grid, --seeds or --folds it is a search: every run is a process of its own, the combination with the best
    mean on dev is chosen, and its best run is what is written, with a table of all runs in results/search.json.
    An interrupted search goes on where it was when the command is repeated.
    """

    checkpoint: Annotated[str, "Directory, Hub id, demo:minilm, or - for the path on standard input.", Argument()]
    data: Annotated[str, "Directory with train, dev and test files, or demo:ner for generated sentences."]
    task: Annotated[str, "Kind of task, such as ner, or a named benchmark, such as blurb/ncbi-disease."] = "ner"
    dev_share: Annotated[
        float | None, "Share of train to hold out as dev, in place of a dev split that the data have or lack."
    ] = None
    with_dev: Annotated[
        bool, "Train on the data's own dev split too, as BioBERT's train_dev files do; --dev-share is then of both."
    ] = False
    metric: Annotated[str | None, "Dev score by which the best is kept; the task's own if left out."] = None
    epochs: Annotated[float, "Passes over the training data; --steps takes precedence."] = 5.0
    lr: Annotated[
        float, "Peak learning rate; 5e-5 is the papers' for base models, small ones learn better at 1e-4 to 3e-4."
    ] = 5e-5
    max_length: Annotated[
        int,
        "Tokens in a sequence; longer sentences (ner, pico) and passages (qa) become overlapping windows, other inputs "
        "are cut, and how many is said.",
    ] = 256
    grid: Annotated[tuple[str, ...], "OPTION=A,B,C, repeatable: try every combination, keep the best on dev."] = ()
    seeds: Annotated[int, "Runs of each combination, with the seeds from --seed on."] = 1
    folds: Annotated[bool, "--data holds numbered folds, each with its own splits: train and test on every one."] = (
        False
    )
    jobs: Annotated[int | None, "Runs side by side in a search; one per GPU, or one on a CPU, if left out."] = None


def _out(options: Options, source: Checkpoint) -> Path:
    return Path(options.out) if options.out else derive_out(source, options.task.replace("/", "-"))


def _task(options: Options) -> "tuple[str, Task]":
    """The kind's name, and the kind."""
    from biosqueeze.benchmarks.suite import resolve
    from biosqueeze.tasks import open_task

    kind, benchmark = resolve(options.task)
    form = Formulation.of(options)
    return kind, open_task(kind, replace(form, **{**benchmark.form, **form.chosen()}) if benchmark else form)


def plan(options: Options) -> Plan:
    """What would be trained on how much; reads the data and the config."""
    from biosqueeze.models.count import parameters_of
    from biosqueeze.models.custom_heads import count_headed, wanted_head

    source = open_checkpoint(options.checkpoint, weights=False)
    _, task = _task(options)
    if _is_search(options):
        return _plan_of_search(options, source)
    data = _read(options, task)
    counts = ", ".join(f"{len(items):,} in {name}" for name, items in data.splits.items())
    length = f"{options.steps} steps" if options.steps else f"{options.epochs:g} epochs"
    own = wanted_head(task.form)
    labels = f" with {len(data.labels)} labels ({', '.join(data.labels)})" if data.labels else ""
    return Plan(
        out=_out(options, source),
        steps=(
            f"fine-tune {source.name} for {options.task}{labels}",
            f"train on {counts}: {length}, batch {options.batch_size} x {options.accumulate}, lr {options.lr:g}",
        ),
        parameters_before=parameters_of(source),
        parameters_after=count_headed(source, own, len(data.labels))
        if own
        else parameters_of(source, head=task.HEAD, labels=len(data.labels) or None),
    )


def _plan_of_search(options: Options, source: Checkpoint) -> Plan:
    out = _out(options, source)
    runs = [run.name for run in _search_plan(options, out.with_name(out.name + ".runs")).runs()]
    return Plan(out=out, steps=(f"fine-tune {source.name} for {options.task} {len(runs)} times", *runs))


def run(options: Options) -> Outcome:
    """Train, keep the best on dev, write the checkpoint."""
    if processes.sharding():
        raise UsageError("--use_fsdp shards the teacher of distill, and finetune has none; launch without it")
    source = open_checkpoint(options.checkpoint)
    kind, task = _task(options)
    if _is_search(options):
        return _search(options, source)
    with open_output(_out(options, source), (source,), force=options.force, resume=options.resume) as output:
        data = _read(options, task)
        task = task.with_scheme(data.scheme)
        metric = _metric(options, task, data)
        summary = _train(options, source, _Work(task, data, metric, output.path))
        made = output.finish(_record(options, source, _described(options, kind, task.form, data, metric), summary))
    note(f"best on dev at step {summary.best_step}: {metric} {summary.best[metric]:.4f}")
    return Outcome(made.path, {"metrics": summary.as_metrics()})


def _is_search(options: Options) -> bool:
    asked = bool(options.grid or options.folds or options.seeds != 1)
    if options.seeds < 1:
        raise UsageError(f"--seeds must be at least 1, not {options.seeds}")
    if options.jobs is not None and not asked:
        raise UsageError("--jobs is for a search; give --grid, --seeds or --folds too, or leave it out")
    if asked and processes.count() > 1:
        raise UsageError("a search starts its runs by itself, one on each GPU; call it without the launcher")
    if options.resume and asked:
        raise UsageError("a search goes on by itself when the command is repeated; leave --resume out")
    return asked


def _search(options: Options, source: Checkpoint) -> Outcome:
    """Do all runs, then write the chosen one's checkpoint."""
    import shutil

    from biosqueeze.search import search

    out = _out(options, source)
    work = out.with_name(out.name + ".runs")
    with open_output(out, (source,), force=options.force) as output:
        plan = _search_plan(options, work)
        # What --force replaces is the output: of an interrupted search for it, the runs that are done are kept.
        begun = work / "search.json"
        identity = {"plan": repr(plan), "weights": source.weights_sha256()}
        if options.force and (not begun.is_file() or read_json(begun) != identity):
            shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True, exist_ok=True)
        write_json(begun, identity)
        found = search(plan, options.jobs)
        chosen = open_checkpoint(str(found.best.directory))
        copy_files(chosen, output.path)
        copy_curves(chosen, output.path)
        metrics = {**(chosen.manifest.metrics if chosen.manifest else {}), "chosen": found.best.name}
        made = output.finish(
            StageRecord(stage="finetune", parent=source, options=options, task=chosen.task, metrics=metrics)
        )
    write_result(made, "search", found.as_dict())
    shutil.rmtree(work)
    return Outcome(made.path, {"metrics": metrics, "search": found.as_dict()})


def _search_plan(options: Options, work: Path) -> "search.SearchPlan":
    from biosqueeze import search
    from biosqueeze.data.splits import folds

    fields = {f.name: f for f in option_fields(Options) if f.name not in _OF_SEARCH}
    points = search.parse_grid(options.grid, fields)
    places = [str(path) for path in folds(Path(options.data).expanduser())] if options.folds else []
    if options.folds and not places:
        raise SqueezeError(f"{options.data} holds no numbered folds (1/, 2/, ..., each with train and test files)")
    shared = {n: getattr(options, n) for n, f in fields.items() if getattr(options, n) not in (f.default, ())}
    seeds = range(options.seed, options.seed + options.seeds)
    return search.SearchPlan(options.checkpoint, work, shared, points, seeds, places)


def _read(options: Options, task: "Task") -> "Dataset":
    """Train and dev as they are trained on."""
    from biosqueeze.data.sampling import draw_examples, hold_out

    share = options.dev_share
    if share is not None and not 0 < share < 1:
        raise UsageError(f"--dev-share must be between 0 and 1, not {share:g}")
    if options.with_dev and not share:
        raise UsageError("--with-dev leaves nothing to choose the best by; add --dev-share 0.05")
    data = task.read(options.data, ("train",) if share and not options.with_dev else ("train", "dev"))
    splits = dict(data.splits)
    _check_counts(options, data)
    if share:
        pool, of = (splits["train"], "train") if not options.with_dev else (splits["train"] + splits["dev"], "both")
        splits["train"], splits["dev"] = hold_out(pool, share, options.seed)
        note(f"{len(splits['dev']):,} examples of {of} are held out as dev, {len(splits['train']):,} are left")
    if options.train_size:
        splits["train"] = draw_examples(splits["train"], options.train_size, options.seed)
        note(f"trained on {len(splits['train']):,} examples only, drawn with seed {options.seed}")
    return replace(data, splits=splits)


def _check_counts(options: Options, data: "Dataset") -> None:
    """Warn where a named benchmark's data are not what the paper counts."""
    from biosqueeze.benchmarks.suite import resolve, warn_of_counts

    _, benchmark = resolve(options.task)
    if benchmark and not benchmark.folds:
        warn_of_counts(benchmark, data, options.negative)


def _metric(options: Options, task: "Task", data: "Dataset") -> str:
    """By what the best is kept: --metric, or the named benchmark's, or the kind's own."""
    from biosqueeze.benchmarks.suite import resolve

    _, benchmark = resolve(options.task)
    gold = [example.gold for example in data.splits["dev"]]
    known = [name for name, value in task.score(gold, gold).items() if not isinstance(value, int)]
    asked = options.metric or (benchmark.metric if benchmark else task.METRIC)
    if asked not in known:
        raise UsageError(f"--metric: there is no score {asked!r}.{closest(asked, known)} Known: {', '.join(known)}")
    return asked


@dataclass(frozen=True)
class _Work:
    """What is trained on, by what it is judged, and where it is written."""

    task: "Task"
    data: "Dataset"
    metric: str
    directory: Path


def _train(options: Options, source: Checkpoint, work: _Work) -> "TrainingSummary":
    """Train and save model and tokenizer to the directory."""
    from biosqueeze.finetuning.build import fine_tuner
    from biosqueeze.finetuning.dev_evaluation import DevSet
    from biosqueeze.models.custom_heads import loss_of
    from biosqueeze.models.load import load_tokenizer
    from biosqueeze.training.hashes import checkpoint_hash, source_hash
    from biosqueeze.training.loop import TrainingJob, precision_of, train
    from biosqueeze.training.sources import Mixture

    task, data = work.task, work.data
    tokenizer = load_tokenizer(source)
    model = _model(options, source, task, data)
    length = fitting_length(options.max_length, tokenizer.model_max_length)
    windows = {name: task.encode(examples, data.labels, tokenizer, length) for name, examples in data.splits.items()}
    dev = DevSet(task, data.splits["dev"], windows["dev"], data.labels, tokenizer.pad_token_id)
    features = [window.features for window in windows["train"]]
    learner = fine_tuner(options, model, data.output_type, features, loss_of(model))
    trained_on = Mixture(features, None, 0.0, tokenizer.pad_token_id)
    identity = {
        "checkpoint": checkpoint_hash(source),
        "data": source_hash(trained_on),
        "labels": list(data.labels),
        "metric": work.metric,
        **task.form.chosen(),
    }
    summary = train(
        TrainingJob(
            title="fine-tune",
            learner=learner,
            source=trained_on,
            identity=identity,
            options=options,
            directory=work.directory,
            evaluate=dev.evaluator(precision_of(options)),
            metric=work.metric,
        )
    )
    if processes.is_main():
        learner.model.save_pretrained(work.directory)
        tokenizer.save_pretrained(work.directory)
    return summary


def _model(options: Options, source: Checkpoint, task: "Task", data: "Dataset") -> Any:
    """The checkpoint with a head for the task; a head for the same labels is kept, as is one for spans."""
    from biosqueeze.models.custom_heads import new_headed, say_left_behind, stretch_to, wanted_head
    from biosqueeze.models.load import load_model

    own = wanted_head(task.form)
    if own:
        model = new_headed(source, own, data.labels, options.seed)
        stretch_to(model, [example.gold for example in data.splits["train"]])
        return model
    say_left_behind(source)
    problem_type = data.output_type.problem_type
    changes: dict[str, Any] = {"problem_type": problem_type} if problem_type else {}
    return load_model(source, task.HEAD, labels=data.labels or None, seed=options.seed, **changes).model


def _described(options: Options, kind: str, form: Formulation, data: "Dataset", metric: str) -> TaskRecord:
    """Describe the task for the manifest."""
    return TaskRecord(
        name=kind,
        data=options.data,
        labels=tuple(data.labels),
        scheme=data.scheme,
        metric=metric,
        max_length=options.max_length,
        formulation=form.chosen(),
        benchmark=options.task if options.task != kind else None,
    )


def _record(options: Options, source: Checkpoint, task: TaskRecord, summary: "TrainingSummary") -> StageRecord:
    return StageRecord(stage="finetune", parent=source, options=options, task=task, metrics=summary.as_metrics())
