"""The log of a training: one JSON object a line."""

import json
from pathlib import Path
from typing import Any


def read_log(directory: Path | str) -> list[dict[str, Any]]:
    text = Path(directory, "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def log_of(directory: Path | str) -> list[dict[str, Any]]:
    """Return the lines without their times, so that two trainings can be compared."""
    return [{name: value for name, value in line.items() if name != "seconds"} for line in read_log(directory)]
