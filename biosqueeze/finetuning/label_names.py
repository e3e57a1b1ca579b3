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
# Outputs for special tokens and for the other pieces of a word, of BioBERT's first taggers and their offspring.
_NO_LABEL = re.compile(r"X|PAD|\[.*\]|<.*>")
_UNKNOWN = re.compile(r"LABEL_\d+|\d+|.*,.*")
_LETTER_FIRST = re.compile(rf"(?P<letter>[{LETTERS}])[-_ ](?P<type>.+)")
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
    names = [label for label in labels if label != outside and not _NO_LABEL.fullmatch(label)]
    if any(map(_UNKNOWN.fullmatch, names)):
        return ()
    upper = {name: name[:1].upper() + name[1:] for name in names}
    is_lower = all(map(_LETTER_FIRST.fullmatch, upper.values()))
    tags = {name: _tag(upper[name] if is_lower else name) for name in names}
    if tag_fault([*tags.values(), *([OUTSIDE] if outside else [])]) or len(set(tags.values())) < len(tags):
        return ()
    return tuple(OUTSIDE if label == outside else tags.get(label, REMOVED) for label in labels)


def _tag(label: str) -> str:
    if is_tag(label):
        return label
    match = _LETTER_FIRST.fullmatch(label) or _LETTER_LAST.fullmatch(label)
    return f"{match['letter']}-{match['type']}" if match else f"I-{label}"
