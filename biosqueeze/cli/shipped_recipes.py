"""The recipes that come with the package: `biosqueeze run quickstart`."""

from pathlib import Path

from biosqueeze.errors import UsageError
from biosqueeze.registry import closest

_FOLDER = Path(__file__).parents[1] / "recipes"


def shipped_recipes() -> dict[str, Path]:
    """Return the files of the shipped recipes by name, sorted."""
    return {path.stem: path for path in sorted(_FOLDER.glob("*.toml"))}


def find_recipe(recipe: str | None) -> Path:
    """Return the file of a recipe: a path, or else the name of a shipped one.

    Raises:
        UsageError: there is neither; the message names the nearest, and lists all.
    """
    if recipe is None:
        raise UsageError(f"name a TOML file, or a recipe that comes with biosqueeze: {', '.join(shipped_recipes())}")
    path, name = Path(recipe).expanduser(), recipe.removesuffix(".toml")
    shipped = shipped_recipes()
    if (path.exists() and not path.is_dir()) or (path.suffix and name not in shipped):
        return path  # a missing file is reported where it is read
    if name in shipped:
        return shipped[name]
    raise UsageError(
        f"there is no recipe {recipe}.{closest(recipe, shipped)} Name a TOML file, or one that comes with biosqueeze: "
        f"{', '.join(shipped)}"
    )
