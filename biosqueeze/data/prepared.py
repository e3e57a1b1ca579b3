"""A corpus as training reads it: tokenised and packed once, kept in the cache, and mapped into memory."""

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

import numpy as np

from biosqueeze.data.blocks import NO_TOKEN, Frame, Ids, encode_lines, room_within
from biosqueeze.data.cache import cache_folder, load_or_build
from biosqueeze.data.corpus import corpus_files, read_files
from biosqueeze.data.demo import demo_text
from biosqueeze.data.lines import ByteProgress
from biosqueeze.data.packing import lay_out
from biosqueeze.data.shards import Shard, ShardEntry, ShardLayout, open_shard, write_shards
from biosqueeze.errors import SqueezeError
from biosqueeze.files import read_json, write_json
from biosqueeze.progress import ProgressBar, note, track

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FORMAT = 2  # part of each key: another number leaves all that was prepared before unread
_FILE = "corpus.json"
_PARALLEL = "TOKENIZERS_PARALLELISM"


@dataclass(frozen=True)
class Corpus:
    """A folder of shards. It is pickled as its path: a worker process maps the shards for itself."""

    folder: Path
    length: int  # positions in a block, and the longest sequence
    frame: Frame
    entries: tuple[ShardEntry, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return open_corpus, (self.folder,)

    @cached_property
    def shards(self) -> tuple[Shard, ...]:
        """The shards, opened."""
        return tuple(open_shard(self.folder / entry.name, entry) for entry in self.entries)

    @property
    def texts(self) -> int:
        """Lines of the corpus."""
        return sum(entry.texts for entry in self.entries)

    @property
    def tokens(self) -> int:
        """All tokens with the special ones of each sequence."""
        return sum(entry.tokens + entry.sequences * len(self.frame) for entry in self.entries)


def open_corpus(folder: Path) -> Corpus:
    """Open what `prepare_corpus` made.

    Raises:
        SqueezeError: it is not there, or damaged.
    """
    try:
        facts = read_json(folder / _FILE)
        frame = Frame(*(np.array(facts[side], dtype=np.int64) for side in ("before", "after")))
        return Corpus(folder, int(facts["length"]), frame, tuple(ShardEntry(**entry) for entry in facts["shards"]))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise SqueezeError(
            f"the prepared corpus {folder} is not there any more, or damaged ({error}); run the command again"
        ) from error


@dataclass(frozen=True)
class Sequences:
    """The sequences of a corpus, each by itself; they come in the order in which they lie in the blocks."""

    corpus: Corpus

    def __len__(self) -> int:
        """How many sequences there are."""
        return int(self._starts[-1])

    @cached_property
    def _starts(self) -> Ids:
        return np.cumsum([0, *(entry.sequences for entry in self.corpus.entries)])  # (shards + 1,)

    def lengths_of(self, items: Ids) -> Ids:
        """Lengths of these sequences with their special tokens, (items,)."""
        numbers = np.searchsorted(self._starts, items, side="right") - 1
        lengths = np.empty(len(items), dtype=np.int64)
        for number in np.unique(numbers):
            here = numbers == number
            rows, edges = items[here] - self._starts[number], self.corpus.shards[number].sequences
            lengths[here] = edges[rows + 1] - edges[rows]
        return lengths + len(self.corpus.frame)

    def features(self, item: int) -> dict[str, Ids]:
        """`input_ids` (length,) of one sequence with its special tokens."""
        shard, row = _find(self.corpus, self._starts, item)
        return {"input_ids": self.corpus.frame.around(shard.ids[shard.sequences[row] : shard.sequences[row + 1]])}

    def __str__(self) -> str:
        return f"{len(self):,} sequences of at most {self.corpus.length}"


@dataclass(frozen=True)
class Packed:
    """The blocks of a corpus: each holds several whole sequences, and all have one length."""

    corpus: Corpus
    pad_token_id: int

    def __len__(self) -> int:
        """How many blocks there are."""
        return int(self._starts[-1])

    @cached_property
    def _starts(self) -> Ids:
        return np.cumsum([0, *(entry.blocks for entry in self.corpus.entries)])  # (shards + 1,)

    def lengths_of(self, items: Ids) -> Ids:
        """Lengths of these blocks, (items,): all the same."""
        return np.full(len(items), self.corpus.length)

    def features(self, item: int) -> dict[str, Ids]:
        """`input_ids`, `positions` and `segments` of one block, (length,) each; see `packing.lay_out`."""
        shard, row = _find(self.corpus, self._starts, item)
        edges = shard.sequences[shard.blocks[row] : shard.blocks[row + 1] + 1]
        tokens = shard.ids[edges[0] : edges[-1]]
        return lay_out(tokens, edges, self.corpus.frame, self.corpus.length, self.pad_token_id)

    @property
    def padding(self) -> float:
        """Share of all positions that no token fills."""
        return 1 - self.corpus.tokens / (len(self) * self.corpus.length)

    def __str__(self) -> str:
        return f"packed into {len(self):,} blocks of {self.corpus.length} ({self.padding:.2%} padding)"


def _find(corpus: Corpus, starts: Ids, item: int) -> tuple[Shard, int]:
    """The shard that holds an item, and the item's row in it."""
    if not 0 <= item < starts[-1]:
        raise IndexError(item)
    number = int(np.searchsorted(starts, item, side="right")) - 1
    return corpus.shards[number], item - int(starts[number])


def prepare_corpus(
    sources: Sequence[str], field: str, tokenizer: "PreTrainedTokenizerBase", max_length: int, *, pack: bool
) -> Packed | Sequences:
    """Tokenise a corpus into the cache, or find it there; says which, and how much there is.

    Tokenising takes all cores ($RAYON_NUM_THREADS says how many). Nothing of a corpus is lost: a line that is longer
    than max_length becomes several sequences.

    Args:
        sources: files, directories and `demo:text`, as `corpus.read_lines` takes them.
        field: which field of a JSONL record holds the text.
        tokenizer: a fast tokenizer.
        max_length: tokens in a sequence and in a block, special tokens included.
        pack: give full blocks of whole sequences; otherwise each sequence by itself.

    Raises:
        SqueezeError: a source is not there, cannot be read or is empty, max_length leaves no room beside the special
            tokens, no line gives a token, or the cache cannot be written.
    """
    frame = Frame.of(tokenizer)
    work = _Work(tuple((source, corpus_files(source)) for source in sources), field, tokenizer, max_length, frame)
    room_within(max_length, frame)
    corpus, new = load_or_build(cache_folder() / "tokens" / work.key, _load, work.make, "corpus")
    blocks = Packed(corpus, int(tokenizer.pad_token_id)) if pack else Sequences(corpus)
    prepared = f"prepared and kept in {corpus.folder}" if new else f"prepared earlier in {corpus.folder}"
    note(f"corpus: {corpus.texts:,} texts, {corpus.tokens:,} tokens, {blocks}, {prepared}")
    return blocks


def _load(folder: Path) -> Corpus | None:
    """The corpus, if all of it can be opened."""
    if not (folder / _FILE).is_file():
        return None
    try:
        corpus = open_corpus(folder)
        return corpus if corpus.shards else None
    except (SqueezeError, OSError, ValueError):
        return None


@dataclass(frozen=True)
class _Work:
    """What is to be prepared."""

    sources: tuple[tuple[str, tuple[Path, ...]], ...]  # each with its files; demo:text has none
    field: str
    tokenizer: "PreTrainedTokenizerBase"
    length: int
    frame: Frame

    @cached_property
    def key(self) -> str:
        """Differs wherever the result may differ."""
        content = {
            "format": FORMAT,
            "sources": [[self._states[file] for file in files] or _digest(demo_text()) for _, files in self.sources],
            "field": self.field,
            "tokenizer": _digest(_rules(self.tokenizer)),
            "frame": [self.frame.before.tolist(), self.frame.after.tolist()],
            "length": self.length,
        }
        return _digest(content)[:24]

    @cached_property
    def _states(self) -> dict[Path, list[Any]]:
        return {file: _state(file) for _, files in self.sources for file in files}

    def make(self, folder: Path) -> None:
        """Write the shards, and what there is to know about them last.

        Raises:
            SqueezeError: no line gives a token, or a file changed meanwhile.
        """
        shape = ShardLayout(self.length, len(self.frame), 1 + max(self.tokenizer.get_vocab().values()))
        room = room_within(self.length, self.frame)
        with self._lines() as lines, _all_cores():
            entries = write_shards(folder, encode_lines(lines, self.tokenizer, room), shape)
        if not entries:
            raise SqueezeError(NO_TOKEN)
        changed = [file for file, state in self._states.items() if file.is_file() and _state(file) != state]
        if changed:
            raise SqueezeError(f"{changed[0]} changed while it was read; run the command again when it is complete")
        facts = {"length": self.length, "before": self.frame.before.tolist(), "after": self.frame.after.tolist()}
        write_json(folder / _FILE, {**facts, "shards": [asdict(entry) for entry in entries]})

    @contextmanager
    def _lines(self) -> Iterator[Iterator[str]]:
        total = sum(file.stat().st_size for file in self._states)
        with track("prepare the corpus (MB)", total=round(total / 1e6) or None) as tracker:
            told = _Megabytes(tracker)
            yield chain.from_iterable(self._read(source, files, told) for source, files in self.sources)

    def _read(self, source: str, files: tuple[Path, ...], told: ByteProgress) -> Iterator[str]:
        return read_files(source, files, self.field, told) if files else iter(demo_text())


def _state(file: Path) -> list[Any]:
    """What changes when a file's content does; nothing is known of a pipe, so each is another."""
    if not file.is_file():
        return [str(file), uuid.uuid4().hex]
    try:
        found = file.stat()
    except OSError as error:
        raise SqueezeError(f"{file} cannot be read ({error.strerror}); check the path and its rights") from error
    return [str(file.resolve()), found.st_size, found.st_mtime_ns]


def _rules(tokenizer: "PreTrainedTokenizerBase") -> dict[str, Any]:
    """tokenizer.json without the limits that an earlier call may have left in it."""
    rules: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    return {**rules, "truncation": None, "padding": None}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


@contextmanager
def _all_cores() -> Iterator[None]:
    """Let the tokenizer use its threads, which the command line turns off because processes are forked later."""
    former = os.environ.get(_PARALLEL, "true")
    os.environ[_PARALLEL] = "true"
    try:
        yield
    finally:
        os.environ[_PARALLEL] = former


class _Megabytes:
    """Tells a tracker of whole megabytes when it is told of bytes."""

    def __init__(self, tracker: ProgressBar) -> None:
        self._tracker, self._bytes = tracker, 0

    def advance(self, amount: int = 1) -> None:
        """Add bytes."""
        self._bytes += amount
        if news := round(self._bytes / 1e6) - self._tracker.done:
            self._tracker.advance(news)
