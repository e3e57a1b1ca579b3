"""Read data sets with the `datasets` package (extra `hub`): by their name on the Hub, saved to disk, or as Parquet."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biosqueeze.data.records.parquet import load_parquet, parquet_files, parquet_splits
from biosqueeze.data.records.record import DataRecord
from biosqueeze.data.records.splits import SPELLINGS, files_named_as_splits, open_directory
from biosqueeze.errors import SqueezeError, UsageError, in_one_line, require
from biosqueeze.hub_names import split_revision
from biosqueeze.progress import note, warn_once

if TYPE_CHECKING:
    from datasets import Dataset

PREFIX = "hub:"
_OF_DATASETS = ("dataset_dict.json", "dataset_info.json")  # files of `save_to_disk`


def is_hub(source: str) -> bool:
    """Return whether a source is a name on the Hub: hub:NAME or hub:NAME:CONFIG; NAME may be NAME@REVISION."""
    return source.startswith(PREFIX)


def is_saved(directory: Path) -> bool:
    """Return whether `datasets` saved this directory, or its splits are Parquet files as on the Hub.

    A directory with files that are named for splits, such as train.tsv, is neither; warn of what is then not read.

    Raises:
        SqueezeError: Parquet files are missing, or there are two sets of them.
    """
    saved = [path for name in _OF_DATASETS if (path := directory / name).is_file()]
    if not (named := files_named_as_splits(directory)):
        return bool(saved or parquet_splits(directory))
    if others := saved + parquet_files(directory):
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        warn_once(
            directory,
            f"{directory}: the files named for splits, such as {named[0].name}, are read; not read: "
            f"{others[0].relative_to(directory)}{more}",
        )
    return False


def is_hub_or_saved(source: str) -> bool:
    """Return whether the `datasets` package reads a source: a name on the Hub, or a directory as in `is_saved`.

    Raises:
        SqueezeError: there is no such directory.
    """
    return is_hub(source) or is_saved(open_directory(source))


def read_hub(source: str, splits: Sequence[str]) -> dict[str, list[DataRecord]]:
    """Load splits of a data set by its name on the Hub; loading scripts are never run.

    Raises:
        SqueezeError: `datasets` is not installed or cannot load it, or a split is missing or empty.
    """
    return _read_splits(_load_hub(source), source, splits)


def hub_splits(source: str) -> tuple[str, ...]:
    """Return which of train, dev and test a data set on the Hub has."""
    return _splits_in(_load_hub(source))


def read_saved(directory: Path, splits: Sequence[str]) -> dict[str, list[DataRecord]]:
    """Read splits of a data set that `DatasetDict.save_to_disk` wrote, or of Parquet files, which are logged.

    Raises:
        SqueezeError: `datasets` is not installed or cannot read it, or a split is missing or empty.
    """
    for name, files in parquet_splits(directory).items():
        if any(name in SPELLINGS[split] for split in splits):
            more = f" and {len(files) - 1} more" if len(files) > 1 else ""
            note(f"{directory}: {name} is {files[0].relative_to(directory)}{more}")
    return _read_splits(_load_saved(directory), str(directory), splits)


def saved_splits(directory: Path) -> tuple[str, ...]:
    """Return which of train, dev and test a saved data set has."""
    return _splits_in(_load_saved(directory))


def first_records(source: str, count: int) -> list[DataRecord]:
    """Return the first records of the first split of a data set on the Hub or saved to disk.

    Raises:
        SqueezeError: `datasets` is not installed or cannot load it, or it has no known split.
    """
    loaded = _load_hub(source) if is_hub(source) else _load_saved(Path(source).expanduser())
    name = next((name for names in SPELLINGS.values() for name in names if name in loaded), None)
    if name is None:
        raise SqueezeError(f"{source} has none of the splits {', '.join(SPELLINGS)}; it has {', '.join(loaded)}")
    dataset = loaded[name]
    return list(_records(dataset.select(range(min(count, len(dataset)))), f"{source}:{name}"))


def _load_hub(source: str) -> "Mapping[str, Dataset]":
    name, _, config = source.removeprefix(PREFIX).partition(":")
    plain, revision = split_revision(name)
    if not plain or name.endswith("@"):
        raise UsageError(f"{source!r} names no data set; write hub:NAME, hub:NAME@REVISION or hub:NAME:CONFIG")
    datasets = require("datasets", "hub")
    try:
        loaded: Mapping[str, Dataset] = datasets.load_dataset(plain, config or None, revision=revision)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise SqueezeError(
            f"datasets cannot load {source} ({in_one_line(error)}); check the name, and the configuration in "
            "hub:NAME:CONFIG"
        ) from error
    return loaded


def _load_saved(directory: Path) -> "Mapping[str, Dataset]":
    datasets = require("datasets", "hub")
    if files := parquet_splits(directory):
        return load_parquet(files)
    if not (directory / "dataset_dict.json").is_file():
        raise SqueezeError(
            f"{directory} is one saved Dataset without splits; save a DatasetDict with train, dev and test, "
            f"or name the directory above: {directory.parent}"
        )
    try:
        loaded: Mapping[str, Dataset] = datasets.load_from_disk(str(directory))
    except (OSError, ValueError, RuntimeError, LookupError) as error:
        raise SqueezeError(
            f"datasets cannot read {directory} ({in_one_line(error)}): it is damaged, or a split of it is empty; "
            "save it again with DatasetDict.save_to_disk"
        ) from error
    return loaded


def _splits_in(loaded: "Mapping[str, Dataset]") -> tuple[str, ...]:
    return tuple(split for split, names in SPELLINGS.items() if any(name in loaded for name in names))


def _read_splits(loaded: "Mapping[str, Dataset]", source: str, splits: Sequence[str]) -> dict[str, list[DataRecord]]:
    records = {}
    for split in splits:
        name = next((name for name in SPELLINGS[split] if name in loaded), None)
        if name is None:
            raise SqueezeError(
                f"{source} has no {split} split: looked for {', '.join(SPELLINGS[split])}; it has {', '.join(loaded)}; "
                "rename one, or name another data set"
            )
        records[split] = list(_records(loaded[name], f"{source}:{name}"))
        if not records[split]:
            raise SqueezeError(f"{source} is empty: its {name} split holds no record; name another data set")
    return records


def _records(dataset: "Dataset", where: str) -> Iterator[DataRecord]:
    for number, row in enumerate(dataset, start=1):
        yield DataRecord(f"{where}:{number}", {name: _decoded(dataset.features[name], row[name]) for name in row})


def _decoded(feature: Any, value: Any) -> Any:
    """Replace the numbers of classes by their names, at any depth; -1 (no class) and NaN become None."""
    if value is None:
        return None
    if hasattr(feature, "int2str"):
        return None if value == -1 else feature.int2str(value)
    if isinstance(feature, Mapping):
        return {key: _decoded(feature[key], item) for key, item in value.items()}
    inner = feature[0] if isinstance(feature, list) else getattr(feature, "feature", None)
    if inner is None:
        return None if isinstance(value, float) and math.isnan(value) else value  # as in JSON lines
    if isinstance(inner, Mapping) and isinstance(value, Mapping):  # an old Sequence of objects: an object of lists
        return {key: [_decoded(inner[key], item) for item in items] for key, items in value.items()}
    return [_decoded(inner, item) for item in value]
