"""Run a pretraining from its request to the trained model; the package's docstring lists the steps."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.mask_rate import MaskRate
from biosqueeze.errors import UsageError
from biosqueeze.models.detection import config_with_family
from biosqueeze.models.families import family_of
from biosqueeze.pretraining.data import PretrainingData, PretrainingDataSettings, load_pretraining_data
from biosqueeze.pretraining.held_out import HeldOut
from biosqueeze.pretraining.learner import PretrainingLearner
from biosqueeze.pretraining.models import StartModel, load_start
from biosqueeze.pretraining.objectives import build_learner, head_of_objective
from biosqueeze.pretraining.request import UNCOMPARED_ON_RESUME, NewModel, PretrainingRequest
from biosqueeze.training.hashes import checkpoint_hash, source_hash
from biosqueeze.training.job import TrainingJob
from biosqueeze.training.loop import check_options, train
from biosqueeze.training.options import fitting_length
from biosqueeze.training.precision import precision_of


@dataclass(frozen=True)
class PretrainingResult:
    """The trained learner and what the manifest records."""

    learner: PretrainingLearner
    start: StartModel
    metrics: dict[str, Any]

    def save(self, directory: Path) -> None:
        """Write weights, configs and tokenizer."""
        for folder in self.learner.save(directory):
            self.start.tokenizer.save_pretrained(folder)


def family_name(start: Checkpoint | NewModel) -> str:
    """Return the family of the model that is trained."""
    return start.family if isinstance(start, NewModel) else str(config_with_family(start)["model_type"])


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
    data = _load_data(request, start, options.max_length)
    _check_held_out(request, data)
    check_options(options, start.model, evaluated=data.held_out is not None)
    learner = build_learner(start, options)
    summary = train(
        TrainingJob(
            title="pretrain",
            identity=_identity(request, data),
            uncompared=UNCOMPARED_ON_RESUME,
            learner=learner,
            source=data.source,
            options=options,
            directory=directory,
            maskings=options.maskings,
            evaluate=_evaluator(learner, data, start, precision_of(options)),
            metric=None,
        )
    )
    metrics = {**summary.as_metrics(), "objective": options.objective, "corpus_sha256": source_hash(data.source)}
    return PretrainingResult(learner, start, metrics)


def _load_data(request: PretrainingRequest, start: StartModel, length: int) -> PretrainingData:
    options = request.options
    settings = PretrainingDataSettings(
        corpus=options.corpus,
        field=options.field,
        pairs=options.pair,
        mask_unit=options.mask_unit,
        mask_rate=MaskRate.parse(options.mask_rate),
        for_generator=options.objective == "rtd",
        held_out=options.held_out,
        pack=family_of(start.model.config).supports_packing,
        seed=options.seed,
    )
    return load_pretraining_data(settings, start.tokenizer, fitting_length(length, start.positions))


def _check_held_out(request: PretrainingRequest, data: PretrainingData) -> None:
    if request.options.eval_every and data.held_out is None:
        raise UsageError("--eval-every needs held-out text; give --held-out 0.01 too, or leave --eval-every out")


def _evaluator(
    learner: PretrainingLearner, data: PretrainingData, start: StartModel, precision: str
) -> Callable[[Any], dict[str, float]] | None:
    """Return a function that scores the learner, of whose weights the model that is passed is a part."""
    if data.held_out is None:
        return None
    held_out = HeldOut.of(data.held_out, start.tokenizer, precision)
    return lambda _model: held_out.scores(learner)


def _identity(request: PretrainingRequest, data: PretrainingData) -> dict[str, Any]:
    """Return what must be unchanged for --resume, beside the options."""
    start = request.start
    model = checkpoint_hash(start) if isinstance(start, Checkpoint) else str(start.shape)
    held_out = source_hash(data.held_out) if data.held_out else None
    return {"checkpoint": model, "corpus": source_hash(data.source), "held-out text": held_out}
