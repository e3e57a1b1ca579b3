"""What is read from a checkpoint's head.safetensors, and done with it, before any model is loaded. Torch-free."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.model_facts import HEAD_FILE
from biosqueeze.models.custom_heads.specs import HEAD_SPECS
from biosqueeze.models.families import family_of
from biosqueeze.models.loading.detection import config_with_family, detect_head

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from biosqueeze.data.output_types import OutputType


# What they compute is computed beside the encoder, from its outputs, so that a graph or a cut of the encoder suffices.
BESIDE_ENCODER = ("crf", "cosine")


def known_head(checkpoint: Checkpoint) -> str | None:
    """Return the name of the checkpoint's custom head; None for a stock one.

    Raises:
        SqueezeError: head.safetensors has an unknown head.
    """
    name = checkpoint.custom_head
    if name is not None and name not in HEAD_SPECS:
        raise SqueezeError(
            f"{checkpoint.path / HEAD_FILE} has a head called {name!r}, which this version does not know; "
            "install the version that wrote it (see biosqueeze.json)"
        )
    return name


def task_head_in(checkpoint: Checkpoint) -> str:
    """Return the head that a checkpoint contains, named as in `detect_head`; a custom head counts as its task's.

    Raises:
        SqueezeError: head.safetensors has an unknown head.
    """
    name = known_head(checkpoint)
    if name is None or HEAD_SPECS[name].stock_head != "base":
        return detect_head(checkpoint, config_with_family(checkpoint))
    return HEAD_SPECS[name].task_head


def is_fine_tuned(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint contains the head of a task."""
    return task_head_in(checkpoint) not in ("base", "mlm", "pretraining")


def predicts_masked(checkpoint: Checkpoint) -> bool:
    """Return whether the weights have a head that predicts masked tokens; that of a discriminator does not."""
    head, config = task_head_in(checkpoint), config_with_family(checkpoint)
    return head == "mlm" or (head == "pretraining" and config["model_type"] != "electra")


def has_cosine(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint is an encoder whose mean hidden states are compared by their cosine."""
    return known_head(checkpoint) == "cosine"


def saved_score_range(checkpoint: Checkpoint) -> tuple[float, float]:
    """Return the scores for cosines of 0 and of 1 of a checkpoint with a cosine head.

    Raises:
        SqueezeError: head.safetensors is damaged.
    """
    file = checkpoint.path / HEAD_FILE
    arrays = _read_arrays(file)
    if {name: array.shape for name, array in arrays.items()} != {"low": (), "high": ()}:
        raise damaged_head(file)
    return float(arrays["low"]), float(arrays["high"])


def output_type_of(checkpoint: Checkpoint) -> "OutputType":
    """Return the output type of a checkpoint's head, a custom one included."""
    from biosqueeze.data.output_types import SCORE  # imports NumPy

    return SCORE if has_cosine(checkpoint) else output_type_of_graph(checkpoint)


def output_type_of_graph(checkpoint: Checkpoint) -> "OutputType":
    """Return the output type of a checkpoint's graph, which is without what is computed beside it."""
    from biosqueeze.data.output_types import output_type_of_config

    config = checkpoint.config
    if not config.get("architectures"):
        named = config_with_family(checkpoint)
        config = {**config, "architectures": [family_of(named).architecture(detect_head(checkpoint, named))]}
    return output_type_of_config(config)


def saved_decoding_parameters(checkpoint: Checkpoint) -> "Mapping[str, NDArray[Any]]":
    """Return what decoding needs besides the logits: a CRF's transitions (labels, labels), start and end (labels,).

    Raises:
        SqueezeError: the CRF of a checkpoint that was trained with one is missing, damaged, or for other labels.
    """
    if known_head(checkpoint) != "crf":
        if checkpoint.task and checkpoint.task.formulation.get("tagger") == "crf":
            raise SqueezeError(
                f"{checkpoint.name} was fine-tuned with a CRF, which should be in {HEAD_FILE}; copy it again in full"
            )
        return {}
    scores = _read_arrays(checkpoint.path / HEAD_FILE)
    count = label_count(checkpoint)
    if {n: array.shape for n, array in scores.items()} != {
        "transitions": (count,) * 2,
        "start": (count,),
        "end": (count,),
    }:
        raise SqueezeError(
            f"{checkpoint.path / HEAD_FILE} is not a CRF of {count} labels; the files are not of the same model: "
            "fetch or copy all of them again"
        )
    return scores


def _read_arrays(file: Path) -> "dict[str, NDArray[Any]]":
    from safetensors import SafetensorError  # imports NumPy
    from safetensors.numpy import load_file

    try:
        return load_file(file)
    except (SafetensorError, OSError, TypeError) as error:  # TypeError: numbers that NumPy does not have
        raise damaged_head(file) from error


def damaged_head(file: Path) -> SqueezeError:
    """Return the error for a head.safetensors that cannot be read."""
    return SqueezeError(f"{file} is damaged or cut short; fetch or copy it again")


def label_count(checkpoint: Checkpoint) -> int:
    """Return the number of labels in config.json, 2 where it has none, as in transformers."""
    return len(checkpoint.config.get("id2label") or ()) or int(checkpoint.config.get("num_labels") or 2)


def check_custom_head(checkpoint: Checkpoint, command: str, *, allowed: Sequence[str] = ()) -> None:
    """Check that a stage would not lose the checkpoint's custom head.

    Args:
        checkpoint: the stage's input.
        command: the stage.
        allowed: custom heads that the stage supports.

    Raises:
        SqueezeError: the checkpoint has another one.
    """
    head = checkpoint.custom_head
    if head is not None and head not in allowed:
        flag = "--tagger linear" if head in ("bilstm", "crf") else "--representation cls"
        raise SqueezeError(
            f"{checkpoint.name} has a {head} head ({HEAD_FILE}), which {command} does not support; fine-tune it with "
            f"a stock head first: biosqueeze finetune {checkpoint.quoted_name} {flag} --data DIRECTORY"
        )


def copy_head(source: Checkpoint, target: Path) -> None:
    """Copy head.safetensors, if there is one, beside a model that was made from the rest of the checkpoint."""
    if source.custom_head:
        shutil.copyfile(source.path / HEAD_FILE, target / HEAD_FILE)
