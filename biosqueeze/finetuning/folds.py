"""The folds of a cross-validated data set, checked for parts that are missing. Torch-free."""

from pathlib import Path

from biosqueeze.data.records.splits import folds, shortened, splits_named
from biosqueeze.errors import SqueezeError


def complete_folds(directory: Path) -> tuple[Path, ...]:
    """Return the folds of a directory: see `folds`.

    Raises:
        SqueezeError: there is none, or a numbered directory has a split and no train, so that scores over the others
            would not be those of the whole.
    """
    found = folds(directory)
    if not found:
        raise SqueezeError(f"{directory} has no numbered folds (1/, 2/, ..., each with train and test files)")
    for path in sorted(directory.iterdir()):
        if path.name.isdecimal() and path.is_dir() and path not in found and splits_named(path):
            names = shortened(sorted(each.name for each in path.iterdir()))
            raise SqueezeError(
                f"{path} is no fold as {found[0].name} is: it has {names}, and no train split; complete it, name a file"
                " train, or remove the directory"
            )
    return found
