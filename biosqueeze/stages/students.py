"""List the named students: shape, parameters, cost and source."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.errors import UsageError
from biosqueeze.models.loading.detection import config_with_family
from biosqueeze.models.named import presets
from biosqueeze.models.named.presets import PRESETS, Preset
from biosqueeze.options import Argument, Block, OnDisk, Outcome, Plan, Purpose, StageOptions
from biosqueeze.text_table import TextTable

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

PURPOSE = Purpose.SMALLER
EXAMPLES = (
    ("List all students", "biosqueeze students"),
    ("With the vocabulary of a teacher, and compared with it", "biosqueeze students dmis-lab/biobert-v1.1"),
)
LENGTH = 128
_COLUMNS = ("student", "family", "layers", "hidden", "heads", "ffn", "parameters", "cost", "start", "source")


@dataclass(frozen=True, kw_only=True)
class Options(StageOptions):
    """List the named students: shape, parameters, cost and source.

    Parameters are those of the encoder without a head, within 2% of the published ones; below the table is where these
    are from, if not from the paper that the source names. Cost is the number of floating-point operations per token in
    a text of 128 tokens, compared with BERT-base, or with the teacher if one is given; embeddings cost none.

    A student of a BERT or RoBERTa shape is built in the family of its teacher. One of another shape, such as
    modernbert-17m, is always of its own family: it takes tokenizer and labels from any teacher, and no weights from one
    of another family.

    The table is printed on standard output.
    """

    teacher: Annotated[
        str | None,
        "Count with the vocabulary and family of this teacher: directory, Hub id, demo:minilm, or - for the path on "
        "standard input. Default: as published.",
        Argument(),
        OnDisk(may_be_name=True),
    ] = None


def plan(options: Options) -> Plan:
    """Describe the run; of the teacher, only the small files are read.

    Raises:
        SqueezeError: the teacher cannot be read, or its family is not supported.
    """
    if options.teacher:
        config_with_family(open_checkpoint(options.teacher, weights=False))
    of = f" of {options.teacher}" if options.teacher else ""
    return Plan(out=None, steps=(f"print the named students{of}; write nothing",))


def run(options: Options) -> Outcome:
    """Count the parameters and operations of each student, from configs alone.

    Raises:
        SqueezeError: the teacher cannot be read, or its family is not supported.
    """
    teacher = open_checkpoint(options.teacher, weights=False) if options.teacher else None
    reference, rows, refused = _count(teacher)
    facts = {"reference": reference, "length": LENGTH, "students": rows, "refused": refused}
    path = teacher.path if teacher else Path(presets.__file__)
    counts = () if teacher else tuple(_published(rows))
    return Outcome(path, facts, blocks=(*_blocks(reference, rows, refused), *counts))


def _count(teacher: Checkpoint | None) -> tuple[str, list[dict[str, Any]], dict[str, str]]:
    """Return what cost is compared with, a row for each student, and why the others are not possible."""
    from biosqueeze.models.loading.load import load_config
    from biosqueeze.models.named.new_config import new_config
    from biosqueeze.models.named.shapes import SHAPES
    from biosqueeze.models.named.students import published_config, student_config

    config = load_config(teacher) if teacher else new_config(SHAPES["bert-base"], 30_522)
    whole, rows, refused = _operations(config), [], {}
    for name, preset in PRESETS.items():
        try:
            student = student_config(config, preset) if teacher else published_config(preset)
        except UsageError as error:
            refused[name] = str(error)
            continue
        rows.append(_facts(preset, student) | {"cost": _operations(student) / whole})
    return teacher.name if teacher else "bert-base", rows, refused


def _operations(config: "PreTrainedConfig") -> float:
    from biosqueeze.models.families import family_of
    from biosqueeze.models.flops import Work, forward_flops
    from biosqueeze.models.loading.load import skeleton

    model = skeleton(config, family_of(config).architecture("mlm"))  # of which no token is predicted
    return forward_flops(model, Work(length=LENGTH, masked=0)) / LENGTH


def _facts(preset: Preset, student: "PreTrainedConfig") -> dict[str, Any]:
    from biosqueeze.model_facts import shape_of
    from biosqueeze.models.families import family_of
    from biosqueeze.models.named.students import encoder_parameters

    shape = shape_of(student.to_dict())
    return {
        "name": preset.name,
        "family": family_of(student).name,
        "layers": shape.layers,
        "hidden": shape.hidden,
        "heads": shape.heads,
        "ffn": shape.ffn,
        "vocabulary": student.vocab_size,
        "parameters": encoder_parameters(student),
        "published_millions": preset.millions,
        "counted_in": preset.counted_in or preset.source,
        "start": f"{preset.kept_layers} layers" if preset.kept_layers else "random",
        "losses": preset.losses,
        "source": preset.source,
    }


def _blocks(reference: str, rows: list[dict[str, Any]], refused: dict[str, str]) -> Iterator[Block]:
    title = f"students; cost: operations per token of {LENGTH} tokens, {reference} = 100%"
    yield TextTable(title, _COLUMNS, tuple(tuple(_cell(row, column) for column in _COLUMNS) for row in rows))
    for name, why in refused.items():
        yield f"  {name}: {why}"


def _published(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield where the published numbers of parameters are from, if not from the paper of the shape."""
    for row in rows:
        if row["counted_in"] != row["source"]:
            yield f"  {row['name']}: published with {row['published_millions']}M parameters ({row['counted_in']})"


def _cell(row: dict[str, Any], column: str) -> str:
    if column == "parameters":
        return f"{row[column] / 1e6:.1f}M"
    if column == "cost":
        return f"{row[column]:.1%}"
    return str(row["name" if column == "student" else column])
