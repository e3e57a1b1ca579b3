"""Check the options of all runs of a search or suite before the first of them trains."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from transformers import PreTrainedConfig

from biosqueeze.data.output_types import OutputType
from biosqueeze.data.sampling import check_train_size
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.finetuning.data import SplitOptions, TaskSetup, open_task_setup, read_splits
from biosqueeze.finetuning.grid import GridPoint, format_value
from biosqueeze.finetuning.loss_checks import check_loss_options
from biosqueeze.finetuning.options import FineTuningOptions
from biosqueeze.finetuning.reinit import check_reinitialised
from biosqueeze.models.custom_heads.load import custom_head_of
from biosqueeze.models.families import family_of
from biosqueeze.progress import collect_warnings, quietly
from biosqueeze.tasks.formulation import Formulation
from biosqueeze.training.option_checks import check_family, check_training_options


def check_points(
    build: Callable[..., FineTuningOptions],
    shared: Mapping[str, Any],
    points: Sequence[GridPoint],
    overrides: Mapping[str, Any] | None = None,
) -> None:
    """Check the options of one run at each point: their bounds and syntax, each other, and the task.

    Args:
        build: the class of finetune's options.
        shared: options of all runs, with checkpoint, data and task.
        points: of --grid; one empty point without a grid.
        overrides: the values in `shared` that are of --set, for the message.

    Raises:
        UsageError: finetune would not run at a point, which the message names.
    """
    for point in points:
        values = {**shared, **point}
        try:
            options = build(**values, sources=dict.fromkeys(values, "flag"))
            check_training_options(options, evaluated=True)
            if "epochs" in point and options.steps:
                raise UsageError("--epochs has no effect with --steps; leave out one of the two")
            setup = open_task_setup(str(values["task"]), Formulation.from_options(options), options.written)
            custom_head_of(setup.task.formulation)
        except UsageError as error:
            words = [*_words("--set", overrides or {}), *_words("--grid", point)]
            raise UsageError(f"{' '.join(words)}: {error}" if words else str(error)) from error


def check_points_on_data(
    options: FineTuningOptions,
    points: Sequence[GridPoint],
    config: PreTrainedConfig,
    output_type: OutputType,
    examples: int,
) -> None:
    """Check the options of one run at each point against the model and the labels.

    Args:
        options: of the stage, with a task.
        points: of --grid; one empty point without a grid.
        config: of the model.
        output_type: of the data.
        examples: how many there are to train on.

    Raises:
        UsageError: finetune would not run at a point, which the message names.
    """
    for point in points:
        at_point = _at_point(options, point)
        formulation = _setup_of(at_point).task.formulation
        try:
            check_family(at_point, family_of(config))
            check_reinitialised(at_point.reinit_layers, config)
            check_loss_options(at_point, formulation, output_type)
            check_train_size(at_point.train_size, examples)
        except UsageError as error:
            raise UsageError(f"{' '.join(_words('--grid', point))}: {error}" if point else str(error)) from error


def read_at_points(
    options: FineTuningOptions, points: Sequence[GridPoint], setup: TaskSetup, splits: SplitOptions
) -> None:
    """Read train and dev as the runs at each point do, once for each formulation.

    Args:
        options: of the stage, with a task.
        points: of --grid.
        setup: without the grid, whose formulation has been read.
        splits: of the data.

    Raises:
        SqueezeError: the data do not fit the formulation of a point, which the message names.
    """
    read = [setup.task.formulation]
    for point in points:
        other = _setup_of(_at_point(options, point))
        if other.task.formulation in read:
            continue
        read.append(other.task.formulation)
        try:
            with quietly(), collect_warnings():  # those of the first reading are printed
                read_splits(other, splits)
        except SqueezeError as error:
            raise type(error)(f"{' '.join(_words('--grid', point))}: {error}") from error


def _at_point(options: FineTuningOptions, point: GridPoint) -> Any:
    return replace(options, **point, sources={**options.sources, **dict.fromkeys(point, "flag")})


def _setup_of(options: Any) -> TaskSetup:
    return open_task_setup(options.task, Formulation.from_options(options), options.written)


def _words(flag: str, values: Mapping[str, Any]) -> list[str]:
    texts = {name.replace("_", "-"): format_value(value).removesuffix(".0") for name, value in values.items()}
    return [f"{flag} {name}={text}" for name, text in texts.items()]
