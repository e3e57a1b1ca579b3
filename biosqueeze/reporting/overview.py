"""The first sections of the page: key figures, parameters, shape, files, history and training runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

from markupsafe import Markup

from biosqueeze import __version__, model_facts
from biosqueeze.backends.deployed import deployed_megabytes
from biosqueeze.files import megabytes
from biosqueeze.manifest import HistoryEntry, now
from biosqueeze.progress import duration
from biosqueeze.reporting.formatting import format_number
from biosqueeze.reporting.measurements import data_text
from biosqueeze.reporting.plots import COLOURS, training_plot
from biosqueeze.reporting.report_data import ReportData, TrainingRun
from biosqueeze.summaries import score_name

_FILES_SHOWN = 6
_SMALL_FILE = 50_000  # bytes
_SHAPE_NAMES = {
    "layers": "layers",
    "hidden": "hidden size",
    "heads": "attention heads",
    "ffn": "feed-forward size",
    "vocabulary": "vocabulary",
    "positions": "positions",
}
_OPTIONS_HIDDEN = ("checkpoint", "out", "force", "resume")
_PACKAGES_SHOWN = ("torch", "transformers", "onnxruntime")


@dataclass(frozen=True)
class PartShare:
    """The parameters of one part of the model, for the bar and its table."""

    name: str
    count: str
    share: str
    fraction: str
    colour: str


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The checkpoint itself, as text."""

    subtitle: str
    key_figures: tuple[tuple[str, str], ...]
    parts: tuple[PartShare, ...]
    total: str
    shape: tuple[tuple[str, str], ...]
    labels: str
    files: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class StageSection:
    """One entry of the history, as text."""

    name: str
    created: str
    version: str
    parents: tuple[tuple[str, str], ...]
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class TrainingSection:
    """One training run: its facts and its curves."""

    title: str
    facts: str
    label: str
    plot: Markup


def describe_checkpoint(data: ReportData) -> Overview:
    """Return the facts of the checkpoint."""
    shape = model_facts.shape_of(data.checkpoint.config).known()
    return Overview(
        subtitle=_subtitle(data),
        key_figures=tuple(_key_figures(data)),
        parts=_part_shares(data.parameters),
        total=f"{data.parameters.get('total', 0):,}",
        shape=tuple((_SHAPE_NAMES[name], format_number(size)) for name, size in shape.items()),
        labels=", ".join(data.checkpoint.labels),
        files=_file_rows(data.files),
    )


def _subtitle(data: ReportData) -> str:
    config, task = data.checkpoint.config, data.checkpoint.task
    architecture = (config.get("architectures") or [None])[0] or f"{config.get('model_type', 'unknown')} encoder"
    words = [str(architecture), f"head: {model_facts.head_of(config)}"]
    if task:
        words.append(f"{task.name} on {PurePath(task.data or 'unknown').name}")
    return " · ".join(words)


def _key_figures(data: ReportData) -> list[tuple[str, str]]:
    shape = model_facts.shape_of(data.checkpoint.config)
    figures = [("parameters", _millions(data.parameters.get("total")))]
    if not data.checkpoint.is_slim:
        size = megabytes(data.checkpoint.weights)
        figures.append(("weights", f"{size:,.1f} MB"))
    deployed = deployed_megabytes(data.checkpoint)
    if deployed is not None:
        figures.append(("deployed", f"{deployed:,.1f} MB"))
    if shape.layers and shape.hidden:
        figures.append(("layers × hidden size", f"{shape.layers} × {shape.hidden}"))  # noqa: RUF001
    metrics = data.checkpoint.manifest.metrics if data.checkpoint.manifest else {}
    metric = (data.checkpoint.task and data.checkpoint.task.metric) or "f1"
    if isinstance(metrics.get(metric), float):
        name = f"{score_name(metric)} on {metrics.get('split', 'dev')}, in training"
        figures.append((name, f"{metrics[metric]:.4f}"))
    own = [evaluation for evaluation in data.evaluations if evaluation.own and evaluation.score is not None]
    if own:
        best = max(own, key=lambda evaluation: evaluation.score or 0.0)
        figures.append((f"{score_name(best.metric)} on {data_text(best)}, {best.backend}", f"{best.score:.4f}"))
    return figures


def _millions(count: int | None) -> str:
    return f"{count / 1e6:,.1f} M" if count is not None and count >= 1e5 else format_number(count)


def _part_shares(parameters: Mapping[str, int]) -> tuple[PartShare, ...]:
    total = parameters.get("total", 0)
    parts = [(name, count) for name, count in parameters.items() if name != "total" and count > 0]
    if total <= 0:
        return ()
    return tuple(
        PartShare(
            name=name,
            count=f"{count:,}",
            share="< 0.1 %" if count / total < 0.001 else f"{100 * count / total:.1f} %",
            fraction=f"{count / total:.6f}",
            colour=COLOURS[index % len(COLOURS)],
        )
        for index, (name, count) in enumerate(parts)
    )


def _file_rows(files: Mapping[str, int]) -> tuple[tuple[str, str], ...]:
    """Return the largest files by name, and all others in one row."""
    named = {name: size for name, size in list(files.items())[:_FILES_SHOWN] if size >= _SMALL_FILE}
    rows = [(name, f"{size / 1e6:,.2f} MB") for name, size in named.items()]
    if others := len(files) - len(named):
        rest = sum(files.values()) - sum(named.values())
        rows.append((f"{others} smaller ones", f"{rest / 1e6:,.2f} MB"))
    return tuple(rows)


def describe_stage(entry: HistoryEntry) -> StageSection:
    """Return one stage: name, time, the checkpoints it read, and the options that were not left at their defaults."""
    parents = {role: parent.name for role, parent in entry.parents.items()}
    given = {name: value for name, value in entry.given_options().items() if name not in _OPTIONS_HIDDEN}
    # A parent has its line already; --teacher is a list of them.
    shown = {name: value for name, value in given.items() if not set(_items(value)) <= set(parents.values())}
    return StageSection(
        name=entry.stage,
        created=entry.created[:16].replace("T", " "),
        version=entry.version,
        parents=tuple(("from" if role == "parent" else role, name) for role, name in parents.items()),
        options=tuple((name.replace("_", "-"), _option_text(value)) for name, value in shown.items()),
    )


def _option_text(value: object) -> str:
    return ", ".join(_items(value))


def _items(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def describe_training(training: TrainingRun) -> TrainingSection:
    """Return one training run with its curves drawn."""
    stage = training.manifest.stage if training.manifest else "training"
    return TrainingSection(
        title=f"{training.name} · {stage}",
        facts=_training_facts(training),
        label=f"Training curves of {training.name}",
        plot=training_plot(training.curves, _metric_of(training), _kept_step(training)),
    )


def _metric_of(training: TrainingRun) -> str:
    task = training.manifest.task if training.manifest else None
    return (task and task.metric) or "f1"


def _kept_step(training: TrainingRun) -> int | None:
    """Return the step whose weights were kept; None where no dev score selected them, or they are those of no step."""
    metrics = training.manifest.metrics if training.manifest else {}
    step = None if metrics.get("mean_with_start") else metrics.get("best_step")
    return step if isinstance(step, int) else None


def _training_facts(training: TrainingRun) -> str:
    metrics = training.manifest.metrics if training.manifest else {}
    words = [f"{format_number(metrics.get('steps', len(training.curves.steps)))} steps"]
    if metrics.get("tokens"):
        words.append(f"{_millions(metrics['tokens'])} tokens")
    if metrics.get("seconds"):
        words.append(duration(metrics["seconds"]))
    if metrics.get("compute"):
        words.append(f"{metrics['compute']} on {metrics.get('device')}")
    metric = _metric_of(training)
    if metrics.get("best_step") is not None and isinstance(metrics.get(metric), float):
        score = f"{score_name(metric)} {metrics[metric]:.4f}"
        mean = f"dev {score} of the mean of the last weights and those before the training"
        is_mean = metrics.get("mean_with_start")
        words.append(mean if is_mean else f"best dev {score} at step {metrics['best_step']:,}")
    if held_out := metrics.get("held_out"):
        words.append("at the end, on held-out text: " + ", ".join(f"{n} {v:.4f}" for n, v in held_out.items()))
    return " · ".join(words)


def footer_text(data: ReportData) -> str:
    """Return who made the page, and the versions and the processor that the checkpoint was made with."""
    words = [f"biosqueeze {__version__}, {now()[:16].replace('T', ' ')} UTC"]
    if data.checkpoint.manifest:
        environment = data.checkpoint.manifest.environment
        versions = ((name, environment.packages.get(name)) for name in _PACKAGES_SHOWN)
        software = [f"python {environment.python}", *(f"{name} {version}" for name, version in versions if version)]
        words.append(f"made with {', '.join(software)} on {environment.cpu}")
    return " · ".join(words)
