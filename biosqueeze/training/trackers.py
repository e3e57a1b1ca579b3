"""--tracker: log losses and scores to TensorBoard, Weights & Biases or MLflow too, through Accelerate."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from biosqueeze.errors import SqueezeError, first_line, require
from biosqueeze.options import resolved
from biosqueeze.progress import warn
from biosqueeze.training.options import TrainingOptions

PROJECT = "biosqueeze"
FOLDER = "runs"  # where the Hub expects TensorBoard's files

_ADVICE = {
    "tensorboard": "check that its directory can be written to",
    "wandb": "log in with `wandb login`, or set WANDB_MODE=offline",
    "mlflow": "check MLFLOW_TRACKING_URI",
}


def check_tracker(options: TrainingOptions) -> None:
    """Check that the tracker is installed.

    Raises:
        SqueezeError: it is not; the message has the pip line.
    """
    if options.tracker:
        require(options.tracker, options.tracker)


@contextmanager
def tracking(accelerator: Accelerator, options: TrainingOptions, directory: Path, step: int) -> Iterator[None]:
    """Start the tracker of --tracker, if any, and finish it at the end, errors included.

    Args:
        accelerator: made with log_with=options.tracker.
        options: of the stage; they are recorded with the curves.
        directory: its name is the name of the run, after that of the output where it is a folder in it.
        step: the step that a resumed run continues from; TensorBoard's entries of later steps are removed.

    Raises:
        SqueezeError: the tracker cannot be started.
    """
    if not options.tracker:
        yield
        return
    settings: dict[str, dict[str, Any]] = {
        "tensorboard": {"purge_step": step + 1} if step else {},
        "wandb": {"name": _run_name(directory)},
        "mlflow": {"run_name": _run_name(directory)},
    }
    # TensorBoard would put the value of each option into its own folder.
    config = None if options.tracker == "tensorboard" else resolved(options)
    try:
        accelerator.init_trackers(PROJECT, config, {options.tracker: settings[options.tracker]})
    except Exception as error:  # each library has its own
        raise SqueezeError(
            f"--tracker {options.tracker} cannot be started ({first_line(error)}); {_ADVICE[options.tracker]}"
        ) from error
    try:
        yield
    finally:
        for tracker in accelerator.trackers:
            try:
                tracker.finish()
            except Exception as error:  # each library has its own
                warn(f"the tracker could not be finished ({first_line(error)}); metrics.jsonl has everything")


def _run_name(directory: Path) -> str:
    output, partial = directory.parent.name, ".partial"
    prefix = f"{output.removesuffix(partial)}-" if output.endswith(partial) else ""
    return prefix + directory.name.removesuffix(partial)
