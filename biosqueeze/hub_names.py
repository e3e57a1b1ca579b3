"""Names of models and data sets on the Hugging Face Hub: NAME, or NAME@REVISION with a branch, a tag or a commit."""

import os


def split_revision(name: str) -> tuple[str, str | None]:
    """Return a name without its revision, and the revision; None where it has none, as a local path."""
    if os.path.lexists(name):
        return name, None
    plain, _, revision = name.partition("@")
    return plain, revision or None
