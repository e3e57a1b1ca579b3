"""The model card: README.md with the Hub's front matter, rendered from the manifest."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PIPELINE_TAGS = {
    "token-classification": "token-classification",
    "sequence-classification": "text-classification",
    "question-answering": "question-answering",
    "mlm": "fill-mask",
    "base": "feature-extraction",
}
# The Hub's names for the kinds of task that are not about whole texts.
_TASK_TYPES = {"ner": "token-classification", "pico": "token-classification", "qa": "question-answering"}

# Switches that are on if nothing is said.
_SWITCHED_ON = {"embeddings"}


def render(name: str, manifest: Mapping[str, Any]) -> str:
    """The whole card as Markdown; `name` is the checkpoint's directory name."""
    return f"---\n{_front_matter(name, manifest)}---\n\n{_body(name, manifest)}"


def _front_matter(name: str, manifest: Mapping[str, Any]) -> str:
    parent = (manifest.get("parent") or {}).get("name")
    lines = [
        "library_name: transformers",
        f"pipeline_tag: {PIPELINE_TAGS.get(manifest['head'], 'feature-extraction')}",
    ]
    if parent and _is_on_the_hub(parent):
        lines.append(f"base_model: {json.dumps(parent)}")
    lines += ["tags:", "- biosqueeze", f"- {manifest['stage']}"]
    lines += _model_index(name, manifest)
    return "\n".join(lines) + "\n"


def _is_on_the_hub(name: str) -> bool:
    """Whether a parent's name is a Hub id, and no directory here."""
    return name.count("/") == 1 and not name.startswith((".", "/", "~")) and not Path(name).exists()


def _model_index(name: str, manifest: Mapping[str, Any]) -> list[str]:
    """The Hub's `model-index`: one result, where the stage measured its task."""
    task, metrics = manifest.get("task"), manifest.get("metrics", {})
    scores = {key: metrics[key] for key in ("precision", "recall", "f1") if key in metrics}
    if not task or not scores:
        return []
    lines = ["model-index:", f"- name: {json.dumps(name)}", "  results:", "  - task:"]
    lines += [f"      type: {_TASK_TYPES.get(task['name'], 'text-classification')}", "    dataset:"]
    lines += [
        f"      name: {json.dumps(task.get('data', 'unknown'))}",
        f"      type: {json.dumps(task['name'])}",
    ]
    lines += [f"      split: {metrics.get('split', 'dev')}", "    metrics:"]
    for key, value in scores.items():
        lines += [f"    - type: {key}", f"      value: {value:.4f}"]
    return lines


def _body(name: str, manifest: Mapping[str, Any]) -> str:
    shape, parameters = manifest["model"]["shape"], manifest["model"]["parameters"]
    lines = [
        f"# {name}",
        "",
        f"Made by `biosqueeze {manifest['stage']}` (biosqueeze {manifest['version']}).",
        "",
    ]
    if "own_head" in manifest:
        lines += [
            f"Beside the encoder, which stock transformers loads whole, it has a {manifest['own_head']} head in "
            "`head.safetensors`, which biosqueeze reads.",
            "",
        ]
    lines += ["| | |", "|---|---|"]
    lines += [f"| {part} parameters | {count:,} |" for part, count in parameters.items()]
    lines += [f"| {key} | {value:,} |" for key, value in shape.items() if value is not None]
    lines += ["", "## How it was made", "", "```"]
    lines += [_command(entry) for entry in manifest["history"]]
    lines += ["```", ""]
    if manifest.get("metrics"):
        lines += [
            "## Measured by this stage",
            "",
            "```json",
            json.dumps(manifest["metrics"], indent=2),
            "```",
            "",
        ]
    return "\n".join(lines)


def _command(entry: Mapping[str, Any]) -> str:
    """The command that would repeat one stage: only the options that were not left at their defaults."""
    words = [f"biosqueeze {entry['stage']}"]
    sources = entry.get("sources", {})
    for key, value in entry["options"].items():
        flag = key.replace("_", "-")
        if value is None or key in ("out", "force", "resume"):
            continue
        if key == "checkpoint":
            words.insert(1, shlex.quote(str(value)))
        elif sources.get(key, "default") == "default":
            continue
        elif isinstance(value, bool):
            words += [f"--{flag}"] if value else [f"--no-{flag}"] * (key in _SWITCHED_ON)
        else:
            words += [f"--{flag} {shlex.quote(str(v))}" for v in (value if isinstance(value, list) else [value])]
    return " ".join(words)
