"""Read the records of a Parquet file, as data sets of the Hugging Face Hub have them."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from biosqueeze.corpora.article import Article
from biosqueeze.corpora.records import FIELDS, article_of_record
from biosqueeze.corpora.xml_stream import DamagedSourceError

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
        for number, (record, columns) in enumerate(self._records({field, *FIELDS}), start=1):
            yield article_of_record(record, field, f"record {number}", columns)

    def _records(self, names: set[str]) -> Iterator[tuple[dict[str, Any], list[str]]]:
        """Yield the columns of some names of each record, and the names of all columns."""
        import pyarrow
        from pyarrow import parquet

        size = self._path.stat().st_size
        try:
            with parquet.ParquetFile(self._path) as file:
                every = file.schema_arrow.names
                columns = [name for name in every if name in names]
                rows = max(1, file.metadata.num_rows)
                for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns):
                    yield from ((record, every) for record in batch.to_pylist())
                    self._advance(size * len(batch) // rows)
        except (OSError, pyarrow.ArrowException) as error:
            raise DamagedSourceError(f"it cannot be read as Parquet ({' '.join(str(error).split())})") from error

    def sha256(self) -> str:
        """Return the SHA-256 of the file."""
        with self._path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
