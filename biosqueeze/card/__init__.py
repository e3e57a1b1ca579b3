"""The model card README.md: rendered from the manifest, and refreshed by what measures the checkpoint.

Generated blocks are marked. A refresh replaces them and keeps all else, so that a card can be edited by hand.
"""

import json
import shlex
from pathlib import Path

from biosqueeze.card.markdown import escaped, fenced, replaced, table
from biosqueeze.card.metadata import front_matter, model_index
from biosqueeze.card.pretraining import pretraining_section
from biosqueeze.card.results import read_evaluations, results_block
from biosqueeze.card.usage import usage_block
from biosqueeze.command_line import option_defaults, option_flags
from biosqueeze.files import write_text
from biosqueeze.files.parsing import read_text
from biosqueeze.manifest import HistoryEntry, Manifest

FILE_NAME = "README.md"
_NOT_REPEATED = {"checkpoint", "force", "resume"}


def render(name: str, manifest: Manifest, directory: Path, parent: Path | None = None) -> str:
    """Return the card as Markdown.

    Args:
        name: of the checkpoint: its directory's name, or its id on the Hub.
        manifest: of the checkpoint.
        directory: with its files, of which the card shows how they are used, and results.
        parent: directory of the checkpoint that it was made from; licence and base model are those of its card.
    """
    evaluations = read_evaluations(directory)
    sections = [
        f"# {escaped(name)}",
        f"Made by `biosqueeze {manifest.stage}` (biosqueeze {manifest.version}).",
        *_custom_head(manifest),
        usage_block(name, manifest, directory),
        results_block(directory, evaluations),
        *pretraining_section(manifest),
        _size_table(manifest),
        "## How it was made",
        fenced("\n".join(_command(entry) for entry in manifest.history)),
        *_measurements(manifest),
    ]
    return f"---\n{front_matter(name, manifest, parent, evaluations)}\n---\n\n" + "\n\n".join(sections) + "\n"


def refresh(directory: Path, manifest: Manifest) -> None:
    """Bring the results in a checkpoint's card up to date; text outside of the marked blocks stays as it is.

    Nothing is done where the card is missing, is no UTF-8, or has no marked blocks.

    Raises:
        OSError: it cannot be written.
    """
    path = directory / FILE_NAME
    try:
        former = read_text(path)
    except (OSError, ValueError):
        return
    text = with_results(former, directory, manifest)
    if text != former:
        write_text(path, text)


def with_results(text: str, directory: Path, manifest: Manifest) -> str:
    """Return a card with the results that lie in the directory."""
    evaluations = read_evaluations(directory)
    text = replaced(text, model_index(directory.resolve().name, manifest, evaluations))
    return replaced(text, results_block(directory, evaluations))


def renamed(text: str, name: str, manifest: Manifest, directory: Path) -> str:
    """Return a card whose examples load the checkpoint from the Hub, by its id there."""
    return replaced(text, usage_block(name, manifest, directory, on_hub=True))


def _custom_head(manifest: Manifest) -> list[str]:
    if manifest.custom_head is None:
        return []
    return [
        f"Stock transformers loads the encoder. Its {escaped(manifest.custom_head)} head is in `head.safetensors`, "
        "which biosqueeze reads."
    ]


def _size_table(manifest: Manifest) -> str:
    parameters = [(f"{part} parameters", f"{count:,}") for part, count in manifest.model.parameters.items()]
    sizes = [(name, f"{size:,}") for name, size in manifest.model.shape.known().items()]
    return table(("", ""), [*parameters, *sizes])


def _measurements(manifest: Manifest) -> list[str]:
    if not manifest.metrics:
        return []
    return ["## Measured by this stage", fenced(json.dumps(manifest.metrics, indent=2, default=str), "json")]


def _command(entry: HistoryEntry) -> str:
    """Return the command that repeats a stage, with the options that were not left at their defaults.

    --out is one of them: it is the input of the next command.
    """
    values = {name: value for name, value in entry.given_options().items() if name not in _NOT_REPEATED}
    checkpoint = [str(entry.options["checkpoint"])] if entry.options.get("checkpoint") is not None else []
    flags = option_flags(values, option_defaults(entry.stage))
    return shlex.join(["biosqueeze", entry.stage, *checkpoint, *flags])
