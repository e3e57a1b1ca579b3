"""Run a pretraining from its request to the trained model; the package's docstring lists the steps."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.lengths import fitting_length
from biosqueeze.data.text.corpus import is_stream
from biosqueeze.data.text.mask_rate import MaskRate
from biosqueeze.errors import UsageError
from biosqueeze.models.families import family_of
from biosqueeze.models.loading.detection import config_with_family
from biosqueeze.options import flag_of
from biosqueeze.pretraining.data import PretrainingData, load_pretraining_data
from biosqueeze.pretraining.data_settings import PretrainingDataSettings
from biosqueeze.pretraining.held_out import HeldOut
from biosqueeze.pretraining.learner import PretrainingLearner
from biosqueeze.pretraining.models import StartModel, load_start
from biosqueeze.pretraining.objectives import build_learner, head_of_objective
from biosqueeze.pretraining.options import PretrainingOptions
from biosqueeze.pretraining.probe import FineTuningProbe, parse_probes, probe_steps, read_probes
from biosqueeze.pretraining.request import UNCOMPARED_ON_RESUME, NewModel, PretrainingRequest
from biosqueeze.system import processes
from biosqueeze.training.batches import ItemSource
from biosqueeze.training.job import LongPhase, TrainingJob
from biosqueeze.training.loop import train
from biosqueeze.training.metrics_log import METRICS_FILE
from biosqueeze.training.option_checks import check_supported
from biosqueeze.training.precision import precision_of
from biosqueeze.training.resuming.hashes import checkpoint_hash, source_hash
from biosqueeze.training.resuming.state import check_options


@dataclass(frozen=True)
class PretrainingResult:
    """The trained learner and what the manifest records."""

    learner: PretrainingLearner
    start: StartModel
    metrics: dict[str, Any] = field(default_factory=dict)

    def save(self, directory: Path) -> None:
        """Write weights, configs and tokenizer."""
        for folder in self.learner.save(directory):
            self.start.tokenizer.save_pretrained(folder)


def family_name(start: Checkpoint | NewModel) -> str:
    """Return the family of the model that is trained."""
    return start.family if isinstance(start, NewModel) else str(config_with_family(start)["model_type"])


@dataclass(frozen=True)
class _Texts:
    """The data of both lengths."""

    short: PretrainingData
    long: PretrainingData | None

    @property
    def held_out(self) -> ItemSource | None:
        """The text that is only scored: at the length that the training ends with."""
        return (self.long or self.short).held_out

    @property
    def identity(self) -> dict[str, str | None]:
        """Hashes of all texts by name."""
        sources = {"corpus": self.short.source, "corpus at --long-length": self.long and self.long.source}
        named = {**sources, "held-out text": self.held_out}
        return {name: source_hash(source) if source else None for name, source in named.items()}


def pretrain(request: PretrainingRequest, directory: Path) -> PretrainingResult:
    """Load or build the model, read the data, and train.

    Args:
        request: what to do.
        directory: of the output; training states are saved there.

    Raises:
        UsageError: model, data and options do not fit together.
        SqueezeError: something cannot be read, written or computed.
        KeyboardInterrupt: Ctrl-C; the training state was saved first.
    """
    options = request.options
    start = load_start(request.start, head_of_objective(options.objective, family_name(request.start)), options.seed)
    check_supported(options, start.model)
    learner = build_learner(start, options)
    check_options(directory, options, UNCOMPARED_ON_RESUME)
    texts = _read_texts(request, start)  # last, as it may take hours
    result = PretrainingResult(learner, start)
    identity = _identity(request.start) | texts.identity
    summary = train(
        TrainingJob(
            title="pretrain",
            identity=identity,
            uncompared=UNCOMPARED_ON_RESUME,
            learner=learner,
            source=texts.short.source,
            options=options,
            directory=directory,
            maskings=options.maskings,
            evaluate=_evaluator(learner, texts, start, precision_of(options)),
            metric=None,
            long=LongPhase(texts.long.source, long_batch_size(options), options.long_share) if texts.long else None,
            probe=_probe(options, result, directory),
            sharded=processes.sharding(),
        )
    )
    corpus = {"corpus_sha256": identity["corpus"], "corpus_tokens": texts.short.tokens}
    setting = {"objective": options.objective, "max_length": min(options.max_length, start.positions)}
    result.metrics.update(summary.as_metrics() | setting | corpus)
    if options.probe and processes.is_main():
        result.metrics["probes"] = read_probes(directory / METRICS_FILE)
    return result


def check_pipes(options: PretrainingOptions) -> None:
    """Check that the corpus is no pipe where it is read twice.

    Raises:
        UsageError: it is one.
    """
    twice = next((name for name in ("held_out", "long_length") if getattr(options, name)), None)
    pipe = next(filter(is_stream, options.corpus), None)
    if twice and pipe:
        raise UsageError(
            f"{flag_of(twice)} reads the corpus twice, and {pipe} is a pipe, which can be read once; write it to a "
            "file first"
        )


def _read_texts(request: PretrainingRequest, start: StartModel) -> _Texts:
    """Read the corpus at each length, and the held-out text at the last one."""
    options = request.options
    short, long = sequence_lengths(options, start.positions)
    at_short = read_text(options, start, short, with_held_out=long is None)
    return _Texts(at_short, read_text(options, start, long) if long else None)


def sequence_lengths(options: PretrainingOptions, positions: int) -> tuple[int, int | None]:
    """Return the tokens in a sequence, and those in the last part of the steps if they are more.

    Args:
        options: of the training.
        positions: the longest input of the model.

    Raises:
        UsageError: --long-length is no longer than --max-length, or longer than the positions of the model.
    """
    short, long = fitting_length(options.max_length, positions), options.long_length
    if long is not None and not short < long <= positions:
        raise UsageError(
            f"--long-length {long} must be above --max-length, {short}, and at most {positions}, the positions of the "
            "model"
        )
    return short, long


def long_batch_size(options: PretrainingOptions) -> int:
    """Return --long-batch-size, or the size that has as many tokens as a batch of short sequences."""
    same_tokens = options.batch_size * options.max_length // (options.long_length or options.max_length)
    return options.long_batch_size or max(1, same_tokens)


def read_text(
    options: PretrainingOptions, start: StartModel, length: int, *, with_held_out: bool = True
) -> PretrainingData:
    """Read the corpus at one length, and the held-out text, if there is any and it is wanted."""
    settings = PretrainingDataSettings(
        corpus=options.corpus,
        field=options.field,
        pairs=options.pair,
        mask_unit=options.mask_unit,
        mask_rate=MaskRate.parse(options.mask_rate),
        for_generator=options.objective == "rtd",
        held_out=options.held_out,
        maskings=options.maskings,
        pack=family_of(start.model.config).supports_packing,
        seed=options.seed,
    )
    return load_pretraining_data(settings, start.tokenizer, length, with_held_out=with_held_out)


def _evaluator(
    learner: PretrainingLearner, texts: _Texts, start: StartModel, precision: str
) -> Callable[[Any], dict[str, float]] | None:
    """Return a function that scores the learner, of whose weights the model that is passed is a part."""
    if texts.held_out is None:
        return None
    held_out = HeldOut.of(texts.held_out, start.tokenizer, precision)
    return lambda _model: held_out.scores(learner)


def _probe(options: PretrainingOptions, result: PretrainingResult, directory: Path) -> FineTuningProbe | None:
    data = parse_probes(options.probe)
    steps = probe_steps(options.probe_at)
    flags = ("--seed", str(options.seed), "--device", options.device)
    return FineTuningProbe(data, steps, result.save, directory, flags) if data else None


def _identity(start: Checkpoint | NewModel) -> dict[str, Any]:
    """Return what the first weights follow from, beside the options."""
    return {"checkpoint or shape": checkpoint_hash(start) if isinstance(start, Checkpoint) else str(start.shape)}
