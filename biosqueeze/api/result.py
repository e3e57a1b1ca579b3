"""The result of a stage, for Python."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from biosqueeze.errors import UsageError


@dataclass(frozen=True)
class Result(Mapping[str, Any]):
    """What a command prints with --json: `path` and facts, as a mapping and as attributes.

    `result["metrics"]` and `result.metrics` are the same; `dict(result)` is the JSON object.
    """

    path: Path
    """The checkpoint or file that was written, or the one that was read."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    lines: Iterator[str] | None = field(default=None, compare=False, repr=False)
    """Of `predict` without `out`: chunks of whole lines, computed as they are read."""

    def __getitem__(self, name: str) -> Any:
        return str(self.path) if name == "path" else self.facts[name]

    def __iter__(self) -> Iterator[str]:
        yield "path"
        yield from self.facts

    def __len__(self) -> int:
        return 1 + len(self.facts)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "facts" or name not in self.facts:
            raise AttributeError(
                f"the result has no {name!r}; it has {', '.join(self) if 'facts' in vars(self) else ''}"
            )
        return self.facts[name]

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def predictions(self) -> Iterator[dict[str, Any]]:
        """The predictions of `predict` without `out`, one dict for each record, computed as they are read.

        Raises:
            UsageError: there are none, or they are no JSON.
        """
        if self.lines is None:
            raise UsageError(f"only predict without `out` has predictions in its result; this one wrote {self.path}")
        for chunk in self.lines:
            # str.splitlines would also split at line ends of Unicode, which a text may have.
            yield from map(_prediction, filter(None, chunk.split("\n")))


def _prediction(line: str) -> dict[str, Any]:
    try:
        prediction: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise UsageError("predictions need --format jsonl; those in PubTator are read from `lines`") from error
    return prediction
