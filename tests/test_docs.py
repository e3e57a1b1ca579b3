"""The README cannot fall behind the command line."""

import re
from pathlib import Path

from biosqueeze import registry
from biosqueeze.cli.recipe import read_recipe
from biosqueeze.distillation.loss_presets import LOSS_PRESETS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_lists_every_command_and_no_other() -> None:
    commands = README.partition("## Commands")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", commands, flags=re.MULTILINE)
    assert sorted(listed) == sorted([*registry.names("stages"), "run"])


def test_the_readme_lists_every_loss_and_every_mix_of_them() -> None:
    section = README.partition("## Distillation")[2].partition("\n## ")[0]
    listed = {
        name
        for row in re.findall(r"^\| (`[^|]*) \|", section, flags=re.MULTILINE)
        for name in re.findall(r"`([\w-]+)`", row)
    }
    assert listed - {"--loss"} == {*LOSS_PRESETS, *registry.names("objectives")}


def test_the_readme_names_options_that_exist() -> None:
    shell = "\n".join(re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL))
    calls = re.findall(r"biosqueeze (\w+)((?:[^|\n&]|\\\n)*)", shell.replace("\\\n", " "))
    assert calls
    for command, rest in calls:
        if command == "run":
            recipe = ROOT / rest.split()[0]
            assert read_recipe(recipe, ())
            continue
        known = registry.load("stages", command).Options.__dataclass_fields__
        for flag in re.findall(r"--([\w-]+)", rest):
            assert flag.replace("-", "_") in known, (command, flag)


def test_ci_finds_both_commands_in_the_readme() -> None:
    for mark in ("quickstart", "tests"):
        assert re.search(rf"<!-- ci: {mark} -->\n```bash\n.+\n```", README)


def test_the_changelog_starts_with_what_is_unreleased() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)
    assert sections[0] == "Unreleased"
    assert sections[1:2] in ([], [__import__("biosqueeze").__version__])  # what was released last
