"""Count the tokens of texts and of labelled data."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.records.sample import take_sample
from biosqueeze.data.text.corpus import corpus_files, read_files
from biosqueeze.data.text.prepared import all_cores, megabyte_progress
from biosqueeze.errors import SqueezeError
from biosqueeze.files import megabytes
from biosqueeze.manifest import TaskRecord
from biosqueeze.progress import CountedWarning, collect_warnings, note, track, warn
from biosqueeze.tasks import Task, open_task
from biosqueeze.tasks.formulation import Formulation
from biosqueeze.tasks.sniffing import guess, may_be_labelled

_LINES_AT_ONCE = 1000
# The test split is only scored: what is kept must not depend on it.
_SPLITS = ("train", "dev")


@dataclass(frozen=True)
class TokenUsage:
    """How often each token occurs in some texts, as int64 (ids,); special tokens around a text are not counted."""

    counts: NDArray[np.int64]

    @property
    def total(self) -> int:
        """Number of tokens in the texts."""
        return int(self.counts.sum())


@dataclass(frozen=True)
class CountedTexts:
    """Corpora, and the train and dev splits of labelled data, whose tokens are counted."""

    tasks: Mapping[str, Task | None]
    """How each source is read; None for a corpus."""
    field: str
    """Field of a JSONL record of a corpus that holds the text."""

    @classmethod
    def of(cls, sources: Sequence[str], field: str, record: TaskRecord | None) -> Self:
        """Find out how sources are read, and print it.

        Args:
            sources: corpora as every --corpus takes them, and directories of labelled data.
            field: of a corpus.
            record: of the task that the model was fine-tuned on; data of this kind are encoded as in its fine-tuning.
        """
        return cls({source: _task_in(source, record) for source in sources}, field)

    def count(self, tokenizer: Any) -> TokenUsage:
        """Count the tokens by a fast tokenizer of transformers.

        Raises:
            SqueezeError: a source cannot be read, or holds no text.
        """
        counts = np.zeros(max(tokenizer.get_vocab().values()) + 1, dtype=np.int64)
        for source, task in self.tasks.items():
            for ids in _labelled(tokenizer, source, task) if task else _plain(tokenizer, source, self.field):
                counts += np.bincount(ids, minlength=len(counts))
        usage = TokenUsage(counts)
        if not usage.total:
            raise SqueezeError(f"{', '.join(self.tasks)} holds no token of this tokenizer; give other text")
        return usage


def _plain(tokenizer: Any, source: str, field: str) -> Iterator[NDArray[np.int64]]:
    files = corpus_files(source)
    with megabyte_progress(f"count the tokens of {source}", megabytes(files)) as progress:
        stream = read_files(source, files, field, progress)
        while lines := list(islice(stream, _LINES_AT_ONCE)):
            with all_cores():
                encodings = tokenizer.backend_tokenizer.encode_batch(lines, add_special_tokens=False)
            yield np.concatenate([np.array(encoding.ids, dtype=np.int64) for encoding in encodings])


def _labelled(tokenizer: Any, source: str, task: Task) -> Iterator[NDArray[np.int64]]:
    """Encode labelled data as the training does: what is a word there need not be one in running text."""
    data = task.read(source, [split for split in task.splits(source) if split in _SPLITS])
    task = task.with_scheme(data.scheme)
    around = np.array(sorted({*tokenizer.all_special_ids} - {tokenizer.unk_token_id}))
    warnings: list[str | CountedWarning] = []
    for examples in data.splits.values():
        with track(f"count the tokens of {source}", len(examples)) as bar:
            for start in range(0, len(examples), _LINES_AT_ONCE):
                part = examples[start : start + _LINES_AT_ONCE]
                with collect_warnings() as found:
                    windows = task.encode(part, data.labels, tokenizer, tokenizer.model_max_length)
                warnings += found
                ids = np.concatenate([window.features["input_ids"] for window in windows])
                yield ids[~np.isin(ids, around)]
                bar.advance(len(part))
    _warn_of_sums(source, warnings)


def _warn_of_sums(source: str, warnings: Sequence[str | CountedWarning]) -> None:
    """Print the warnings of all parts once; their advice is on options of a training, so it is left out."""
    sums: Counter[str] = Counter()
    for warning in warnings:
        if isinstance(warning, CountedWarning):
            sums[warning.what] += warning.count
    once = dict.fromkeys(warning for warning in warnings if isinstance(warning, str))
    for message in (*once, *(str(CountedWarning(count, what)) for what, count in sums.items())):
        warn(f"{source}: {message}; what is cut off or left out does not count")


def _task_in(source: str, task: TaskRecord | None) -> Task | None:
    """Return the kind of task of labelled data; None for a corpus."""
    if not may_be_labelled(source):
        return None
    if own := _own_task(source, task):
        return own
    try:
        guessed = guess(source, Formulation())
    except SqueezeError:  # then it is read as a corpus, which has errors of its own
        return None
    note(f"{source} is read as {guessed.kind}: {guessed.reason}")
    return open_task(guessed.kind)


def _own_task(source: str, record: TaskRecord | None) -> Task | None:
    """Return the task of a fine-tuning, with its columns and encoding, if a source has data of it."""
    if record is None:
        return None
    task = open_task(record.name, Formulation.from_manifest(record.formulation), record.scheme or "")
    try:
        return task if task.sniff(take_sample(source)) > 0 else None
    except SqueezeError:  # data with other columns
        return None
