"""The model card: README.md with the Hub's front matter, rendered from the manifest."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from biosqueeze.command_line import option_defaults, option_flags
from biosqueeze.manifest import HistoryEntry, Manifest

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

PIPELINE_TAGS = {
    "token-classification": "token-classification",
    "sequence-classification": "text-classification",
    "question-answering": "question-answering",
    "mlm": "fill-mask",
    "base": "feature-extraction",
}
# The Hub's task types of the kinds of task that do not classify whole texts.
_TASK_TYPES = {"ner": "token-classification", "pico": "token-classification", "qa": "question-answering"}
_SCORES = ("precision", "recall", "f1")
_NOT_REPEATED = {"checkpoint", "out", "force", "resume"}


def render(name: str, manifest: Manifest) -> str:
    """Return the card as Markdown; `name` is the checkpoint's directory name."""
    return f"---\n{_front_matter(name, manifest)}\n---\n\n{_body(name, manifest)}"


def _front_matter(name: str, manifest: Manifest) -> str:
    """Return the YAML that the Hub reads."""
    from huggingface_hub import ModelCardData

    data = ModelCardData(
        library_name="transformers",
        pipeline_tag=PIPELINE_TAGS.get(manifest.head, "feature-extraction"),
        base_model=manifest.parent.name if _is_on_hub(manifest.parent.name) else None,
        tags=["biosqueeze", manifest.stage],
        model_name=name,
        eval_results=_eval_results(manifest),
    )
    return str(data.to_yaml())


def _is_on_hub(name: str) -> bool:
    """Return whether a parent's name is a Hub id and not a local directory."""
    return name.count("/") == 1 and not name.startswith((".", "/", "~")) and not Path(name).exists()


def _eval_results(manifest: Manifest) -> "list[EvalResult]":
    """Return the scores of the stage on the data of the task; empty where the stage did not measure any."""
    from huggingface_hub import EvalResult

    task, metrics = manifest.task, manifest.metrics
    if task is None:
        return []
    return [
        EvalResult(
            task_type=_TASK_TYPES.get(task.name, "text-classification"),
            dataset_type=task.name,
            dataset_name=task.data or "unknown",
            dataset_split=metrics.get("split", "dev"),
            metric_type=score,
            metric_value=round(metrics[score], 4),
        )
        for score in _SCORES
        if score in metrics
    ]


def _body(name: str, manifest: Manifest) -> str:
    sections = [
        f"# {name}",
        f"Made by `biosqueeze {manifest.stage}` (biosqueeze {manifest.version}).",
        *_custom_head(manifest),
        _size_table(manifest),
        "## How it was made",
        "\n".join(["```", *(_command(entry) for entry in manifest.history), "```"]),
        *_measurements(manifest),
    ]
    return "\n\n".join(sections) + "\n"


def _custom_head(manifest: Manifest) -> list[str]:
    if manifest.custom_head is None:
        return []
    return [
        f"Stock transformers loads the encoder. Its {manifest.custom_head} head is in `head.safetensors`, which "
        "biosqueeze reads."
    ]


def _size_table(manifest: Manifest) -> str:
    parameters = [f"| {part} parameters | {count:,} |" for part, count in manifest.model.parameters.items()]
    sizes = [f"| {name} | {size:,} |" for name, size in manifest.model.shape.known().items()]
    return "\n".join(["| | |", "|---|---|", *parameters, *sizes])


def _measurements(manifest: Manifest) -> list[str]:
    if not manifest.metrics:
        return []
    return ["## Measured by this stage", f"```json\n{json.dumps(manifest.metrics, indent=2, default=str)}\n```"]


def _command(entry: HistoryEntry) -> str:
    """Return the command that repeats a stage, with the options that were not left at their defaults."""
    values = {name: value for name, value in entry.given_options().items() if name not in _NOT_REPEATED}
    checkpoint = [str(entry.options["checkpoint"])] if entry.options.get("checkpoint") is not None else []
    flags = option_flags(values, option_defaults(entry.stage))
    return shlex.join(["biosqueeze", entry.stage, *checkpoint, *flags])
