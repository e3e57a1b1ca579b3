"""Names of models and data sets on the Hugging Face Hub: NAME, or NAME@REVISION with a branch, a tag or a commit."""

import os
import re

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?")


def may_be_on_hub(name: str) -> bool:
    """Return whether a text has the form of a model's name on the Hub; otherwise it can only be a path."""
    return _HUB_ID.fullmatch(name) is not None and not name.startswith(".")


def split_revision(name: str) -> tuple[str, str | None]:
    """Return a name without its revision, and the revision; None where it has none, as a local path."""
    if os.path.lexists(name):
        return name, None
    plain, _, revision = name.partition("@")
    return plain, revision or None
