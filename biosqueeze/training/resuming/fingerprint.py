"""What must be equal between an interrupted training and the one that resumes it. Torch-free.

Every option is compared, except those in `INCIDENTAL`; and the contents of inputs, which the caller gives as hashes.
"""

from collections.abc import Collection, Mapping
from typing import Any

from biosqueeze.options import resolved
from biosqueeze.training.options import TrainingOptions

# Options that do not change which model a training results in, so they may differ when it is resumed or found done.
INCIDENTAL = frozenset(
    {"out", "force", "resume", "save_every", "workers", "tracker", "compile", "auto_batch", "device"}
)

# Options that may differ when the training is resumed after a non-finite or exploding loss, or after out of memory.
_CHANGEABLE_AFTER_FAILURE = {
    "lr",
    "warmup",
    "clip",
    "batch_size",
    "accumulate",
    "long_batch_size",
    "gradient_checkpointing",
    "precision",
}


def fingerprint_of(
    options: TrainingOptions, *, identity: Mapping[str, Any], uncompared: Collection[str] = ()
) -> dict[str, Any]:
    """Return what is compared on --resume, by name, as plain JSON values.

    Args:
        options: of the stage. `epochs` is left out, because `identity` holds the number of steps that follows from it.
        identity: values that are no options, or that take the place of an option of the same name: the number of
            steps, hashes of the training data and of checkpoints.
        uncompared: further options that may differ, such as paths whose contents `identity` holds.
    """
    left_out = INCIDENTAL | {"epochs"} | set(uncompared)
    return {name: value for name, value in resolved(options).items() if name not in left_out} | dict(identity)


def differing(saved: Mapping[str, Any], current: Mapping[str, Any], *, failed: bool) -> list[str]:
    """Return the sorted names whose values differ although they must be equal.

    Args:
        saved: the fingerprint in the training state.
        current: the fingerprint of the run that resumes it.
        failed: whether the run failed after the state was saved, so that some options may differ.
    """
    changed = {name for name, value in current.items() if saved.get(name) != value}
    refused = changed - _changeable(changed) if failed else changed
    # The number of steps in an epoch follows from the other values; it is named only where no other one differs.
    return sorted(refused - {"steps_per_epoch"} or refused)


def _changeable(changed: set[str]) -> set[str]:
    """Return what may differ after a failure, and what follows from these differences.

    With another batch size the last batch of an epoch may be cut into fewer micro-batches, and augmentation may draw
    other text. With another precision a masked language model may propose other words for augmentation, so that fewer
    copies are equal, and a teacher may predict other labels in the unlabelled text, of which an epoch then has another
    number of sequences.
    """
    follows = {"data or corpus", "steps", "steps_per_epoch"}
    return _CHANGEABLE_AFTER_FAILURE | (follows if changed & {"batch_size", "accumulate", "precision"} else set())
