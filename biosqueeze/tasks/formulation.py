"""The formulation of a task: the options of how data are read and encoded, also kept in the manifest. Torch-free."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from biosqueeze.errors import UsageError
from biosqueeze.options import Bounds, Group, OnlyWith, Syntax, flag_of


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """Options of reading the data."""

    column: Annotated[
        tuple[str, ...],
        "Column (or JSON field) that holds a role, repeatable, such as text=abstract or label=class.",
        Syntax("ROLE=COLUMN"),
        Group.DATA,
    ] = ()
    types: Annotated[
        tuple[str, ...], "Entity type to keep, repeatable; all others become O (ner, pico).", Group.DATA
    ] = ()
    negative: Annotated[
        str | None,
        'Label of "no relation" (relation). Default: recognised by its usual names.',
        Group.DATA,
    ] = None

    def non_defaults(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as plain values."""
        fields = ((f.name, getattr(self, f.name), f.default) for f in dataclasses.fields(self))
        return {name: list(v) if isinstance(v, tuple) else v for name, v, default in fields if v != default}


@dataclass(frozen=True, kw_only=True)
class Formulation(ReadingOptions):
    """Options of reading and encoding a task; the defaults are the PubMedBERT study's standard setting (section 5)."""

    scheme: Annotated[
        Literal["BIO", "IO", "BIOUL"] | None,
        "Tag scheme to train with (ner, pico). Default: that of the data. Scores do not depend on it.",
        Group.TASK,
    ] = None
    label_all_pieces: Annotated[
        bool,
        "Compute the loss on every word piece of a word, not on the first alone (ner, pico).",
        OnlyWith("tagger", "linear", "bilstm", why="a CRF has one tag per word"),
        Group.TASK,
    ] = False
    merge_types: Annotated[
        bool,
        "Count all types of entities as one, without a name (ner, pico), as BLURB does with JNLPBA.",
        Group.TASK,
    ] = False
    tagger: Annotated[
        Literal["linear", "bilstm", "crf"], "Layer on the encoder that tags words (ner, pico).", Group.TASK
    ] = "linear"
    entities: Annotated[
        Literal["dummy", "markers", "original"] | None,
        "The two entities of a relation in its text: replaced by their type (dummy), between markers, or unchanged. "
        "Default: dummy.",
        Group.TASK,
    ] = None
    representation: Annotated[
        Literal["cls", "mentions", "entity-starts", "cosine"],
        "Input of the classifier: the first token; in relation also the maximum over each mention, or the first token "
        "of each entity; in similarity also the cosine of the two texts, encoded separately.",
        Group.TASK,
    ] = "cls"
    stride: Annotated[
        int | None,
        "Tokens shared by neighbouring windows of a context (qa). Default: 128, or half of the room if that is less.",
        Bounds(least=0),
        Group.TASK,
    ] = None

    @classmethod
    def from_options(cls, options: Any) -> Self:
        """Return the formulation in the options of a stage."""
        return cls(**{f.name: getattr(options, f.name) for f in dataclasses.fields(cls) if hasattr(options, f.name)})

    @classmethod
    def from_manifest(cls, chosen: Mapping[str, Any]) -> Self:
        """Restore a formulation from the fields that a manifest recorded; unknown ones are of a newer version.

        Raises:
            UsageError: the manifest names something that this version does not know.
        """
        unknown = chosen.keys() - {f.name for f in dataclasses.fields(cls)}
        if unknown:
            raise UsageError(
                f"the checkpoint was fine-tuned with {', '.join(sorted(unknown))}, which this version does not have; "
                "install the version that wrote it (see biosqueeze.json)"
            )
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in chosen.items()}
        return cls(**values)

    def with_reading_options(self, reading: ReadingOptions) -> Self:
        """Return the formulation with the reading options that differ from their defaults."""
        return dataclasses.replace(
            self, **{name: getattr(reading, name) for name in reading.non_defaults() if hasattr(self, name)}
        )

    def check_unused_options(self, task: str, used: Iterable[str]) -> None:
        """Check that the task uses every option that is set.

        Raises:
            UsageError: it does not.
        """
        unused = [name for name in self.non_defaults() if name not in used]
        if unused:
            reading = {field.name for field in dataclasses.fields(ReadingOptions)}
            # A command may have the options of reading alone.
            named = [name for name in used if name in reading or not reading.issuperset(unused)]
            flags = ", ".join(map(flag_of, unused))
            fit = ", ".join(map(flag_of, named)) or "none of them"
            raise UsageError(f"{flags} is not used by the task {task}; leave it out (its options: {fit})")
