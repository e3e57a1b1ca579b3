"""Measure several models in interleaved rounds: all are loaded, and one of them runs at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from biosqueeze import progress
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.measuring import worker_pool
from biosqueeze.measuring.worker_pool import MeasuringProcess

Shape = tuple[int, int]
"""Sequences in a batch, and tokens in a sequence."""

MUCH_WAITING = 0.1
"""Waiting for a processor for a larger share of the time makes times too long; it is 0.03 where nothing else runs."""


@dataclass(frozen=True)
class MeasuringSettings:
    """What every model is measured with."""

    shapes: tuple[Shape, ...]
    threads: int
    device: str
    """Of PyTorch; the other runtimes run on the CPU."""
    rounds: int
    seconds: float
    """Seconds of one measurement: one model, one shape, one round."""
    warmup: int
    """Untimed runs of each shape before the first round."""


@dataclass
class MeasuredModel:
    """A checkpoint on a backend, and its measurements."""

    checkpoint: Checkpoint
    spec: str
    milliseconds: dict[Shape, list[float]] = field(default_factory=dict)
    load_seconds: float = 0.0
    peak_rss_mb: float = 0.0
    seconds: float = 0.0
    """Of all measurements."""
    waited_seconds: float = 0.0
    """For how much of them one of its threads was ready to run, and other work had the processors."""

    @property
    def waited_share(self) -> float:
        """The share of the measurements for which the model waited for a processor."""
        return self.waited_seconds / self.seconds if self.seconds else 0.0

    def clear(self) -> None:
        """Remove the times of earlier measurements."""
        self.milliseconds.clear()
        self.seconds = self.waited_seconds = 0.0

    @property
    def label(self) -> str:
        """The name in messages: "student on onnxruntime:int8"."""
        return f"{self.checkpoint.short_name} on {self.spec}"


def schedule(rounds: int, shapes: Sequence[Shape], models: int) -> Iterator[tuple[Shape, int]]:
    """Yield (shape, index of the model): in each round every model runs at every shape, starting with another model."""
    for first in range(rounds):
        for shape in shapes:
            for turn in range(models):
                yield shape, (first + turn) % models


def measure_models(models: Sequence[MeasuredModel], settings: MeasuringSettings) -> None:
    """Measure the models and store the results in them.

    Raises:
        SqueezeError: a measuring process failed; the message has the last line of its standard error.
    """
    overflowing = _check_graphs(models)
    with worker_pool.measuring_processes([model.label for model in models], settings.threads) as pool:
        _load(models, settings, pool, overflowing)
        _measure(models, settings, pool)


def warn_of_other_work(models: Sequence[MeasuredModel]) -> None:
    """Warn if other work ran while the models were measured."""
    most = max(models, key=lambda model: model.waited_share)
    if most.waited_share > MUCH_WAITING:
        progress.warn(
            f"other work ran meanwhile: {most.label} waited for a processor for {most.waited_share:.0%} of the time, "
            "so the times are too long and the speed-ups wrong; measure when nothing else runs, or with fewer --threads"
        )


def _check_graphs(models: Sequence[MeasuredModel]) -> list[str]:
    """Check each graph once, here, so that the measured processes need not: it takes time and memory.

    Returns:
        the paths of those whose int8 products overflow on this processor.
    """
    from biosqueeze.backends import files_of
    from biosqueeze.backends.int8_overflow import overflows
    from biosqueeze.backends.onnx_limits import check_limits

    files = {file for model in models for file in files_of(model.checkpoint, model.spec)}
    graphs = sorted(file.resolve() for file in files if file.suffix == ".onnx")
    for file in graphs:
        check_limits(file)
    return [str(file) for file in graphs if overflows(file)]


def _load(
    models: Sequence[MeasuredModel],
    settings: MeasuringSettings,
    pool: Sequence[MeasuringProcess],
    overflowing: Sequence[str],
) -> None:
    """Load and warm up one model after the other, so that they do not slow down each other's load time."""
    from biosqueeze.models.loading.load import load_config

    with progress.track("load", len(pool)) as bar:
        for model, process in zip(models, pool, strict=True):
            request = {
                "path": str(model.checkpoint.path.resolve()),
                "name": model.checkpoint.name,
                "spec": model.spec,
                "threads": settings.threads,
                "device": settings.device,
                "vocabulary": load_config(model.checkpoint).vocab_size,  # config.json may leave it to the family
                "shapes": settings.shapes,
                "warmup": settings.warmup,
                "overflowing": overflowing,
            }
            model.load_seconds = process.request(request)["load_seconds"]
            bar.advance()


def _measure(models: Sequence[MeasuredModel], settings: MeasuringSettings, pool: Sequence[MeasuringProcess]) -> None:
    turns = list(schedule(settings.rounds, settings.shapes, len(pool)))
    with progress.track("measure", len(turns)) as bar:
        for shape, index in turns:
            reply = pool[index].request({"shape": shape, "seconds": settings.seconds})
            models[index].milliseconds.setdefault(shape, []).extend(reply["milliseconds"])
            models[index].seconds += reply["seconds"]
            models[index].waited_seconds += reply["waited_seconds"]
            bar.advance()
    for model, process in zip(models, pool, strict=True):
        model.peak_rss_mb = process.request({"done": True})["peak_rss_mb"]
