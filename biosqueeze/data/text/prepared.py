"""A corpus prepared for training: tokenised and packed once, stored in the cache, and mapped into memory."""

import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biosqueeze.data.cache import cache_folder, is_temporary, load_or_build
from biosqueeze.data.lines import ByteProgress
from biosqueeze.data.text.blocks import NO_TOKEN, EncodedLines, Frame, encode_documents, encode_lines, room_within
from biosqueeze.data.text.corpus import content_hash, corpus_files, read_documents, read_files
from biosqueeze.data.text.hashed_share import HashedShare
from biosqueeze.data.text.prepared_corpus import FACTS, Corpus, Packed, Sequences, open_corpus
from biosqueeze.data.text.prepared_documents import Documents, write_document_index
from biosqueeze.data.text.shards import ShardLayout, write_shards
from biosqueeze.errors import SqueezeError
from biosqueeze.files import megabytes, write_json
from biosqueeze.progress import ProgressBar, counted, note, track

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FORMAT = 2  # part of each key: a new number invalidates every corpus in the cache
_PARALLEL = "TOKENIZERS_PARALLELISM"


def prepare_corpus(
    sources: Sequence[str], field: str, tokenizer: "PreTrainedTokenizerBase", max_length: int, *, pack: bool
) -> Packed | Sequences:
    """Tokenise a corpus into the cache, or load it from there; log which, and its size.

    Tokenising uses all cores ($RAYON_NUM_THREADS limits them). No text is truncated: a line that is longer than
    max_length becomes several sequences.

    Args:
        sources: files, directories, hub:NAME and `demo:text`; see `corpus.read_lines`.
        field: the field of a JSONL record that holds the text.
        tokenizer: a fast tokenizer.
        max_length: tokens in a sequence and in a block, special tokens included.
        pack: return blocks of whole sequences; otherwise single sequences.

    Raises:
        SqueezeError: a source does not exist, cannot be read or is empty, max_length leaves no room beside the special
            tokens, no line gives a token, or the cache cannot be written.
    """
    files = tuple((source, corpus_files(source)) for source in sources)
    return _in_blocks(_Preparation(files, field, tokenizer, max_length), pack=pack)


@dataclass(frozen=True)
class DocumentText:
    """Text whose documents are known: where it is, and which documents are taken."""

    sources: tuple[tuple[str, tuple[Path, ...]], ...]  # each with its files, see `corpus.corpus_files`
    field: str = "text"
    side: HashedShare | None = None  # None: all documents
    name: str = "corpus"  # in log lines

    def joined(self, tokenizer: "PreTrainedTokenizerBase", max_length: int, *, pack: bool) -> Packed | Sequences:
        """Prepare texts of whole sentences that follow each other in a document; otherwise as `prepare_corpus`."""
        return _in_blocks(_Preparation(self.sources, self.field, tokenizer, max_length, self), pack=pack)

    def whole(self, tokenizer: "PreTrainedTokenizerBase") -> Documents:
        """Tokenise the documents into the cache, or load them from there; log which, and their size.

        Raises:
            SqueezeError: as for `prepare_corpus`.
        """
        corpus, origin = _Preparation(self.sources, self.field, tokenizer, None, self).load()
        documents = Documents(corpus)
        note(f"{self.name}: {documents}, {sum(entry.tokens for entry in corpus.entries):,} tokens, {origin}")
        return documents


def _in_blocks(preparation: "_Preparation", *, pack: bool) -> Packed | Sequences:
    name = preparation.documents.name if preparation.documents else "corpus"
    corpus, origin = preparation.load()
    blocks = Packed(corpus, int(preparation.tokenizer.pad_token_id)) if pack else Sequences(corpus)
    note(f"{name}: {counted(corpus.texts, 'text')}, {corpus.tokens:,} tokens, {blocks}, {origin}")
    return blocks


def _load(folder: Path) -> Corpus | None:
    """Return the corpus if it is complete, else None."""
    if not (folder / FACTS).is_file():
        return None
    try:
        corpus = open_corpus(folder)
        if not corpus.length:
            Documents(corpus).check()
        return corpus if corpus.shards else None
    except (SqueezeError, OSError, ValueError):
        return None


@dataclass(frozen=True)
class _Preparation:
    """The inputs of a prepared corpus."""

    sources: tuple[tuple[str, tuple[Path, ...]], ...]  # each with its files; the Hub and demo:text have none
    field: str
    tokenizer: "PreTrainedTokenizerBase"
    length: int | None  # None: whole documents
    documents: DocumentText | None = None  # None: every line is a text

    @cached_property
    def frame(self) -> Frame:
        """The special tokens around each text."""
        return Frame.of(self.tokenizer)

    def load(self) -> tuple[Corpus, str]:
        """Prepare the corpus, or load it; return it with the words that say which."""
        if self.length is not None:
            room_within(self.length, self.frame)
        corpus, new = load_or_build(cache_folder() / "tokens" / self.key, _load, self.build, "corpus")
        if is_temporary():
            return corpus, "prepared for this run alone"
        return corpus, f"prepared {'and stored' if new else 'earlier'} in {corpus.folder}"

    @cached_property
    def key(self) -> str:
        """The hash of every input that affects the result."""
        content = {
            "format": FORMAT,
            "sources": [
                [self._states[file] for file in files] or content_hash(source) for source, files in self.sources
            ],
            "field": self.field,
            "tokenizer": _digest(_rules(self.tokenizer)),
            "frame": [self.frame.before.tolist(), self.frame.after.tolist()],
            "length": self.length,
        }
        if self.documents is not None:
            content["documents"] = asdict(self.documents.side) if self.documents.side else "all"
        return _digest(content)[:24]

    @cached_property
    def _states(self) -> dict[Path, list[Any]]:
        return {file: _state(file) for _, files in self.sources for file in files}

    def build(self, folder: Path) -> None:
        """Write the shards, and their metadata last.

        Raises:
            SqueezeError: no line gives a token, or a file changed during the preparation.
        """
        length = self.length or 0
        layout = ShardLayout(length, len(self.frame), 1 + max(self.tokenizer.get_vocab().values()))
        with megabyte_progress("prepare the corpus", megabytes(self._states)) as progress, all_cores():
            entries = write_shards(folder, self._encoded(progress), layout)
        if not entries:
            side = self.documents.side if self.documents else None
            raise SqueezeError(side.without_documents if side else NO_TOKEN)
        changed = [file for file, state in self._states.items() if file.is_file() and _state(file) != state]
        if changed:
            raise SqueezeError(f"{changed[0]} changed while it was read; run the command again when it is complete")
        facts = {"length": length, "before": self.frame.before.tolist(), "after": self.frame.after.tolist()}
        if self.length is None:
            write_document_index(folder, entries)
        write_json(folder / FACTS, {**facts, "shards": [asdict(entry) for entry in entries]})

    def _encoded(self, progress: ByteProgress) -> Iterator[EncodedLines]:
        if self.documents is None:
            lines = chain.from_iterable(read_files(*source, self.field, progress) for source in self.sources)
            return encode_lines(lines, self.tokenizer, room_within(self.length or 0, self.frame))
        documents = chain.from_iterable(read_documents(*source, self.field, progress) for source in self.sources)
        encoded = encode_documents(filter(self.documents.side, documents), self.tokenizer)
        if self.length is None:
            return (part.whole() for part in encoded)
        room = room_within(self.length, self.frame)
        return (part.joined(room) for part in encoded)


def _state(file: Path) -> list[Any]:
    """Return path, size and time of a file, which change with its content; a pipe gets a unique state every time."""
    if not file.is_file():
        return [str(file), uuid.uuid4().hex]
    try:
        status = file.stat()
    except OSError as error:
        raise SqueezeError(f"{file} cannot be read ({error.strerror}); check the path and its permissions") from error
    return [str(file.resolve()), status.st_size, status.st_mtime_ns]


def _rules(tokenizer: "PreTrainedTokenizerBase") -> dict[str, Any]:
    """Return tokenizer.json without the truncation and padding that an earlier call may have set."""
    rules: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    return {**rules, "truncation": None, "padding": None}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


@contextmanager
def all_cores() -> Iterator[None]:
    """Enable the threads of the tokenizer, which the command line disables because it forks processes later."""
    former = os.environ.get(_PARALLEL, "true")
    os.environ[_PARALLEL] = "true"
    try:
        yield
    finally:
        os.environ[_PARALLEL] = former


@contextmanager
def megabyte_progress(title: str, size: float) -> Iterator[ByteProgress]:
    """Show how much of a number of megabytes has been read."""
    with track(f"{title} (MB)", round(size) or None) as bar:
        yield Megabytes(bar)


class Megabytes:
    """A byte counter that advances a tracker by whole megabytes."""

    def __init__(self, tracker: ProgressBar) -> None:
        self._tracker, self._bytes = tracker, 0

    def advance(self, amount: int = 1) -> None:
        """Add bytes."""
        self._bytes += amount
        if megabytes := round(self._bytes / 1e6) - self._tracker.done:
            self._tracker.advance(megabytes)
