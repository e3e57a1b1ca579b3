"""The model card: README.md with the Hub's front matter, rendered from the manifest."""

import json
import shlex
from pathlib import Path

from biosqueeze.command_line import option_defaults, option_flags
from biosqueeze.manifest import HistoryEntry, Manifest

PIPELINE_TAGS = {
    "token-classification": "token-classification",
    "sequence-classification": "text-classification",
    "question-answering": "question-answering",
    "mlm": "fill-mask",
    "base": "feature-extraction",
}
# The Hub's names for the kinds of task that are not about whole texts.
_TASK_TYPES = {"ner": "token-classification", "pico": "token-classification", "qa": "question-answering"}


def render(name: str, manifest: Manifest) -> str:
    """The whole card as Markdown; `name` is the checkpoint's directory name."""
    return f"---\n{_front_matter(name, manifest)}---\n\n{_body(name, manifest)}"


def _front_matter(name: str, manifest: Manifest) -> str:
    lines = [
        "library_name: transformers",
        f"pipeline_tag: {PIPELINE_TAGS.get(manifest.head, 'feature-extraction')}",
    ]
    if _is_on_the_hub(manifest.parent.name):
        lines.append(f"base_model: {json.dumps(manifest.parent.name)}")
    lines += ["tags:", "- biosqueeze", f"- {manifest.stage}"]
    lines += _model_index(name, manifest)
    return "\n".join(lines) + "\n"


def _is_on_the_hub(name: str) -> bool:
    """Whether a parent's name is a Hub id, and no directory here."""
    return name.count("/") == 1 and not name.startswith((".", "/", "~")) and not Path(name).exists()


def _model_index(name: str, manifest: Manifest) -> list[str]:
    """The Hub's `model-index`: one result, where the stage measured its task."""
    task, metrics = manifest.task, manifest.metrics
    scores = {key: metrics[key] for key in ("precision", "recall", "f1") if key in metrics}
    if not task or not scores:
        return []
    lines = ["model-index:", f"- name: {json.dumps(name)}", "  results:", "  - task:"]
    lines += [f"      type: {_TASK_TYPES.get(task.name, 'text-classification')}", "    dataset:"]
    lines += [
        f"      name: {json.dumps(task.data or 'unknown')}",
        f"      type: {json.dumps(task.name)}",
    ]
    lines += [f"      split: {metrics.get('split', 'dev')}", "    metrics:"]
    for key, value in scores.items():
        lines += [f"    - type: {key}", f"      value: {value:.4f}"]
    return lines


def _body(name: str, manifest: Manifest) -> str:
    lines = [
        f"# {name}",
        "",
        f"Made by `biosqueeze {manifest.stage}` (biosqueeze {manifest.version}).",
        "",
    ]
    if manifest.custom_head:
        lines += [
            f"Beside the encoder, which stock transformers loads whole, it has a {manifest.custom_head} head in "
            "`head.safetensors`, which biosqueeze reads.",
            "",
        ]
    lines += ["| | |", "|---|---|"]
    lines += [f"| {part} parameters | {count:,} |" for part, count in manifest.model.parameters.items()]
    lines += [f"| {key} | {value:,} |" for key, value in manifest.model.shape.known().items()]
    lines += ["", "## How it was made", "", "```"]
    lines += [_command(entry) for entry in manifest.history]
    lines += ["```", ""]
    if manifest.metrics:
        lines += [
            "## Measured by this stage",
            "",
            "```json",
            json.dumps(manifest.metrics, indent=2),
            "```",
            "",
        ]
    return "\n".join(lines)


def _command(entry: HistoryEntry) -> str:
    """The command that would repeat one stage: only the options that were not left at their defaults."""
    hidden = {"checkpoint", "out", "force", "resume"}
    values = {name: value for name, value in entry.given_options().items() if name not in hidden}
    checkpoint = [str(entry.options["checkpoint"])] if entry.options.get("checkpoint") is not None else []
    flags = option_flags(values, option_defaults(entry.stage))
    return shlex.join(["biosqueeze", entry.stage, *checkpoint, *flags])
