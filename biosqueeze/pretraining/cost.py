"""What a pretraining costs: tokens, operations, and time on this machine and on named GPUs; for --dry-run.

Tokens are counted on a sample of the corpus. The time on this machine is that of a few batches of the real shape and
length, with the real losses, which are trained on the sample for a few seconds.
"""

import gzip
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from math import ceil
from pathlib import Path

import numpy as np
import psutil
import torch

from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.data.cache import temporary_cache
from biosqueeze.data.lines import data_suffix
from biosqueeze.data.text.corpus import MANIFEST, corpus_files, read_text_documents, text_share
from biosqueeze.models.count import count_model
from biosqueeze.models.device import own_device, select_device
from biosqueeze.models.families import family_of
from biosqueeze.models.flops import Work, training_flops
from biosqueeze.models.loading.load import load_config, load_tokenizer, new_model, skeleton
from biosqueeze.pretraining.adversarial import adversarial_passes
from biosqueeze.pretraining.gpus import parse_gpus
from biosqueeze.pretraining.learner import PretrainingLearner
from biosqueeze.pretraining.models import StartModel, load_new_tokenizer, shape_config
from biosqueeze.pretraining.objectives import build_learner, head_of_objective
from biosqueeze.pretraining.options import PretrainingOptions
from biosqueeze.pretraining.pipeline import family_name, long_batch_size, read_text, sequence_lengths
from biosqueeze.pretraining.replaced_tokens import generator_like
from biosqueeze.pretraining.request import NewModel, PretrainingRequest
from biosqueeze.progress import duration, note, track
from biosqueeze.system import processes
from biosqueeze.system.memory import keep_freed_memory, limited_memory
from biosqueeze.training.batches import Batch, BatchSchedule, ItemSource, loader
from biosqueeze.training.encoder_layers import training_layers
from biosqueeze.training.job import LongPhase, steps_of
from biosqueeze.training.optimiser.optimisation import optimizer_of
from biosqueeze.training.precision import precision_of

SAMPLE_CHARACTERS = 500_000
SAMPLE_BATCHES = 20
_TEXT_COMPRESSION = 3.3  # of gzip, on PubMed abstracts
MEASURED_TOKENS = 2_048  # in a measured batch, at most, if a sequence has no more
MEASURED_BATCHES, MEASURED_SECONDS = 3, 10.0
_BYTES_PER_WEIGHT = 16  # float32 weights, gradients and two means of the optimiser


@dataclass(frozen=True)
class Phase:
    """The steps at one sequence length, as the sample of the corpus predicts them."""

    steps: float
    sequences: int  # in an optimiser step of one process
    length: int
    real: float  # tokens of a sequence on average, without padding
    padded: float  # positions of a sequence on average
    flops: float  # of a sequence
    batches: tuple[Batch, ...]  # of the sample, small enough to be measured

    @property
    def total(self) -> float:
        """Sequences of the whole phase."""
        return self.steps * self.sequences


@dataclass(frozen=True)
class Speed:
    """Measured seconds."""

    per_position: float  # forward and backward passes
    per_step: float  # the update of the weights


def cost_lines(request: PretrainingRequest) -> tuple[str, ...]:
    """Describe the costs of one process in a few lines; takes some seconds.

    Raises:
        UsageError: model, data and options do not fit together.
        SqueezeError: the corpus cannot be read.
    """
    options = request.options
    start = _start_model(request, meta=True)
    with tempfile.TemporaryDirectory() as directory, temporary_cache():
        sample = _sample(options, Path(directory))
        if sample.share is None and not options.steps:
            return ("costs: the size of the corpus is unknown; with --steps they are computed",)
        phases = list(_phases(sample.options, start, sample.share or 1.0))
        lines = list(_totals(phases, options, exact=sample.is_whole))
        lines.append(_here(request, phases))
    return (*lines, *_on_gpus(options, phases))


def _totals(phases: Sequence[Phase], options: PretrainingOptions, *, exact: bool) -> Iterator[str]:
    real = sum(phase.total * phase.real for phase in phases)
    padded = sum(phase.total * phase.padded for phase in phases)
    basis = "" if exact else ", estimated from the beginning of the corpus"
    steps = f"{sum(phase.steps for phase in phases):,.0f} steps"
    yield f"tokens: {_count(real)} in {steps}, {_count(padded)} with padding{basis}"
    yield f"operations: {sum(phase.total * phase.flops for phase in phases):.3g} FLOPs, forward and backward"
    if options.gradient_checkpointing:
        yield "--gradient-checkpointing adds a third to the operations"


def _here(request: PretrainingRequest, phases: Sequence[Phase]) -> str:
    """Measure the speed of this machine at each length, and add up the time."""
    options = request.options
    needed = _BYTES_PER_WEIGHT * count_model(_start_model(request, meta=True).model)["total"]
    available = psutil.virtual_memory().available
    if needed > available / 2:
        return f"time on this machine: not measured, {needed / 2**30:.0f} GiB of weights and optimiser do not fit"
    learner = _learner(_start_model(request, meta=False), options, meta=False)
    select_device(options.device)
    seconds = 0.0
    with track("measuring the speed", len(phases)) as bar:
        for phase in phases:
            with limited_memory(own_device().type), training_layers(learner, options, processes.count()):
                speed = measure(learner, options, phase.batches)
            seconds += phase.total * phase.padded * speed.per_position + phase.steps * speed.per_step
            bar.advance()
    tokens = sum(phase.total * phase.real for phase in phases)
    return (
        f"time on this machine: {_time(seconds)}, {tokens / seconds:,.0f} tokens/s, measured with "
        f"{precision_of(options)} on {own_device().type}; validation and saving not included"
    )


def _on_gpus(options: PretrainingOptions, phases: Sequence[Phase]) -> Iterator[str]:
    if options.gpu is None:
        return
    gpus = parse_gpus(options.gpu)
    seconds = sum(phase.total * phase.flops for phase in phases) / (gpus.peak * options.utilization)
    yield (
        f"time on {gpus}: {_time(seconds)} at {options.utilization:.0%} of their "
        f"{gpus.peak / 1e12:,.0f} TFLOP/s; the same batches in all, divided among them"
    )


def measure(learner: PretrainingLearner, options: PretrainingOptions, batches: Sequence[Batch]) -> Speed:
    """Train on a few batches and return the time of a position and of an update; the weights are changed."""
    keep_freed_memory()
    device = own_device()
    learner.to(device).train()
    optimizer = optimizer_of(learner, replace(options, lr=0.0))
    moved = [{name: tensor.to(device) for name, tensor in batch.items()} for batch in batches]
    for batch in moved[:1]:  # the first one allocates memory
        _pass(learner, options, batch)
        optimizer.step()
    passes, positions, updates, count = 0.0, 0, 0.0, 0
    started = time.monotonic()
    for batch in moved:
        begun = _now(device)
        _pass(learner, options, batch)
        passed = _now(device)
        optimizer.step()
        optimizer.zero_grad()
        passes, updates, count = passes + passed - begun, updates + _now(device) - passed, count + 1
        positions += batch["input_ids"].numel()
        if time.monotonic() - started > MEASURED_SECONDS:
            break
    return Speed(passes / positions, updates / count)


def _pass(learner: PretrainingLearner, options: PretrainingOptions, batch: Batch) -> None:
    """Run forward and backward passes as the training loop does."""
    device = next(iter(batch.values())).device
    with torch.autocast(device.type, torch.bfloat16, enabled=precision_of(options) == "bf16"):
        terms = learner(**batch)
    learner.weighted_sum(terms).backward()


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.monotonic()


def _phases(options: PretrainingOptions, start: StartModel, share: float) -> Iterator[Phase]:
    """Yield the steps at --max-length and at --long-length.

    Args:
        options: with the sample as their corpus.
        start: a model without storage.
        share: of the corpus, in the sample.
    """
    short, long_length = sequence_lengths(options, start.positions)
    source = read_text(options, start, short).source
    sequences = _sequences(source) / share
    steps = options.steps or steps_of(options, ceil(sequences / options.batch_size))[1]
    if long_length is None:
        yield _phase(options, start, source, short, (steps, options.batch_size))
        return
    last = LongPhase(read_text(options, start, long_length).source, long_batch_size(options), options.long_share)
    yield _phase(options, start, source, short, (steps - last.steps_of(steps), options.batch_size))
    yield _phase(options, start, last.source, long_length, (last.steps_of(steps), last.batch_size))


def _phase(
    options: PretrainingOptions, start: StartModel, source: ItemSource, length: int, size: tuple[int, int]
) -> Phase:
    steps, batch_size = size
    rows = max(1, min(batch_size, MEASURED_TOKENS // length))
    available = ceil(_sequences(source) / rows)
    schedule = BatchSchedule(source, rows, options.seed, total=min(SAMPLE_BATCHES, available))
    batches = list(loader(schedule, workers=0))
    sequences = sum(len(batch["input_ids"]) for batch in batches)
    positions = sum(batch["input_ids"].numel() for batch in batches)
    work = Work(
        length=round(positions / sequences),
        masked=sum(int((batch["labels"] >= 0).sum()) for batch in batches) / sequences,
        paired=options.pair is not None,
    )
    return Phase(
        steps=steps,
        sequences=batch_size * options.accumulate,
        length=length,
        real=sum(int(batch["attention_mask"].sum()) for batch in batches) / sequences,
        padded=positions / sequences,
        flops=_flops(options, start, work),
        batches=tuple(islice(batches, MEASURED_BATCHES)),
    )


def _sequences(source: ItemSource) -> int:
    return len(source.draw(0, np.random.default_rng(0)))


def _flops(options: PretrainingOptions, start: StartModel, work: Work) -> float:
    with torch.device("meta"):
        learner = _learner(start, replace(options, dropout=None), meta=True)
    flops = sum(training_flops(encoder, work) for encoder in learner.encoders())
    return flops * (adversarial_passes() if options.adversarial else 1)


def _learner(start: StartModel, options: PretrainingOptions, *, meta: bool) -> PretrainingLearner:
    """Return the learner of a model; of a generator that is given config.json alone is read."""
    generator = None
    if options.generator:
        generator = generator_like(open_checkpoint(options.generator, weights=False), start.model, meta=meta)
    return build_learner(start, options, generator)


@dataclass(frozen=True)
class _Sample:
    """The beginning of a corpus, or all of it."""

    options: PretrainingOptions  # with the sample as their corpus
    share: float | None  # of the texts that are trained on; None: the size of the corpus is unknown
    is_whole: bool


def _sample(options: PretrainingOptions, directory: Path) -> _Sample:
    """Write the beginning of the corpus to a shard, in which a single document has several lines too."""
    path, size, texts, ended = directory / "000000-000.txt.gz", 0, 0, True
    (directory / MANIFEST).write_text("{}")
    with gzip.open(path, "wt", compresslevel=1, encoding="utf-8") as file:
        for document in chain.from_iterable(read_text_documents(source, options.field) for source in options.corpus):
            if size > SAMPLE_CHARACTERS:
                ended = False
                break
            text = "\n".join(document) + "\n\n"
            file.write(text)
            size, texts = size + len(text.encode()), texts + 1
    note(f"sample of the corpus: {texts:,} documents, {size / 1e6:.1f} MB")
    whole = _text_size(options.corpus, options.field)
    share = 1.0 if ended else min(1.0, size / whole) if whole else None
    trained = 1 - (options.held_out or 0.0)
    in_place = replace(options, corpus=(str(path),), held_out=None)
    return _Sample(in_place, share and share / trained, is_whole=ended)


def _text_size(sources: Sequence[str], field: str) -> float | None:
    """Return the size of the text, estimated where it is compressed or in records; None where a source has no files."""
    files = [corpus_files(source) for source in sources]
    if not all(files):
        return None
    return sum(_unpacked_size(paths) * text_share(paths, field) for own in files for paths in _by_suffix(own))


def _by_suffix(files: Sequence[Path]) -> Iterator[list[Path]]:
    for _, paths in groupby(sorted(files, key=data_suffix), key=data_suffix):
        yield list(paths)


def _unpacked_size(paths: Sequence[Path]) -> float:
    return sum(path.stat().st_size * (_TEXT_COMPRESSION if path.suffix == ".gz" else 1.0) for path in paths)


def _start_model(request: PretrainingRequest, *, meta: bool) -> StartModel:
    """Return the model, without storage or with random weights, which are as fast as trained ones."""
    start, head = request.start, head_of_objective(request.options.objective, family_name(request.start))
    tokenizer = load_new_tokenizer(start) if isinstance(start, NewModel) else load_tokenizer(start)
    config = load_config(start) if isinstance(start, Checkpoint) else shape_config(start.shape, tokenizer)
    architecture = family_of(config).architecture(head)
    model = skeleton(config, architecture) if meta else new_model(config, architecture, seed=request.options.seed)
    return StartModel(model, tokenizer)


def _count(number: float) -> str:
    for size, word in ((1e9, "billion"), (1e6, "million")):
        if number >= size:
            return f"{number / size:,.1f} {word}"
    return f"{number:,.0f}"


def _time(seconds: float) -> str:
    days = seconds / 86_400
    if seconds < 0.1:
        return "below 0.1 s"
    return f"about {duration(seconds)}" if days < 2 else f"about {days:,.1f} days"
