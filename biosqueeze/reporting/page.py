"""The page: key figures, what the checkpoint is, how it was made, how it learnt, and what was measured of it."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import PurePath

from biosqueeze import __version__, manifest, model_facts
from biosqueeze.manifest import HistoryEntry
from biosqueeze.model_facts import head_of
from biosqueeze.reporting.markup import Markup, element, joined, number, table
from biosqueeze.reporting.measures import measures
from biosqueeze.reporting.plots import COLOURS, training_plot
from biosqueeze.reporting.report_data import ReportData, TrainingRun
from biosqueeze.reporting.style import CSS

GENERATOR = '<meta name="generator" content="biosqueeze report">'
_FILES_SHOWN = 6
_SMALL = 50_000  # bytes
_SHAPE_WORDS = {
    "layers": "layers",
    "hidden": "hidden size",
    "heads": "attention heads",
    "ffn": "feed-forward size",
    "vocabulary": "vocabulary",
    "positions": "positions",
}


def render(story: ReportData) -> str:
    """The whole page; nothing in it refers to anything outside of it."""
    sections = (_key_figures(story), _anatomy(story), *_history(story), *_learning(story), *measures(story))
    body = element("main", _title(story), *sections, _footer(story))
    head = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'{GENERATOR}<meta name="viewport" content="width=device-width, initial-scale=1">'
    )
    title = element("title", f"{story.name} · biosqueeze report")
    return f"{head}{title}{element('style', CSS)}</head>\n{element('body', body)}</html>\n"


def _title(story: ReportData) -> Markup:
    config, task = story.checkpoint.config, story.checkpoint.task
    architecture = (config.get("architectures") or [None])[0] or f"{config.get('model_type', 'unknown')} encoder"
    words = [str(architecture), f"head: {head_of(config)}"]
    if task:
        words.append(f"{task.name} on {PurePath(task.data or 'unknown').name}")
    return element("header", element("h1", story.name), element("div", " · ".join(words), class_="muted"))


def _key_figures(story: ReportData) -> Markup:
    shape = model_facts.shape_of(story.checkpoint.config)
    weights = sum(path.stat().st_size for path in story.checkpoint.weights) / 1e6
    shown = [("parameters", _millions(story.parameters.get("total"))), ("weights", f"{weights:,.1f} MB")]
    if shape.layers and shape.hidden:
        shown.append(("layers × hidden size", f"{shape.layers} × {shape.hidden}"))  # noqa: RUF001
    noted = story.checkpoint.manifest.metrics if story.checkpoint.manifest else {}
    if isinstance(noted.get("f1"), float):
        shown.append((f"F1 on {noted.get('split', 'dev')}, in training", f"{noted['f1']:.4f}"))
    best = max((s for s in story.scores if s.own and "f1" in s.metrics), key=lambda s: s.metrics["f1"], default=None)
    if best:
        words = f"F1 on {best.result.get('split')}, {best.result.get('backend')}"
        shown.append((words, f"{best.metrics['f1']:.4f}"))
    cards = (element("div", element("b", value), element("span", what), class_="figure") for what, value in shown)
    return element("div", *cards, class_="figures")


def _millions(count: int | None) -> str:
    if count is None:
        return number(None)
    return f"{count / 1e6:,.1f} M" if count >= 1e5 else f"{count:,}"


def _anatomy(story: ReportData) -> Markup:
    shape = model_facts.shape_of(story.checkpoint.config)
    rows = [(_SHAPE_WORDS[key], number(value)) for key, value in shape.known().items()]
    labels = ", ".join(story.checkpoint.labels)
    left = [element("h3", "Shape"), table((), rows)]
    if labels:
        left += [element("h3", "Labels"), element("p", labels, class_="small")]
    right = [element("h3", "Files"), table((), _file_rows(story.files))]
    return element(
        "section",
        element("h2", "What it is"),
        *_parts(story.parameters),
        element("div", element("div", *left), element("div", *right), class_="two"),
    )


def _parts(parameters: Mapping[str, int]) -> Iterator[Markup]:
    """A bar of the parameters by part, and its key."""
    total = parameters.get("total", 0)
    parts = [(name, count) for name, count in parameters.items() if name != "total" and count]
    if not total or not parts:
        return
    colours = [COLOURS[index % len(COLOURS)] for index in range(len(parts))]
    shares = (
        element("span", title=f"{name}: {count:,}", style=f"flex:{count / total:.6f} 1 0;background:{colour}")
        for (name, count), colour in zip(parts, colours, strict=True)
    )
    yield element("div", *shares, class_="stack", role="img", aria_label="Parameters by part")
    rows = [
        (
            joined((element("span", class_="key", style=f"background:{colour}"), name)),
            f"{count:,}",
            _share(count, total),
        )
        for (name, count), colour in zip(parts, colours, strict=True)
    ]
    yield table(("part", "parameters", "share"), [*rows, (element("b", "total"), f"{total:,}", "")])


def _share(count: int, total: int) -> str:
    return "< 0.1 %" if count / total < 0.001 else f"{100 * count / total:.1f} %"


def _file_rows(files: Mapping[str, int]) -> list[tuple[str, str]]:
    """The largest files by name, and the rest in one row."""
    named = {name: size for name, size in list(files.items())[:_FILES_SHOWN] if size >= _SMALL}
    rest = len(files) - len(named)
    rows = [(name, f"{size / 1e6:,.2f} MB") for name, size in named.items()]
    left = sum(files.values()) - sum(named.values())
    return rows + ([(f"{rest} smaller ones", f"{left / 1e6:,.2f} MB")] if rest else [])


def _history(story: ReportData) -> Iterator[Markup]:
    if not story.history:
        yield element(
            "section",
            element("h2", "How it was made"),
            element("p", "Not by biosqueeze: the checkpoint has no biosqueeze.json.", class_="muted"),
        )
        return
    entries = (element("li", *_stage(entry)) for entry in story.history)
    yield element("section", element("h2", "How it was made"), element("ol", *entries))


def _stage(entry: HistoryEntry) -> Iterator[Markup]:
    """One stage: name, time, what it was given, and the options that were not left at their defaults."""
    when = entry.created[:16].replace("T", " ")
    yield element("span", entry.stage, class_="tag")
    yield element("span", f"  {when} UTC · biosqueeze {entry.version}", class_="muted small")
    parents = {role: parent.name for role, parent in entry.parents.items()}
    names = set(parents.values())
    yield element("div", *(_chip("from" if role == "parent" else role, name) for role, name in parents.items()))
    hidden = ("checkpoint", "out", "force", "resume")
    given = {key: value for key, value in entry.given_options().items() if key not in hidden}
    yield element("div", *(_chip(k.replace("_", "-"), v) for k, v in given.items() if str(v) not in names))


def _chip(what: str, value: object) -> Markup:
    words = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return element("span", element("i", what), f" {words}", class_="chip")


def _learning(story: ReportData) -> Iterator[Markup]:
    if not story.trainings:
        return
    runs = (piece for training in reversed(story.trainings) for piece in _run(training))
    legend = "Thick lines are averages over neighbouring steps, thin ones the raw values. The best dev score is ringed."
    yield element("section", element("h2", "How it learnt"), element("p", legend, class_="muted small"), *runs)


def _run(training: TrainingRun) -> Iterator[Markup]:
    stage = training.manifest.stage if training.manifest else "training"
    plot = element("div", training_plot(training.curves), class_="scroll")
    yield element("h3", f"{training.name} · {stage}")
    yield element("div", _run_facts(training), class_="muted small")
    yield element("figure", plot, role="img", aria_label=f"TrainingRun curves of {training.name}")


def _run_facts(training: TrainingRun) -> str:
    noted = training.manifest.metrics if training.manifest else {}
    words = [f"{number(noted.get('steps', len(training.curves.steps)))} steps"]
    if noted.get("tokens"):
        words.append(f"{noted['tokens'] / 1e6:,.2f} M tokens")
    if noted.get("seconds"):
        words.append(f"{timedelta(seconds=round(noted['seconds']))} h")
    if noted.get("compute"):
        words.append(f"{noted['compute']} on {noted.get('device')}")
    if noted.get("best_step") and isinstance(noted.get("f1"), float):
        words.append(f"best dev F1 {noted['f1']:.4f} at step {noted['best_step']:,}")
    return " · ".join(words)


def _footer(story: ReportData) -> Markup:
    words = [f"biosqueeze {__version__}, {manifest.now()[:16].replace('T', ' ')} UTC"]
    if story.checkpoint.manifest:
        environment = story.checkpoint.manifest.environment
        versions = ((name, environment.packages.get(name)) for name in ("torch", "transformers", "onnxruntime"))
        made = [f"python {environment.python}", *(f"{name} {version}" for name, version in versions if version)]
        words.append(f"made with {', '.join(made)} on {environment.cpu}")
    return element("footer", " · ".join(words))
