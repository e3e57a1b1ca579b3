"""Unlabelled text, one sentence or document per line: files, .gz, JSONL, directories of them, the Hub, or demo:text."""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from biosqueeze.data.demo import demo_text
from biosqueeze.data.lines import ByteProgress, check_characters, data_suffix, is_beside_data, numbered_lines
from biosqueeze.data.records.hub import is_hub
from biosqueeze.data.records.splits import shortened
from biosqueeze.data.text.hub_corpus import HubCorpus
from biosqueeze.data.text.text_check import check_is_text, text_problem
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.files import read_json
from biosqueeze.files.parsing import parse_json
from biosqueeze.progress import counted, note, quietly

DEMO = "demo:text"
MANIFEST = "corpus.json"
"""The file that `biosqueeze corpus` writes last; the shards that it names are the whole corpus."""
_SHARD = re.compile(r"\d{6}-\d{3}\.txt\.gz")
_UNFINISHED = ".partial"
_TEXT = {".txt", ".text"}
_JSONL = {".jsonl", ".ndjson"}
_NEVER_TEXT = {
    ".json", ".csv", ".tsv", ".xml", ".nxml", ".html", ".pdf", ".parquet", ".arrow", ".zip", ".bz2", ".xz", ".zst",
}  # fmt: skip
_OF_TOKENIZERS = {"vocab.txt", "merges.txt"}
_BESIDE_TOKENIZERS = ("tokenizer_config.json", "tokenizer.json", "config.json")
_BEGINNING = 1 << 20  # characters in which blank lines between documents are looked for


def read_lines(source: str, field: str = "text") -> Iterator[str]:
    """Stream the non-blank lines of a corpus, without line ends and outer white space.

    Args:
        source: a file (.txt, .jsonl, either with .gz; any other name is read as text), a directory of such
            files (read recursively, in sorted order; of a built corpus the shards to train on), hub:NAME[:FIELD],
            or `demo:text`.
        field: the field of a record (JSONL, or of the Hub) that holds the text.

    Raises:
        SqueezeError: the source does not exist (raised at once), a line cannot be read, or there is no text (raised
            during iteration).
    """
    return read_files(source, corpus_files(source), field)


def find_corpus(source: str) -> Path | None:
    """Return the path of a corpus, or None for the built-in sample and for the Hub; nothing is read.

    Raises:
        SqueezeError: there is no such path, or `datasets`, which reads the Hub, is not installed.
        UsageError: there is no such built-in corpus, or no name after hub:.
    """
    if is_hub(source):
        HubCorpus.parse(source)
        return None
    if source.startswith("demo:"):
        if source != DEMO:
            raise UsageError(f"there is no corpus called {source}; the built-in sample is {DEMO}")
        return None
    path = Path(source).expanduser()
    if not path.exists():
        raise SqueezeError(
            f"there is no corpus {source}; give a text file, a .jsonl, a directory of them, hub:NAME, or {DEMO}"
        )
    return path


def is_stream(source: str) -> bool:
    """Return whether a source is a pipe, which can be read only once."""
    path = Path(source).expanduser()
    return not is_hub(source) and path.exists() and not path.is_file() and not path.is_dir()


def corpus_files(source: str) -> tuple[Path, ...]:
    """Return the files of a corpus in reading order; none for the built-in sample and for the Hub.

    Raises:
        SqueezeError: there is no such path, or it holds no corpus file.
    """
    path = find_corpus(source)
    if path is None:
        return ()
    if is_built(path):
        return _shards_of(path, "train")
    if path.is_dir():
        return _files_in(path)
    if data_suffix(path) in _NEVER_TEXT:
        raise SqueezeError(
            f"{source} is {data_suffix(path)}, not a corpus: expected .txt (one sentence or document per line) "
            "or .jsonl, either with .gz"
        )
    if path.is_file():
        check_is_text(path)
    return (path,)


def check_field(flag: str, sources: Sequence[str]) -> None:
    """Check that an option which names the field of a record is of use: that a corpus has records.

    Raises:
        SqueezeError: a corpus does not exist.
        UsageError: none has.
    """
    with quietly():  # files that are skipped were named when the corpus was found
        files = [path for source in sources if not is_hub(source) for path in corpus_files(source)]
    if not any(map(is_hub, sources)) and not any(data_suffix(path) in _JSONL for path in files):
        raise UsageError(f"{flag} is for JSON lines ({', '.join(sorted(_JSONL))}), and no corpus is; leave it out")


def content_hash(source: str) -> str:
    """Return what identifies the text of a corpus without files: the built-in sample, or revision and field on the Hub.

    Raises:
        SqueezeError: the Hub cannot be reached, or has no such data set.
    """
    if is_hub(source):
        corpus = HubCorpus.parse(source)
        return f"{corpus.revision()}/{corpus.field or ''}"
    return hashlib.sha256(json.dumps(demo_text()).encode()).hexdigest()


def held_out_files(source: str) -> tuple[Path, ...]:
    """Return the shards of the held-out share of a built corpus; none for any other corpus.

    Raises:
        SqueezeError: as for `corpus_files`.
    """
    path = find_corpus(source)
    return _shards_of(path, "held-out") if path is not None and is_built(path) else ()


def _shards_of(directory: Path, split: str) -> tuple[Path, ...]:
    """Return the shards of one split of a built corpus; the held-out share is in a directory below.

    Raises:
        SqueezeError: the manifest is damaged, or a shard is missing.
    """
    shards = read_json(directory / MANIFEST).get("shards")
    try:
        files = tuple(directory / shard["name"] for shard in shards or () if shard["split"] == split)
    except (TypeError, KeyError) as error:
        raise SqueezeError(f"{directory / MANIFEST} names no shards; build the corpus again") from error
    missing = next((file for file in files if not file.is_file()), None)
    if missing is not None or (not files and split == "train"):
        raise SqueezeError(f"{directory} lacks {missing or 'all shards'}; build the corpus again")
    return files


def files_below(directory: Path) -> list[Path]:
    """Return the files below a directory in sorted order: of a built corpus its shards to train on, no hidden ones.

    An output that is being written (OUT.partial), or whose writing was interrupted, is left out: it may be in the
    directory that it is made of. Links to directories, which may lead back, are not followed, but logged.

    Raises:
        SqueezeError: the manifest of a corpus is damaged, or a shard is missing.
    """
    files: list[Path] = []
    for name, folders, names in os.walk(directory):
        folder = Path(name)
        built = is_built(folder)
        folders[:] = [each for each in folders if not (built or each.startswith(".") or each.endswith(_UNFINISHED))]
        if built:
            files += _shards_of(folder, "train")
            if held_out := _shards_of(folder, "held-out"):
                number = counted(len(held_out), "file")
                note(f"{folder} is a built corpus: its held-out documents ({number}) are not read")
        else:
            if links := [str(folder / each) for each in folders if (folder / each).is_symlink()]:
                note(f"links to directories are not followed: {', '.join(links)}; name such a directory itself")
            paths = (folder / each for each in names if not each.startswith("."))
            files += [path for path in paths if path.is_file()]
    return sorted(files)


def is_built(folder: Path) -> bool:
    """Return whether a folder holds a corpus: any other file may have the name of the manifest.

    A damaged manifest is known by the shards beside it, and where all of these are missing, the manifest names them.
    """
    if not (folder / MANIFEST).is_file():
        return False
    if any(_SHARD.fullmatch(path.name) for path in (*folder.glob("*.txt.gz"), *folder.glob("held-out/*.txt.gz"))):
        return True
    try:
        return "shards" in read_json(folder / MANIFEST)
    except SqueezeError:
        return False


def _files_in(directory: Path) -> tuple[Path, ...]:
    files, others = list[Path](), list[Path]()
    for path in files_below(directory):
        is_read = data_suffix(path) in _TEXT | _JSONL and not is_beside_data(path) and not _is_vocabulary(path)
        (files if is_read else others).append(path)
    if not files:
        raise SqueezeError(f"{directory} holds no .txt or .jsonl file (.gz allowed); name the corpus file itself")
    check_is_text(files[0])
    note_skipped(directory, len(files), others)
    return tuple(files)


def _is_vocabulary(path: Path) -> bool:
    """Return whether a file is that of a tokenizer, which may have been written below the text that it is made of."""
    return path.name in _OF_TOKENIZERS and any((path.parent / name).is_file() for name in _BESIDE_TOKENIZERS)


def note_skipped(directory: Path, read: int, others: Sequence[Path]) -> None:
    """Log the files of a directory that are not read, if there are any."""
    if others:
        names = shortened([path.name for path in others], 3)
        note(f"corpus {directory}: {counted(read, 'file')} read; skipped {names}")


def read_files(source: str, files: tuple[Path, ...], field: str, progress: ByteProgress | None = None) -> Iterator[str]:
    """Stream the lines of corpus files, as `read_lines`.

    Args:
        source: the name of the corpus in error messages.
        files: as `corpus_files` returns them.
        field: the field of a record that holds the text.
        progress: is advanced by the bytes of the files (the Hub: of the texts) that are read.

    Raises:
        SqueezeError: a line cannot be read, or there is no text.
    """
    empty = True
    streams = (_texts(path, field, progress) for path in files) if files else (_unfiled(source, field, progress),)
    for line in chain.from_iterable(streams):
        text = line.strip()
        if text:
            empty = False
            yield text
    if empty:
        raise _empty(source)


def _unfiled(source: str, field: str, progress: ByteProgress | None) -> Iterator[str]:
    """Stream the texts of a corpus without files."""
    return HubCorpus.parse(source).texts(field, progress) if is_hub(source) else iter(demo_text())


def _empty(source: str) -> SqueezeError:
    return SqueezeError(f"the corpus {source} is empty: no line of it holds text; check that it was written in full")


def read_text_documents(source: str, field: str = "text") -> Iterator[list[str]]:
    """Stream the documents of a corpus as their lines, which are not blank.

    In a file with blank lines, as `biosqueeze corpus` writes it, these separate the documents; in any other file each
    line is one, and of the Hub each record.

    Args:
        source: as for `read_lines`.
        field: the field of a record that holds the text.

    Raises:
        SqueezeError: as for `read_lines`.
    """
    return read_documents(source, corpus_files(source), field)


def read_documents(
    source: str, files: tuple[Path, ...], field: str, progress: ByteProgress | None = None
) -> Iterator[list[str]]:
    """Stream the documents of corpus files, as `read_text_documents`; the arguments are those of `read_files`.

    Raises:
        SqueezeError: a line cannot be read, or there is no text.
    """
    if not files:
        yield from ([text] for text in read_files(source, files, field, progress))
        return
    empty = True
    for path in files:
        lines = (line.strip() for line in _texts(path, field, progress))
        for document in _divided(path, lines):
            empty = False
            yield document
    if empty:
        raise _empty(source)


def _divided(path: Path, lines: Iterator[str]) -> Iterator[list[str]]:
    if data_suffix(path) in _JSONL:
        return ([line] for line in lines if line)
    return divide_into_documents(lines, in_blocks=is_shard(path))


def is_shard(path: Path) -> bool:
    """Return whether a file is a shard of a built corpus: a blank line follows each document, even a single one."""
    return _SHARD.fullmatch(path.name) is not None and any((folder / MANIFEST).is_file() for folder in path.parents[:2])


def divide_into_documents(lines: Iterator[str], *, in_blocks: bool = False) -> Iterator[list[str]]:
    """Divide a file at its blank lines if its beginning has any between others, else after each line.

    A pipe is read only once.

    Args:
        lines: without outer white space.
        in_blocks: whether blank lines divide it, however it begins.
    """
    if in_blocks:
        return _blocks(lines)
    beginning, size = [], 0
    for line in lines:
        beginning.append(line)
        size += len(line) + 1
        if size >= _BEGINNING:
            break
    stream = chain(beginning, lines)
    inner = "\n".join(beginning).strip("\n")
    return _blocks(stream) if "\n\n" in inner else ([line] for line in stream if line)


def _blocks(lines: Iterator[str]) -> Iterator[list[str]]:
    block: list[str] = []
    for line in lines:
        if line:
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _texts(path: Path, field: str, progress: ByteProgress | None) -> Iterator[str]:
    lines = numbered_lines(path, progress)
    if data_suffix(path) in _JSONL:
        return (_field_of(line, field, f"{path}:{number}") for number, line in lines if line.strip())
    return _plain(lines, path)


def _plain(lines: Iterator[tuple[int, str]], path: Path) -> Iterator[str]:
    """Yield the lines of a text.

    Raises:
        SqueezeError: the first that is not blank begins another format, such as JSON lines from a pipe.
    """
    for number, line in lines:
        if problem := text_problem(line):
            raise SqueezeError(f"{path}:{number}: {problem}")
        yield line
        if line.strip():
            break
    yield from (line for _, line in lines)


def text_share(files: Sequence[Path], field: str) -> float:
    """Return the share of the text in the bytes of files of one format: 1, but for JSON lines; from the first one.

    Raises:
        SqueezeError: a line of it cannot be read.
    """
    first = files[0]
    if data_suffix(first) not in _JSONL or not first.is_file():
        return 1.0
    size = text = 0
    for number, line in numbered_lines(first):
        size += len(line.encode()) + 1
        text += len(_field_of(line, field, f"{first}:{number}").encode()) + 1 if line.strip() else 0
        if size >= _BEGINNING:
            break
    return text / max(1, size)


def _field_of(line: str, field: str, where: str) -> str:
    try:
        record = parse_json(line)
        check_characters(line, record)
    except ValueError as error:
        raise SqueezeError(
            f"{where}: invalid JSON ({error}); a .jsonl file has one JSON object on each line"
        ) from error
    if not isinstance(record, dict):
        raise SqueezeError(
            f'{where}: a JSON {type(record).__name__}, but an object like {{"{field}": ...}} was expected'
        )
    if field not in record:
        raise SqueezeError(f"{where}: no field {field!r}; name the field with the text: {', '.join(record) or 'none'}")
    text = record[field]
    if not isinstance(text, str):
        kind = "null" if text is None else f"of type {type(text).__name__}"
        others = ", ".join(name for name in record if name != field)
        advice = f"name another of: {others}" if others else "leave such records out"
        raise SqueezeError(f"{where}: field {field!r} is {kind}, not text; {advice}")
    return " ".join(text.splitlines())
