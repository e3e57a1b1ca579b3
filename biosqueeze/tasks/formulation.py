"""How a task is read and posed: said once here, shown as flags by the stages, kept in the manifest. Torch-free."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from biosqueeze.errors import UsageError
from biosqueeze.options import Bounds, Group, OnlyWith, Syntax


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """How the data are read."""

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

    def chosen(self) -> dict[str, Any]:
        """The fields that are not at their defaults, as plain values."""
        fields = ((f.name, getattr(self, f.name), f.default) for f in dataclasses.fields(self))
        return {name: list(v) if isinstance(v, tuple) else v for name, v, default in fields if v != default}


@dataclass(frozen=True, kw_only=True)
class Formulation(ReadingOptions):
    """How a task is posed to the model; the defaults are what the PubMedBERT study (section 5) calls standard."""

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
    def of(cls, options: Any) -> Self:
        """The part of a stage's options that is about the task."""
        return cls(**{f.name: getattr(options, f.name) for f in dataclasses.fields(cls) if hasattr(options, f.name)})

    @classmethod
    def noted(cls, chosen: Mapping[str, Any]) -> Self:
        """Restore a formulation from the fields that a manifest recorded; unknown ones are of a newer version.

        Raises:
            UsageError: the manifest names something that this version does not know.
        """
        unknown = chosen.keys() - {f.name for f in dataclasses.fields(cls)}
        if unknown:
            raise UsageError(
                f"the checkpoint was fine-tuned with {', '.join(sorted(unknown))}, which this version does not know; "
                "install the version that made it (see biosqueeze.json)"
            )
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in chosen.items()}
        return cls(**values)

    def with_reading(self, reading: ReadingOptions) -> Self:
        """The same with what a command line says of reading, where it says anything."""
        return dataclasses.replace(
            self, **{name: getattr(reading, name) for name in reading.chosen() if hasattr(self, name)}
        )

    def refuse_unused(self, task: str, used: Iterable[str]) -> None:
        """No option is ignored in silence.

        Raises:
            UsageError: something is set that the task kind does not read.
        """
        unused = [name for name in self.chosen() if name not in used]
        if unused:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in unused)
            fit = ", ".join(f"--{name.replace('_', '-')}" for name in used) or "none of them"
            raise UsageError(f"{flags} means nothing to the task {task}; leave it out (it takes {fit})")
