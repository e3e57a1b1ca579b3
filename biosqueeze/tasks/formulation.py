"""How a task is read and posed: said once here, shown as flags by the stages, kept in the manifest. Torch-free."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from biosqueeze.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """How the data are read."""

    column: Annotated[
        tuple[str, ...], "ROLE=COLUMN, repeatable: which column holds what, such as text=abstract or label=class."
    ] = ()
    types: Annotated[tuple[str, ...], "Entity type to keep, repeatable; the others count as no entity."] = ()
    negative: Annotated[str | None, "Label that means no relation; recognised by its usual names if left out."] = None

    def chosen(self) -> dict[str, Any]:
        """The fields that are not at their defaults, as plain values."""
        fields = ((f.name, getattr(self, f.name), f.default) for f in dataclasses.fields(self))
        return {name: list(v) if isinstance(v, tuple) else v for name, v, default in fields if v != default}


@dataclass(frozen=True, kw_only=True)
class Formulation(ReadingOptions):
    """How a task is posed to the model; the defaults are what the PubMedBERT study (section 5) calls standard."""

    scheme: Annotated[
        Literal["BIO", "IO", "BIOUL"] | None,
        "Tags to train entities with; the data's own if left out. Scores do not depend on how a file writes them.",
    ] = None
    label_all_pieces: Annotated[bool, "Train on every sub-word of a word, and not on its first alone."] = False
    tagger: Annotated[Literal["linear", "bilstm", "crf"], "Layer over the encoder that tags words."] = "linear"
    entities: Annotated[
        Literal["dummy", "markers", "original"] | None,
        "A relation's two entities: replaced by their type (the default), between markers, or as they stand.",
    ] = None
    representation: Annotated[
        Literal["cls", "mentions", "entity-starts", "cosine"],
        "What is read: the first token; of a relation its mentions (their maximum), or where each entity starts; of a "
        "similarity the cosine of the two texts, each encoded by itself.",
    ] = "cls"
    stride: Annotated[int | None, "Tokens that neighbouring windows of a question's context share."] = None

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
