"""Fine-tune an encoder on a labelled task; the checkpoint that was best on dev is kept."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from biosqueeze import registry
from biosqueeze.checkpoint import Checkpoint, Record, derive_out, drafting, open_checkpoint
from biosqueeze.options import Argument, Choices, Outcome, Plan
from biosqueeze.progress import note
from biosqueeze.training.options import Training, fitting_length

if TYPE_CHECKING:
    from biosqueeze.tasks import Dataset
    from biosqueeze.training.loop import Summary

EXAMPLE = "biosqueeze finetune dmis-lab/biobert-v1.1 --data NCBI-disease --epochs 5"


@dataclass(frozen=True, kw_only=True)
class Options(Training):
    """Fine-tune an encoder on a labelled task, keeping what is best on dev."""

    checkpoint: Annotated[str, "Directory, Hub id, demo:minilm, or - for the path on standard input.", Argument()]
    data: Annotated[str, "Directory with train, dev and test files, or demo:ner for generated sentences."]
    task: Annotated[str, "Kind of task.", Choices("tasks")] = "ner"
    epochs: Annotated[float, "Passes over the training data; --steps takes precedence."] = 5.0
    lr: Annotated[
        float, "Peak learning rate; 5e-5 is the papers' for base models, small ones learn better at 1e-4 to 3e-4."
    ] = 5e-5
    max_length: Annotated[int, "Tokens in a sequence; longer sentences become overlapping windows."] = 256


def _out(options: Options, source: Checkpoint) -> Path:
    return Path(options.out) if options.out else derive_out(source, options.task)


def plan(options: Options) -> Plan:
    """What would be trained on how much; reads the data and the config."""
    from biosqueeze.models.count import parameters_of

    source = open_checkpoint(options.checkpoint, weights=False)
    task = registry.load("tasks", options.task)
    data = task.read(options.data, ("train", "dev"))
    counts = ", ".join(f"{len(items):,} in {name}" for name, items in data.splits.items())
    length = f"{options.steps} steps" if options.steps else f"{options.epochs:g} epochs"
    return Plan(
        out=_out(options, source),
        steps=(
            f"fine-tune {source.name} for {options.task} with {len(data.labels)} labels ({', '.join(data.labels)})",
            f"train on {counts}: {length}, batch {options.batch_size} x {options.accumulate}, lr {options.lr:g}",
        ),
        parameters_before=parameters_of(source),
        parameters_after=parameters_of(source, head=task.HEAD, labels=len(data.labels)),
    )


def run(options: Options) -> Outcome:
    """Train, keep the best on dev, write the checkpoint."""
    source = open_checkpoint(options.checkpoint)
    task: Any = registry.load("tasks", options.task)
    with drafting(_out(options, source), (source,), force=options.force, resume=options.resume) as draft:
        data = task.read(options.data, ("train", "dev"))
        summary = _train(options, source, task, data, draft.path)
        made = draft.finish(_record(options, source, data, summary))
    note(f"best on dev at step {summary.best_step}: {task.METRIC} {summary.best[task.METRIC]:.4f}")
    return Outcome(made.path, {"metrics": summary.as_metrics()})


def _train(options: Options, source: Checkpoint, task: Any, data: "Dataset", directory: Path) -> "Summary":
    """Train and save model and tokenizer to the directory."""
    from biosqueeze.models.load import load_model, load_tokenizer
    from biosqueeze.training.judge import DevSet
    from biosqueeze.training.learners import FineTuner
    from biosqueeze.training.loop import Job, precision_of, train
    from biosqueeze.training.sources import Mixture

    tokenizer = load_tokenizer(source)
    model = load_model(source, task.HEAD, labels=data.labels, seed=options.seed).model
    length = fitting_length(options.max_length, tokenizer.model_max_length)
    windows = {name: task.encode(examples, data.labels, tokenizer, length) for name, examples in data.splits.items()}
    dev = DevSet(task, data.splits["dev"], windows["dev"], data.labels, tokenizer.pad_token_id)
    summary = train(
        Job(
            what="fine-tune",
            learner=FineTuner(model),
            source=Mixture([window.features for window in windows["train"]], None, 0.0, tokenizer.pad_token_id),
            options=options,
            directory=directory,
            judge=dev.judge(precision_of(options)),
            judge_by=task.METRIC,
        )
    )
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return summary


def _record(options: Options, source: Checkpoint, data: "Dataset", summary: "Summary") -> Record:
    described = {"name": options.task, "data": options.data, "labels": list(data.labels), "scheme": data.scheme}
    return Record(stage="finetune", parent=source, options=options, task=described, metrics=summary.as_metrics())
