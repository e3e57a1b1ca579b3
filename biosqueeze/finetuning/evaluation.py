"""Score a fine-tuned checkpoint on one split of a labelled data set, and compare the scores with floors."""

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biosqueeze import registry
from biosqueeze.backends import canonical_spec, check_runnable, default_spec, use_device
from biosqueeze.benchmarks.suite import Benchmark, resolve_task
from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.data.output_types import TOKENS
from biosqueeze.errors import QualityGateMissedError, SqueezeError, UsageError
from biosqueeze.finetuning.finetuned_checkpoint import check_head, missing_head_error, task_of, unknown_labels
from biosqueeze.finetuning.task_model import InferenceSettings, load_task_model
from biosqueeze.models.custom_heads.files import is_fine_tuned
from biosqueeze.progress import note, warn
from biosqueeze.tasks import Dataset, Task
from biosqueeze.tasks.encoding.tag_schemes import split_tag
from biosqueeze.tasks.formulation import ReadingOptions
from biosqueeze.tasks.metrics.entities import finds_nothing


@dataclass(frozen=True, kw_only=True)
class EvaluationRequest:
    """What to score; None means the value that the checkpoint records of its fine-tuning."""

    checkpoint: str
    """Directory or Hub id."""
    data: str | None
    """Directory or benchmark."""
    task: str | None
    """Task kind or named benchmark."""
    split: str
    reading: ReadingOptions
    backend: str | None
    """RUNTIME[:PRECISION]."""
    batch_size: int
    max_length: int | None
    threads: int | None
    device: str
    """Of --device."""
    floors: Mapping[str, float]
    """Least score by metric."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A request, resolved against the checkpoint."""

    checkpoint: Checkpoint
    """Fine-tuned on the task."""
    kind: str
    """Of the task."""
    task: Task
    benchmark: Benchmark | None
    """The one that --task names."""
    data: str
    split: str
    reading: ReadingOptions
    """Of the request."""
    inference: InferenceSettings
    floors: Mapping[str, float]

    @property
    def metric(self) -> str:
        """The score that checkpoints are compared by: that of the benchmark, or of the fine-tuning."""
        if self.benchmark:
            return self.benchmark.metric
        recorded = self.checkpoint.task
        return (recorded and recorded.name == self.kind and recorded.metric) or self.task.METRIC

    def examples(self) -> tuple[Any, ...]:
        """Read the split, and check it against the checkpoint; no weights are loaded.

        Raises:
            SqueezeError: the checkpoint is not fine-tuned on this task, lacks the files of the backend, or the data
                have labels that it lacks.
            UsageError: a floor names no metric of the task, or cannot be reached.
        """
        check_head(self.checkpoint, self.task.HEAD, self.kind, "to score")
        dataset = self.task.read(self.data, (self.split,))
        _check_labels(self.checkpoint, dataset, self.data)
        examples = dataset.splits[self.split]
        gold = [example.gold for example in examples]
        _check_metrics(self.floors, self.task.score(gold, gold))
        check_runnable(self.checkpoint, self.inference.backend)
        return examples

    def score(self) -> dict[str, Any]:
        """Return the result, with the scores under "metrics".

        Raises:
            SqueezeError: see `examples`.
        """
        examples = self.examples()
        started = time.monotonic()
        model = load_task_model(self.checkpoint, self.task, self.inference)
        predicted = model.predict(examples)
        gold = [example.gold for example in examples]
        if self.task.HEAD == "token-classification" and finds_nothing(gold, predicted):
            warn(
                f"{self.checkpoint.name} predicts no entity at all in {len(gold):,} examples of {self.data}; train it "
                "longer, or evaluate the checkpoint that was fine-tuned"
            )
        return {
            "task": self.kind,
            "data": self.data,
            **self._data_path(),
            "split": self.split,
            "backend": self.inference.backend,
            **self._restriction(),
            "metric": self.metric,
            "metrics": self.task.score(gold, predicted),
            "examples": len(examples),
            "max_length": model.max_length,
            "seconds": round(time.monotonic() - started, 3),
        }

    def _data_path(self) -> dict[str, str]:
        """Return the absolute path of the data, if they are a directory: a relative name has a meaning only here."""
        path = Path(self.data).expanduser()
        return {"data_path": str(path.resolve())} if path.exists() else {}

    def _restriction(self) -> dict[str, Any]:
        """Return which labels are counted, where those are not all as they are: see `summaries.restriction_of`."""
        formulation = self.task.formulation
        restriction = {
            "types": list(formulation.types),
            "merge_types": formulation.merge_types,
            "negative": self.reading.negative,
        }
        return {name: value for name, value in restriction.items() if value}


def resolve_evaluation(request: EvaluationRequest, *, weights: bool = True) -> Evaluation:
    """Open the checkpoint, and take from its manifest what the request leaves out.

    Args:
        request: what to score.
        weights: whether the weights of a Hub id are fetched too.

    Raises:
        UsageError: neither the request nor the checkpoint name the data.
        SqueezeError: the checkpoint does not open, or the data of its training are not here.
    """
    checkpoint = open_checkpoint(request.checkpoint, weights=weights, slim=True)
    recorded = checkpoint.task
    data = request.data or (recorded and recorded.data)
    if not data and not is_fine_tuned(checkpoint):
        raise missing_head_error(checkpoint, "task", "ner", "to score")
    if not data:
        raise UsageError(
            f"{checkpoint.name} does not name the data of its fine-tuning; give --data, a directory or demo:ner"
        )
    if not request.data and recorded and recorded.existing_data is None:
        raise SqueezeError(
            f"{checkpoint.name} was trained on {data}, and there is no such directory here; name the data with --data"
        )
    kind, task = task_of(checkpoint, request.task, "to score", request.reading)
    benchmark = resolve_task(request.task)[1] if request.task else None
    if benchmark:
        _check_benchmark(checkpoint, task, benchmark)
    backend = canonical_spec(request.backend) if request.backend else default_spec(checkpoint)
    inference = InferenceSettings(
        backend=backend,
        batch_size=request.batch_size,
        max_length=request.max_length,
        threads=request.threads,
        device=use_device(backend, request.device),
    )
    return Evaluation(
        checkpoint=checkpoint,
        kind=kind,
        task=task,
        benchmark=benchmark,
        data=str(data),
        split=request.split,
        reading=request.reading,
        inference=inference,
        floors=request.floors,
    )


def _check_benchmark(checkpoint: Checkpoint, task: Task, benchmark: Benchmark) -> None:
    """Check that the checkpoint's labels can be scored as the benchmark scores them.

    Raises:
        UsageError: one of them counts all types of entities as one, and the other does not.
    """
    merges = bool(benchmark.formulation.get("merge_types"))
    if merges != task.formulation.merge_types:
        counted = ("by their types", "as one") if merges else ("as one", "by their types")
        raise UsageError(
            f"--task {benchmark.key}: {checkpoint.name} was fine-tuned on types of entities {counted[0]}, and the "
            f"benchmark counts them {counted[1]}; fine-tune with --task {benchmark.key}, or score with "
            f"--task {benchmark.kind}"
        )


def _check_labels(checkpoint: Checkpoint, dataset: Dataset, source: str) -> None:
    """Check that every label of the data is one of the checkpoint's, whose ids are used.

    Raises:
        SqueezeError: a label is not.
    """
    unknown = unknown_labels(dataset.labels, checkpoint.labels)
    if unknown:
        flags = shlex.join(word for kind in _shared_types(dataset, checkpoint, unknown) for word in ("--types", kind))
        raise SqueezeError(
            f"{source} has the labels {', '.join(unknown)}, but {checkpoint.name} has only "
            f"{', '.join(checkpoint.labels)}; {f'score the others alone ({flags}), ' if flags else ''}give the data "
            "that it was fine-tuned on, or fine-tune it on these"
        )


def _shared_types(dataset: Dataset, checkpoint: Checkpoint, unknown: Sequence[str]) -> list[str]:
    """Return the types of entities that a tagger has, of those in the data; none where it lacks a tag of one."""
    if dataset.output_type != TOKENS:
        return []
    types, known, lacking = (
        {split_tag(label)[1] for label in labels} for labels in (dataset.labels, checkpoint.labels, unknown)
    )
    return sorted((types & known) - lacking - {""})


def _check_metrics(floors: Mapping[str, float], best: Mapping[str, float]) -> None:
    """Check that every floor can be reached, against the metrics of perfect predictions.

    Raises:
        UsageError: there is no such metric, or a score from 0 to 1 is to reach more.
    """
    for name, floor in floors.items():
        if name not in best:
            raise UsageError(
                f"--min: there is no metric {name!r}.{registry.closest(name, best)} Known: {', '.join(best)}"
            )
        if floor > 1 and not isinstance(best[name], int):
            share = floor / 100 if floor <= 100 else 0.8
            raise UsageError(f"--min {name}={floor:g}: scores are from 0 to 1 here; say {name}={share:.2f}")


def check_floors(name: str, floors: Mapping[str, float], metrics: Mapping[str, float]) -> None:
    """Compare the metrics of a checkpoint of this name with their floors.

    Raises:
        QualityGateMissedError: a score is below its floor.
    """
    missed = [
        f"{metric} {_as_text(metrics[metric])} is below {floor:g}"
        for metric, floor in floors.items()
        if metrics[metric] < floor
    ]
    if missed:
        raise QualityGateMissedError(
            f"{name}: {', '.join(missed)}; train longer or squeeze less, or lower the floor given with --min"
        )
    if floors:
        reached = ", ".join(f"{metric} >= {floor:g}" for metric, floor in floors.items())
        note(f"{name}: every floor is reached ({reached})")


def _as_text(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4f}"
