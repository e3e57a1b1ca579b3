"""Find and read the Parquet files of a data set, laid out as on the Hugging Face Hub."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from biosqueeze.data.records.splits import SPELLINGS
from biosqueeze.errors import SqueezeError, in_one_line, require
from biosqueeze.files import is_lfs_pointer, lfs_pointer_error

if TYPE_CHECKING:
    from datasets import Dataset

_OF = re.compile(r"-\d{5}-of-(\d{5})(-[0-9a-f]{16})?\.parquet$")  # and a fingerprint in older ones
_SHARDS = ("?????-of-?????", f"?????-of-?????-{'[0-9a-f]' * 16}")


def parquet_splits(directory: Path) -> dict[str, list[Path]]:
    """Return the Parquet files of each split of a directory, or else of its folder `data`; {} where there are none.

    They are train.parquet, train-00000-of-00002.parquet (also with a fingerprint, as older releases of `datasets` wrote
    them) and so on, or the files of a folder `train`.

    Raises:
        SqueezeError: a split has files of two of these forms, or one of its shards is missing.
    """
    for folder in (directory, directory / "data"):
        found = {name: files for names in SPELLINGS.values() for name in names if (files := _files(folder, name))}
        if found:
            return found
    return {}


def parquet_files(directory: Path) -> list[Path]:
    """Return the Parquet files of a directory and of its folder `data` that are named for a split."""
    folders, names = (directory, directory / "data"), [name for names in SPELLINGS.values() for name in names]
    return [path for folder in folders for name in names for paths in _forms(folder, name) for path in paths]


def _forms(folder: Path, name: str) -> list[list[Path]]:
    patterns = (f"{name}.parquet", *(f"{name}-{shard}.parquet" for shard in _SHARDS), f"{name}/*.parquet")
    return [sorted(paths) for pattern in patterns if (paths := list(folder.glob(pattern)))]


def _files(folder: Path, name: str) -> list[Path]:
    forms = _forms(folder, name)
    if not forms:
        return []
    if len(forms) > 1:
        raise SqueezeError(
            f"{folder} has two sets of Parquet files of its {name} split, {forms[0][0].name} and {forms[1][0].name}; "
            "remove one"
        )
    count = _OF.search(forms[0][0].name)
    if count and int(count[1]) != len(forms[0]):
        raise SqueezeError(
            f"{folder} has {len(forms[0])} of the {int(count[1])} Parquet files of its {name} split; copy the others"
        )
    return forms[0]


def load_parquet(splits: Mapping[str, Sequence[Path]]) -> "dict[str, Dataset]":
    """Read the files of each split; nothing is copied into a cache.

    Raises:
        SqueezeError: `datasets` is not installed, or a file is damaged or has other columns than the first.
    """
    return {name: _load(files) for name, files in splits.items()}


def _load(files: Sequence[Path]) -> "Dataset":
    datasets = require("datasets", "hub")
    import pyarrow
    from pyarrow import parquet

    tables = []
    for path in files:
        try:
            tables.append(parquet.ParquetFile(path).read())
        except (OSError, pyarrow.ArrowException) as error:
            if is_lfs_pointer(path):
                raise lfs_pointer_error(path, "the data") from error
            reason = in_one_line(error)
            raise SqueezeError(f"{path} cannot be read as Parquet ({reason}); copy it again") from error
    try:
        return datasets.Dataset(pyarrow.concat_tables(tables))
    except (ValueError, pyarrow.ArrowException) as error:
        raise SqueezeError(f"{files[0].parent}: the Parquet files of a split differ in their columns") from error
