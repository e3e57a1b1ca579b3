"""Guess the task kind of a data source from its first records, and read the splits that it has."""

from dataclasses import dataclass

from biosqueeze import registry
from biosqueeze.data.sample import SourceSample, take_sample
from biosqueeze.errors import SqueezeError
from biosqueeze.tasks import Dataset, Formulation, Task, open_task


@dataclass(frozen=True)
class Guess:
    """The most likely task kind of a data source, and the other possible kinds, the likeliest first."""

    kind: str
    others: tuple[str, ...]


def guess(source: str, formulation: Formulation) -> Guess:
    """Compare the confidence of every task kind for the first records of a source; see `Task.sniff`.

    Args:
        source: as `Task.read` takes it.
        formulation: options of the task; a kind that does not use one of them is not considered.

    Raises:
        SqueezeError: there is no such source, or no kind reads it.
    """
    sample = take_sample(source)
    confidence = {kind: _confidence(kind, sample, formulation) for kind in registry.names("tasks")}
    kinds = sorted((kind for kind in confidence if confidence[kind] > 0), key=lambda kind: -confidence[kind])
    if not kinds:
        raise SqueezeError(
            f"no kind of task reads {source}; name the kind to see the reason, as in --task ner "
            f"(kinds: {', '.join(confidence)})"
        )
    return Guess(kinds[0], tuple(kinds[1:]))


def read_available(task: Task, source: str) -> Dataset:
    """Read all splits that a source has.

    Raises:
        SqueezeError: it has none, or one of them cannot be read.
    """
    return task.read(source, task.splits(source))


def _confidence(kind: str, sample: SourceSample, formulation: Formulation) -> float:
    try:
        return open_task(kind, formulation).sniff(sample)
    except SqueezeError:  # an option that the kind does not use, or records that it does not read
        return 0.0
