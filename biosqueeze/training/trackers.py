"""Losses and scores go to TensorBoard, Weights & Biases or MLflow too, through Accelerate."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from biosqueeze.errors import SqueezeError, require
from biosqueeze.options import resolved
from biosqueeze.training.options import TrainingOptions

PROJECT = "biosqueeze"
FOLDER = "runs"  # where the Hub looks for TensorBoard's files

_WAYS_OUT = {
    "tensorboard": "check that its directory can be written to",
    "wandb": "log in with `wandb login`, or set WANDB_MODE=offline",
    "mlflow": "check MLFLOW_TRACKING_URI",
}


def check_tracker(options: TrainingOptions) -> None:
    """Make sure that the tracker is installed.

    Raises:
        SqueezeError: it is not; the message holds the pip line.
    """
    if options.tracker:
        require(options.tracker, options.tracker)


@contextmanager
def tracking(accelerator: Accelerator, options: TrainingOptions, directory: Path, step: int) -> Iterator[None]:
    """Start the tracker that was asked for, and finish it whatever happens.

    Args:
        accelerator: made with log_with=options.tracker.
        options: of the stage; they are noted beside the curves.
        directory: gives the run its name.
        step: the step from which a resumed run goes on; what TensorBoard knows of later ones is dropped.

    Raises:
        SqueezeError: the tracker cannot be started.
    """
    if not options.tracker:
        yield
        return
    special: dict[str, dict[str, Any]] = {
        "tensorboard": {"purge_step": step + 1} if step else {},
        "wandb": {"name": directory.name.removesuffix(".partial")},
        "mlflow": {"run_name": directory.name.removesuffix(".partial")},
    }
    # TensorBoard would put each option's value into a folder of its own.
    config = None if options.tracker == "tensorboard" else resolved(options)
    try:
        accelerator.init_trackers(PROJECT, config, {options.tracker: special[options.tracker]})
    except Exception as error:  # each library has its own
        cause = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SqueezeError(
            f"--tracker {options.tracker} cannot be started ({cause}); {_WAYS_OUT[options.tracker]}"
        ) from error
    try:
        yield
    finally:
        for tracker in accelerator.trackers:
            tracker.finish()
