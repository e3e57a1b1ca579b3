"""Print the facts of a checkpoint: parameters by part, shape, size on disk, family, task, tokenizer, history."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from biosqueeze import model_facts
from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.errors import UsageError, require
from biosqueeze.importance import FILE as IMPORTANCE_FILE
from biosqueeze.manifest import HistoryEntry
from biosqueeze.models.families import FAMILIES
from biosqueeze.models.loading.family_signs import infer_family
from biosqueeze.models.tokenizers.casing import tokenizer_facts
from biosqueeze.options import (
    Block,
    CheckpointArgument,
    OnDisk,
    Outcome,
    Plan,
    Purpose,
    Requires,
    StageOptions,
)
from biosqueeze.system.os_errors import explained_writes
from biosqueeze.text_table import TextTable

PURPOSE = Purpose.MEASURE
EXAMPLES = (
    ("Show parameters, shape, labels and history", "biosqueeze inspect demo:minilm"),
    ("Draw the importances that it was cut by", "biosqueeze inspect ner-small --importance --plot importance.png"),
)

_PICTURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True, kw_only=True)
class Options(StageOptions):
    """Show parameters, shape, task and history of a checkpoint.

    Parameters by part, shape, size on disk by artefact, family, task and labels, the tokenizer's casing, and every
    stage that it went through, on standard output. Of safetensors files only the headers are read.
    """

    READS_RESULTS: ClassVar[bool] = True

    checkpoint: CheckpointArgument
    importance: Annotated[
        bool,
        "Draw the scores by which `shrink --importance` chose heads, neurons and layers, and which of them it kept.",
    ] = False
    plot: Annotated[
        str | None,
        "Write these scores as a picture too: .png, .svg or .pdf.",
        OnDisk(is_output=True),
        Requires("importance"),
    ] = None


def plan(options: Options) -> Plan:
    """Describe the run; the files are found, and not read."""
    checkpoint = open_checkpoint(options.checkpoint, weights=False, slim=True)
    picture = _picture(options)
    written = f"write {picture}" if picture else "write nothing"
    return Plan(out=None, steps=(f"read {checkpoint.name} and print its facts; {written}",))


def run(options: Options) -> Outcome:
    """Read the facts."""
    checkpoint = open_checkpoint(options.checkpoint, slim=True)
    picture = _picture(options)
    facts = _facts(checkpoint)
    if not options.importance:
        return Outcome(checkpoint.path, facts, blocks=_blocks(checkpoint.name, facts))
    from biosqueeze.importance.store import load_scores
    from biosqueeze.reporting.importance import cut_scores, importance_tables
    from biosqueeze.reporting.importance_picture import save_picture

    saved = load_scores(checkpoint)
    scores = cut_scores(checkpoint, saved)
    if picture:
        with explained_writes(str(picture), remedy="give another --plot", when_full="free some space"):
            save_picture(scores, picture)
    facts["importance"] = {kind: _numbers(tensor.tolist()) for kind, tensor in saved.scores.items().items()}
    facts["importance_by"] = {"units": saved.importance, "layers": saved.layers_by}
    return Outcome(checkpoint.path, facts, blocks=(*importance_tables(scores), f"  {saved.summary}"))


def _numbers(values: Sequence[Any]) -> list[Any]:
    """Return nested scores for JSON, which has no NaN: None for a layer without a score."""
    return [_numbers(v) if isinstance(v, list) else None if math.isnan(v) else v for v in values]


def _picture(options: Options) -> Path | None:
    """Return the file of --plot.

    Raises:
        UsageError: its name has another ending.
        SqueezeError: matplotlib is not installed.
    """
    if options.plot is None:
        return None
    require("matplotlib", "report")
    path = Path(options.plot).expanduser()
    if path.suffix.lower() not in _PICTURES:
        raise UsageError(f"--plot {options.plot} is no name of a picture; let it end in {', '.join(_PICTURES)}")
    return path


def _facts(checkpoint: Checkpoint) -> dict[str, Any]:
    from biosqueeze.backends.deployed import deployed_megabytes  # imports NumPy

    _check_tokenizer(checkpoint)
    shapes = {} if checkpoint.is_slim else _shapes(checkpoint)
    files = [path.name for path in checkpoint.path.iterdir()]
    family = checkpoint.config.get("model_type") or infer_family(tuple(shapes), checkpoint.config, files)
    return {
        "name": checkpoint.name,
        "family": family,
        "architecture": (checkpoint.config.get("architectures") or [None])[0],
        "head": model_facts.head_of(checkpoint.config),
        "own_head": checkpoint.custom_head,
        "task": checkpoint.task.name if checkpoint.task else None,
        "labels": list(checkpoint.labels),
        "shape": asdict(model_facts.shape_of(checkpoint.config)),
        "parameters": _parameters(checkpoint, shapes),
        "megabytes": _megabytes(checkpoint.path),
        "deployed_megabytes": deployed_megabytes(checkpoint),
        "tokenizer": tokenizer_facts(checkpoint.path),
        "results": sorted(path.stem for path in (checkpoint.path / "results").glob("*.json")),
        "history": [_history_line(entry) for entry in checkpoint.history],
        "cut": _cut_line(checkpoint.manifest.notes) if checkpoint.manifest else None,
    }


def _check_tokenizer(checkpoint: Checkpoint) -> None:
    """Check the tokenizer's files as a run would; without tokenizer.json, which transformers converts, the settings.

    Raises:
        SqueezeError: they are damaged, or of another model.
    """
    from biosqueeze.models.tokenizers.text_tokenizer import load_text_tokenizer
    from biosqueeze.models.tokenizers.tokenizer_settings import read_settings

    if (checkpoint.path / "tokenizer.json").is_file() and checkpoint.config.get("model_type") in FAMILIES:
        load_text_tokenizer(checkpoint)
    else:
        read_settings(checkpoint.path)


def _parameters(checkpoint: Checkpoint, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, int]:
    """Return the parameters by part; of a checkpoint without float weights, those in its manifest."""
    if not shapes and checkpoint.manifest:
        return checkpoint.manifest.model.parameters
    return model_facts.count_by_part(shapes, checkpoint.config)


def _shapes(checkpoint: Checkpoint) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of all tensors; of safetensors files only the headers are read."""
    if all(file.suffix == ".safetensors" for file in checkpoint.weights):
        return {name: shape for file in checkpoint.weights for name, shape in model_facts.tensor_shapes(file).items()}
    from biosqueeze.models.loading.weights import read_weights

    return {name: tuple(tensor.shape) for name, tensor in read_weights(checkpoint).items()}


def _megabytes(path: Path) -> dict[str, float]:
    """Return the size on disk by artefact, in millions of bytes: weights, tokenizer, runtimes' models, rest, total."""
    sizes: dict[str, int] = {}
    for file in sorted(path.rglob("*")):
        if file.is_file():
            artefact = _artefact(file.relative_to(path))
            sizes[artefact] = sizes.get(artefact, 0) + file.stat().st_size
    sizes["total"] = sum(sizes.values())
    return {artefact: round(size / 1e6, 3) for artefact, size in sizes.items()}


def _artefact(file: Path) -> str:
    from biosqueeze.backends.deployed import TOKENIZER_FILES

    if file.parts[0] in ("onnx", "openvino"):
        return file.with_suffix("").as_posix()
    if file.name == IMPORTANCE_FILE:
        return "other"
    if len(file.parts) == 1 and (file.suffix == ".safetensors" or file.match("pytorch_model*.bin")):
        return "weights"
    return "tokenizer" if file.name in TOKENIZER_FILES else "other"


def _history_line(entry: HistoryEntry) -> str:
    """Return one stage of the history: time, name, and the options that were not left at their defaults."""
    shown = {key: value for key, value in entry.given_options().items() if key not in ("out", "force")}
    words = [f"{key} {', '.join(map(str, v)) if isinstance(v, list) else v}" for key, v in shown.items()]
    return "  ".join([entry.created, entry.stage, *words])


def _cut_line(notes: Mapping[str, Any]) -> str | None:
    """Return how the last stage chose what it cut, and whether it repaired; None where it did so without data."""
    if "repaired" not in notes:
        return None
    chosen = [notes["importance"]] if notes["importance"] else []
    chosen += [f"{notes['layers_by']} (layers)"] if "layers_by" in notes else []
    by = f"chosen by {' and '.join(chosen)}, " if chosen else ""
    data = f", on {notes['tokens']:,} tokens of {notes['calibration']}" if notes["calibration"] else ""
    return f"{by}{'repaired' if notes['repaired'] else 'not repaired'}{data}"


def _blocks(name: str, facts: Mapping[str, Any]) -> tuple[Block, ...]:
    counts: Mapping[str, int] = facts["parameters"]
    total = max(1, counts["total"])
    parts = tuple((part, f"{count:,}", f"{count / total:.1%}") for part, count in counts.items())
    sizes = tuple((key, f"{size:.2f}") for key, size in facts["megabytes"].items())
    if facts["deployed_megabytes"] is not None:
        sizes += (("deployed", f"{facts['deployed_megabytes']:.2f}"),)
    shape = "  ".join(f"{key} {value:,}" for key, value in facts["shape"].items() if value is not None)
    rows = [
        ("family", facts["family"] or "unknown"),
        ("architecture", facts["architecture"] or f"not given in config.json ({facts['head']})"),
        *((("head", f"{facts['own_head']} (head.safetensors)"),) if facts["own_head"] else ()),
        ("shape", shape),
        ("task", facts["task"] or "none"),
        ("labels", ", ".join(facts["labels"]) or "none"),
        ("tokenizer", _tokenizer_line(facts["tokenizer"])),
        ("results", ", ".join(facts["results"]) or "none"),
        *(("history", line) for line in facts["history"]),
        *((("cut", facts["cut"]),) if facts["cut"] else ()),
    ]
    return (
        TextTable(f"{name}: parameters", ("part", "parameters", "share"), parts),
        TextTable("size on disk", ("artefact", "MB"), sizes),
        "\n".join(f"  {key:<13} {value}" for key, value in rows),
    )


def _tokenizer_line(facts: Mapping[str, Any] | None) -> str:
    if facts is None:
        return "none"
    return f"{facts['kind']}, {facts['pieces']:,} pieces, {'cased' if facts['cased'] else 'lower-casing'}"
