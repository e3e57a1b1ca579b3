"""Data sets of the `datasets` package (extra `hub`): by their name on the Hub, or saved to disk."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biosqueeze.data.record import DataRecord
from biosqueeze.data.splits import STEMS
from biosqueeze.errors import SqueezeError, UsageError, require

if TYPE_CHECKING:
    from datasets import Dataset

PREFIX = "hub:"


def is_hub(source: str) -> bool:
    """Whether a source is a name on the Hub: hub:NAME or hub:NAME:CONFIG."""
    return source.startswith(PREFIX)


def is_saved(directory: Path) -> bool:
    """Whether `datasets` saved this directory."""
    return any((directory / name).is_file() for name in ("dataset_dict.json", "dataset_info.json"))


def read_hub(source: str, splits: Sequence[str]) -> dict[str, list[DataRecord]]:
    """Load splits of a data set by its name; code that comes with it is never run.

    Raises:
        SqueezeError: `datasets` is not installed or cannot load it, or a split is missing or empty.
    """
    return _splits(_load_hub(source), source, splits)


def hub_splits(source: str) -> tuple[str, ...]:
    """Which of train, dev and test it has."""
    return _known(_load_hub(source))


def read_saved(directory: Path, splits: Sequence[str]) -> dict[str, list[DataRecord]]:
    """Read splits of a data set that `DatasetDict.save_to_disk` wrote.

    Raises:
        SqueezeError: `datasets` is not installed or cannot read it, or a split is missing or empty.
    """
    return _splits(_load_saved(directory), str(directory), splits)


def saved_splits(directory: Path) -> tuple[str, ...]:
    """Which of train, dev and test it has."""
    return _known(_load_saved(directory))


def _load_hub(source: str) -> "Mapping[str, Dataset]":
    name, _, config = source.removeprefix(PREFIX).partition(":")
    if not name:
        raise UsageError(f"{source!r} names no data set; write hub:NAME or hub:NAME:CONFIG")
    datasets = require("datasets", "hub")
    try:
        loaded: Mapping[str, Dataset] = datasets.load_dataset(name, config or None)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise SqueezeError(
            f"datasets cannot load {source} ({_line(error)}); check the name, and the configuration in hub:NAME:CONFIG"
        ) from error
    return loaded


def _load_saved(directory: Path) -> "Mapping[str, Dataset]":
    datasets = require("datasets", "hub")
    if not (directory / "dataset_dict.json").is_file():
        raise SqueezeError(
            f"{directory} is one saved Dataset without splits; save a DatasetDict with train, dev and test, "
            f"or name the directory above: {directory.parent}"
        )
    try:
        loaded: Mapping[str, Dataset] = datasets.load_from_disk(str(directory))
    except (OSError, ValueError, RuntimeError, LookupError) as error:
        raise SqueezeError(
            f"datasets cannot read {directory} ({_line(error)}): it is damaged, or a split of it is empty; "
            "save it again with DatasetDict.save_to_disk"
        ) from error
    return loaded


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _known(loaded: "Mapping[str, Dataset]") -> tuple[str, ...]:
    return tuple(split for split, stems in STEMS.items() if any(stem in loaded for stem in stems))


def _splits(loaded: "Mapping[str, Dataset]", source: str, splits: Sequence[str]) -> dict[str, list[DataRecord]]:
    names = {split: next((stem for stem in STEMS[split] if stem in loaded), None) for split in splits}
    records = {}
    for split, name in names.items():
        if name is None:
            raise SqueezeError(
                f"{source} has no {split} split: looked for {', '.join(STEMS[split])}; it has {', '.join(loaded)}; "
                "rename one, or name another data set"
            )
        records[split] = list(_records(loaded[name], f"{source}:{name}"))
        if not records[split]:
            raise SqueezeError(f"{source} is empty: its {name} split holds no record; name another data set")
    return records


def _records(dataset: "Dataset", where: str) -> Iterator[DataRecord]:
    for number, row in enumerate(dataset, start=1):
        yield DataRecord(f"{where}:{number}", {name: _named(dataset.features[name], row[name]) for name in row})


def _named(feature: Any, value: Any) -> Any:
    """A value with the names of its classes in place of their numbers, at any depth; no class (-1) is None."""
    if value is None:
        return None
    if hasattr(feature, "int2str"):
        return None if value == -1 else feature.int2str(value)
    if isinstance(feature, Mapping):
        return {key: _named(feature[key], item) for key, item in value.items()}
    inner = feature[0] if isinstance(feature, list) else getattr(feature, "feature", None)
    if inner is None:
        return value
    if isinstance(inner, Mapping) and isinstance(value, Mapping):  # an old Sequence of objects: an object of lists
        return {key: [_named(inner[key], one) for one in items] for key, items in value.items()}
    return [_named(inner, item) for item in value]
