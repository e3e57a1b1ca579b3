"""The recipes that come with the package."""

import json
import tomllib
from pathlib import Path

import pytest

from biosqueeze import registry
from biosqueeze.cli.recipe_file import read_recipe
from biosqueeze.cli.shipped_recipes import shipped_recipes
from tests.cli.run import Shell

FOLDER = Path(__file__).parents[2] / "recipes"
RECIPES = sorted(FOLDER.glob("*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_every_recipe_file_is_valid(path: Path) -> None:
    steps = read_recipe(path, ())
    assert all(step.stage in registry.names("stages") for step in steps)


def test_shipped_recipes_run_by_name(shell: Shell) -> None:
    assert {path.name for path in shipped_recipes().values()} == {path.name for path in RECIPES}
    planned = shell("run quickstart --dry-run --json")
    assert planned.code == 0, planned.err
    assert json.loads(planned.out)["steps"][0]["step"] == "teacher"


def test_a_directory_does_not_hide_a_shipped_recipe(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "quickstart").mkdir()
    assert shell("run quickstart --out quickstart --dry-run").code == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("quikstart", "Did you mean 'quickstart'?"),
        ("absent.toml", "there is no recipe absent.toml"),
        ("absent/quickstart.toml", "there is no recipe absent/quickstart.toml"),
        ("./quickstart", "there is no recipe ./quickstart"),
        ("x", "tinybiobert"),
    ],
)
def test_unknown_recipes_are_explained(shell: Shell, name: str, message: str) -> None:
    refused = shell("run", name)
    assert refused.code == 2
    assert message in refused.err


def test_a_file_precedes_a_shipped_recipe(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "quickstart").write_text('[shrunk]\nstage = "shrunk"\n')
    assert "is no stage" in shell("run", "quickstart").err


def test_wheels_contain_the_recipes() -> None:
    package_data = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert "recipes/*.toml" in package_data["biosqueeze"]
    assert (FOLDER.parent / "biosqueeze" / "recipes").resolve() == FOLDER


def test_run_without_a_recipe_lists_those_that_are_shipped(shell: Shell) -> None:
    said = shell("run")
    assert said.code == 2
    assert "a recipe that comes with biosqueeze: biodistilbert, " in said.err
