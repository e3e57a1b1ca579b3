"""Unlabelled text of a data set on the Hugging Face Hub, streamed with `datasets` (extra `hub`)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from biosqueeze.data.lines import ByteProgress
from biosqueeze.data.records.hub import PREFIX
from biosqueeze.errors import SqueezeError, UsageError, in_one_line, require
from biosqueeze.hub_names import split_revision

if TYPE_CHECKING:
    from datasets import DatasetBuilder

EXTRA = "hub"
_SPLIT = "train"


@dataclass(frozen=True)
class HubCorpus:
    """The train split of a data set on the Hub: hub:NAME, hub:NAME:FIELD or hub:NAME:CONFIG:FIELD.

    NAME may be NAME@REVISION.
    """

    source: str
    name: str
    config: str | None = None
    field: str | None = None
    """Field that holds the text; None: as --field says."""

    @classmethod
    def parse(cls, source: str) -> "HubCorpus":
        """Parse the name of a source that begins with `hub:`; nothing is loaded.

        Raises:
            UsageError: it names no data set.
            SqueezeError: `datasets` is not installed.
        """
        name, *others = source.removeprefix(PREFIX).split(":")
        if not split_revision(name)[0] or name.endswith("@") or len(others) > 2 or not all(others):
            raise UsageError(f"{source!r} names no corpus; write hub:NAME, hub:NAME:FIELD or hub:NAME:CONFIG:FIELD")
        require("datasets", EXTRA)
        return cls(source, name, others[0] if len(others) == 2 else None, others[-1] if others else None)

    def revision(self) -> str:
        """Return what identifies the content: the commit on the Hub, or a hash of local files' sizes and times.

        Raises:
            SqueezeError: the Hub cannot be reached, or has no such data set.
        """
        with self._explained():
            return f"{self._builder().hash}/{self.config or ''}"

    def records(self) -> Iterator[Mapping[str, Any]]:
        """Stream the records; nothing is stored on disk.

        Raises:
            SqueezeError: the data set cannot be loaded, has no train split, or the connection is lost.
        """
        with self._explained():
            yield from self._builder().as_streaming_dataset(split=_SPLIT)

    def texts(self, field: str, progress: ByteProgress | None = None) -> Iterator[str]:
        """Stream the texts, each on one line; records without text are left out.

        Args:
            field: of the text, where the source names none.
            progress: is advanced by the bytes of the texts.

        Raises:
            SqueezeError: as for `records`, or a record has no such field, or the field holds no text.
        """
        for number, record in enumerate(self.records(), start=1):
            text = " ".join(self._text(record, self.field or field, number).splitlines())
            if progress is not None:
                progress.advance(len(text.encode(errors="replace")))
            yield text

    def _text(self, record: Mapping[str, Any], field: str, number: int) -> str:
        names = f"one of: {', '.join(record)}"
        if field not in record:
            raise SqueezeError(f"{self.source} has no field {field!r}; write hub:{self.name}:FIELD with {names}")
        text = record[field]
        if not isinstance(text, str | None):
            raise SqueezeError(
                f"{self.source}:{number}: field {field!r} is a {type(text).__name__}, not text; name {names}"
            )
        return text or ""

    def _builder(self) -> "DatasetBuilder":
        name, revision = split_revision(self.name)
        load = require("datasets", EXTRA).load_dataset_builder
        builder: DatasetBuilder = load(name, self.config, revision=revision)
        return builder

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of `datasets` into messages for the user; loading scripts are never run."""
        from huggingface_hub.errors import HfHubHTTPError

        datasets = require("datasets", EXTRA)
        connection = HfHubHTTPError.__bases__  # OSError, and the error of the HTTP library in use
        errors = (*connection, ValueError, RuntimeError, datasets.exceptions.DatasetsError)
        try:
            yield
        except errors as error:
            reason = in_one_line(error)
            raise SqueezeError(
                f"datasets cannot read {self.source} ({reason}); check the name and the connection, or write "
                "hub:NAME:CONFIG:FIELD to name a configuration"
            ) from error
