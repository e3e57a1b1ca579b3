"""Recipes that extend others, and their scales."""

import json
from pathlib import Path

import pytest

from biosqueeze.cli.recipe_file import read_recipe
from biosqueeze.cli.recipe_tables import read_tables
from biosqueeze.errors import UsageError
from tests.cli.run import Shell

BASE = """
description = "The base."
[small]
stage = "shrink"
checkpoint = "x"
layers = "3"
[inspect]
[scale.laptop.small]
layers = "2"
[scale.pico.small]
layers = "1"
"""


def write(folder: Path, **texts: str) -> Path:
    """Write recipes by name; return the path of the last."""
    for name, text in texts.items():
        (folder / f"{name}.toml").write_text(text)
    return folder / f"{name}.toml"


def test_a_scale_replaces_keys(tmp_path: Path) -> None:
    path = write(tmp_path, base=BASE)
    plain, laptop = read_recipe(path, ()), read_recipe(path, (), "laptop")
    assert plain[0].table == {"checkpoint": "x", "layers": "3"}
    assert laptop[0].table == {"checkpoint": "x", "layers": "2"}
    assert [step.name for step in laptop] == ["small", "inspect"]


def test_a_recipe_extends_another(tmp_path: Path) -> None:
    text = 'extends = "base"\nleave_out = ["inspect"]\n[small]\nffn = 8\n[more]\nstage = "inspect"\n'
    path = write(tmp_path, base=BASE, own=text + "[scale.pico.more]\n[scale.laptop.small]\nffn = 4")
    steps = {step.name: step.table for step in read_recipe(path, (), "laptop")}
    assert steps == {"small": {"checkpoint": "x", "layers": "2", "ffn": 4}, "more": {}}
    assert read_tables(path).scales["pico"] == {"small": {"layers": "1"}, "more": {}}


def test_a_byte_order_mark_is_no_part_of_a_recipe(tmp_path: Path) -> None:
    assert list(read_tables(write(tmp_path, base=f"\ufeff{BASE}")).steps) == ["small", "inspect"]


def test_a_key_with_a_hyphen_replaces_one_without(tmp_path: Path) -> None:
    base = "[distill]\nbatch_size = 8\n[scale.laptop.distill]\nbatch-size = 4"
    assert read_recipe(write(tmp_path, base=base), (), "laptop")[0].table == {"batch_size": 4}


def test_a_table_with_its_stage_replaces_the_inherited_one(tmp_path: Path) -> None:
    path = write(tmp_path, base=BASE, own='extends = "base"\n[small]\nstage = "shrink"\nlayers = "6"\n')
    assert read_recipe(path, ())[0].table == {"layers": "6"}


@pytest.mark.parametrize(
    ("text", "scale", "says"),
    [
        (BASE, "labtop", "Did you mean 'laptop'"),
        (BASE, "x", "It has laptop and pico"),
        ("[shrink]", "laptop", "It has none; leave --scale out"),
        (BASE + "[scale.pico.smal]", "pico", "Did you mean 'small'"),
        (BASE + "[scale.odd.small]\nlayer = 3", "odd", "Did you mean 'layers'"),
        ("[shrink]\n[scale]\nlaptop = 3", None, "scale has tables for steps"),
        ("scale = 3\n[shrink]", None, "scale has tables for steps"),
        ('extends = "own"\n[shrink]', None, "extends 'own', which is no recipe"),
        ('extends = "quikstart"\n[shrink]', None, "Did you mean 'quickstart'"),
        ("extends = 3\n[shrink]", None, "'extends' is outside of a table"),
        ('extends = "quickstart"\nleave_out = ["benc"]', None, "Did you mean 'bench'"),
        ('leave_out = ["bench"]\n[shrink]', None, "leave_out lists steps of the recipe that is extended"),
        ('extends = "quickstart"\nleave_out = "bench"', None, "leave_out lists steps of the recipe"),
        ("[distill]\nbatch-size = 8\nbatch_size = 4", None, r"\[distill\] has batch_size twice, with - and with _"),
        (BASE + "[scale.odd.small]\na-b = 1\na_b = 2", None, r"\[scale.odd.small\] has a_b twice"),
    ],
)
def test_mistakes_in_scales_and_extensions_are_named(tmp_path: Path, text: str, scale: str | None, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_recipe(write(tmp_path, own=text), (), scale)


def test_recipes_that_extend_each_other_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, one='extends = "two"\n[shrink]', two='extends = "one"\n[shrink]')
    with pytest.raises(UsageError, match="without an end"):
        read_recipe(path, (), None)


def test_a_recipe_extends_the_shipped_one_of_its_name(tmp_path: Path) -> None:
    path = write(tmp_path, quickstart='extends = "quickstart"\n[teacher]\nseed = 5')
    steps = {step.name: step.table for step in read_recipe(path, (), None)}
    assert steps["teacher"]["seed"] == 5 and steps["teacher"]["data"]


def test_dry_run_shows_the_scale(tmp_path: Path, pico_bert: Path, shell: Shell) -> None:
    path = write(tmp_path, base=BASE.replace('"x"', f'"{pico_bert}"'))
    said = shell("run", path, "--scale", "laptop", "--dry-run", "--json")
    assert said.code == 0, said.err
    first = json.loads(said.out)["steps"][0]
    assert any("keep layers 0, 3 of" in step for step in first["steps"])
    assert first["out"] == "base-laptop-run/small"
