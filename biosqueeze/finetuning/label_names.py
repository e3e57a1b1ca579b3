"""Labels of published checkpoints: whether they can be read, and the command that gives them other names."""

import re
import shlex
from collections.abc import Sequence

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.tasks.encoding.tag_schemes import LETTERS, OUTSIDE, is_tag

NAMELESS = (
    "has no names of its labels (id2label in config.json is missing or has LABEL_0, ...); name them in the order of "
    "the training, a tagger's as O and B-TYPE, I-TYPE, ...: biosqueeze relabel CHECKPOINT --labels NAME,NAME,..."
)
REMOVED = "-"  # in place of the name of an output that is no label
_NO_LABELS = {"X", "[CLS]", "[SEP]", "[PAD]", "<pad>", "<PAD>"}  # of BioBERT's first taggers, and of their offspring
_LETTER_FIRST = re.compile(rf"(?P<letter>[{LETTERS}{LETTERS.lower()}])[-_ ](?P<type>.+)")
_LETTER_LAST = re.compile(rf"(?P<type>.+)[-_ ](?P<letter>[{LETTERS}])")


def check_tags(checkpoint: Checkpoint) -> None:
    """Check that entities can be read from the labels of a tagger.

    Raises:
        SqueezeError: a label is no tag, or none is O.
    """
    fault = tag_fault(checkpoint.labels)
    if fault:
        tags = ",".join(suggested_tags(checkpoint.labels)) or "O,B-TYPE,I-TYPE,..."
        raise SqueezeError(
            f"{checkpoint.name} has {fault}, and entities are read from tags: {OUTSIDE}, and letters with a type, such "
            "as B-Disease and I-Disease; name all labels so in their order, for example: "
            + shlex.join(["biosqueeze", "relabel", checkpoint.name, "--labels", tags])
        )


def tag_fault(labels: Sequence[str]) -> str:
    """Return why entities cannot be read from labels, "" if they can: "the label 'X'", "no label O"."""
    wrong = [label for label in labels if not is_tag(label)]
    if wrong:
        return f"the label {wrong[0]!r}"
    return "" if OUTSIDE in labels else f"no label {OUTSIDE}"


def suggested_tags(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the tags that labels in another spelling probably mean, in the form of `relabel --labels`.

    Read are another separator, order or case of letter and type, `0` or `o` for O, types without a letter (the scheme
    IO), and outputs that are no label. Empty where that makes no tags.
    """
    outside = next((name for name in (OUTSIDE, "0", "o") if name in labels), None)
    tags = tuple(OUTSIDE if label == outside else _tag(label) for label in labels)
    kept = [tag for tag in tags if tag != REMOVED]
    return () if tag_fault(kept) or len(set(kept)) < len(kept) else tags


def _tag(label: str) -> str:
    if label in _NO_LABELS:
        return REMOVED
    if is_tag(label):
        return label
    match = _LETTER_FIRST.fullmatch(label) or _LETTER_LAST.fullmatch(label)
    return f"{match['letter'].upper()}-{match['type']}" if match else f"I-{label}"
