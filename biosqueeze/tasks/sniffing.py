"""Guess the task kind of a data source from its first records, and read the splits that it has."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from biosqueeze import registry
from biosqueeze.data.records.hub import is_hub, is_saved
from biosqueeze.data.records.sample import SourceSample, file_problems, take_sample
from biosqueeze.data.records.splits import splits_named
from biosqueeze.data.text.corpus import DEMO, is_built
from biosqueeze.errors import SqueezeError
from biosqueeze.progress import warn
from biosqueeze.tasks import Dataset, Formulation, Task, open_task

# A guess is certain if its confidence is at least this, that of every other kind below, and the distance this large.
_CERTAIN, _DISTANCE = 0.5, 0.1


@dataclass(frozen=True)
class Guess:
    """The most likely task kind of a data source, and the other possible kinds, the likeliest first."""

    kind: str
    others: tuple[str, ...]
    is_certain: bool = field(default=True, compare=False)
    reason: str = field(default="", compare=False)  # what the source holds, for messages


def guess(source: str, formulation: Formulation, *, has_option: bool = True) -> Guess:
    """Compare the confidence of every task kind for the first records of a source; see `Task.sniff`.

    Args:
        source: as `Task.read` takes it.
        formulation: options of the task; a kind that does not use one of them is not considered.
        has_option: whether the command has --task, for the message.

    Raises:
        SqueezeError: there is no such source, or no kind reads it; the message has the reasons.
    """
    sample = take_sample(source)
    confidence: dict[str, float] = {}
    reasons: dict[str, list[str]] = {}
    for kind in registry.names("tasks"):
        try:
            confidence[kind] = open_task(kind, formulation).sniff(sample)
        except SqueezeError as error:  # an option that the kind does not use, or records that it does not read
            reasons.setdefault(str(error), []).append(kind)
    kinds = sorted((kind for kind in confidence if confidence[kind] > 0), key=lambda kind: -confidence[kind])
    if not kinds:
        raise _unreadable(sample, reasons, has_option=has_option)
    best, *others = (confidence[kind] for kind in kinds)
    is_certain = not others or (best >= _CERTAIN > others[0] and best - others[0] >= _DISTANCE)
    where = sample.path.name if sample.path else source
    return Guess(kinds[0], tuple(kinds[1:]), is_certain, f"{where} holds {registry.load('tasks', kinds[0]).Kind.FORM}")


def _unreadable(sample: SourceSample, reasons: Mapping[str, Sequence[str]], *, has_option: bool) -> SqueezeError:
    """Return the error for a source that no kind reads: what is wrong with its files, or what each kind says."""
    if sample.path is not None and not sample.text.strip():
        return SqueezeError(f"{sample.path} is empty: it holds no record; check that it was written in full")
    kinds = f"; name the kind to see more, as in --task ner (kinds: {', '.join(registry.names('tasks'))})"
    known = kinds if has_option else ""
    if sample.directory is not None and sample.path is None and not sample.saved:
        problems = file_problems(sample.directory)
        return SqueezeError(f"no kind of task reads {sample.source}: {problems or 'it is empty'}{known}")
    said = [f"as {' or '.join(names)}: {reason}" for reason, names in reasons.items()]
    file = f" ({sample.path.name} was tried)" if sample.path else ""
    return SqueezeError(f"no kind of task reads {sample.source}{file}: {' | '.join(said) or 'not its form'}{known}")


def read_available(task: Task, source: str) -> Dataset:
    """Read all splits that a source has; without a test split that a fine-tuning leaves out, and warn of that.

    Raises:
        SqueezeError: it has none, or some cannot be read; the message has the reason of each.
    """
    splits = task.splits(source)
    try:
        return task.read(source, splits)
    except SqueezeError as error:
        if "test" in splits and "train" in splits:
            with contextlib.suppress(SqueezeError):
                data = task.read(source, tuple(split for split in splits if split != "test"))
                warn(f"{source}: test is left out, because it cannot be scored: {error}")
                return data
        reasons = [str(error), *_reasons(task, source, splits)]
        raise type(error)(" | ".join(dict.fromkeys(reasons))) from error


def _reasons(task: Task, source: str, splits: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with each split that cannot be read by itself."""
    for split in splits if len(splits) > 1 else ():
        try:
            task.read(source, (split,))
        except SqueezeError as error:
            yield str(error)


def may_be_labelled(source: str) -> bool:
    """Return whether the files of a directory have the names of splits."""
    if source.startswith("demo:"):
        return source != DEMO
    path = Path(source).expanduser()
    return not is_hub(source) and path.is_dir() and not is_built(path) and (is_saved(path) or bool(splits_named(path)))
