"""Read the records of a Parquet file, as data sets of the Hugging Face Hub have them."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from biosqueeze.corpora.article import Article
from biosqueeze.corpora.records import FIELDS, article_of_record
from biosqueeze.corpora.xml_stream import DamagedSourceError
from biosqueeze.errors import in_one_line

SUFFIX = ".parquet"
_ROWS_AT_ONCE = 1000


class ParquetRecords:
    """The records of a Parquet file, read a thousand at a time; other columns than those of an article are not read."""

    def __init__(self, path: Path, advance: Callable[[int], None]) -> None:
        self._path, self._advance = path, advance

    def articles(self, field: str) -> Iterator[Article]:
        """Yield the articles; `field` holds the text.

        Raises:
            DamagedSourceError: the file is damaged, or a record has none of the fields.
        """
        size = self._path.stat().st_size
        with _opened(self._path) as file:
            names = file.schema_arrow.names
            columns = [name for name in names if name in (field, *FIELDS)]
            rows, numbers = max(1, file.metadata.num_rows), count(1)
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns):
                for record in batch.to_pylist():
                    yield article_of_record(record, field, f"record {next(numbers)}", names)
                self._advance(size * len(batch) // rows)

    def sha256(self) -> str:
        """Return the SHA-256 of the file."""
        with self._path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a Parquet file with all columns.

    Raises:
        DamagedSourceError: the file is damaged.
    """
    with _opened(path) as file:
        for batch in file.iter_batches(_ROWS_AT_ONCE):
            yield from batch.to_pylist()


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (OSError, pyarrow.ArrowException) as error:
        raise DamagedSourceError(f"it cannot be read as Parquet ({in_one_line(error)})") from error
