"""The commands beside the figures of the benchmark pages are ones that the scripts and stages of today take."""

import argparse
import re
import runpy
import shlex
from itertools import groupby
from pathlib import Path

import pytest

from biosqueeze import registry
from biosqueeze.cli.command import stage_command
from biosqueeze.cli.parameters import read_options
from tests import guides

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "examples" / "benchmarks"
PAGES = [*BENCHMARKS.glob("results/*.md"), ROOT / "examples" / "ncbi_disease" / "README.md"]
SEPARATORS = ("|", "||", "&&", ";", ">")


def commands_of(page: Path) -> list[list[str]]:
    """Return the words of each command of a page, without variables before it."""
    commands = []
    for block in (*guides.code_blocks(page, "bash"), *guides.code_blocks(page, "sh")):
        for pipeline in guides.pipelines(block):
            lexer = shlex.shlex(pipeline, posix=True, punctuation_chars="|&;>")
            lexer.whitespace_split, lexer.commenters = True, "#"
            groups = groupby(lexer, key=lambda word: word not in SEPARATORS)
            commands += [_without_variables(list(words)) for is_command, words in groups if is_command]
    return commands


def _without_variables(words: list[str]) -> list[str]:
    return words[next((i for i, word in enumerate(words) if not re.match(r"[A-Z_]+=", word)), len(words)) :]


def of_program(program: str) -> list[tuple[str, ...]]:
    """Return the arguments of a program in all pages, each once."""
    found = [command[1:] for page in PAGES for command in commands_of(page) if command[:1] == [program]]
    return sorted({tuple(words) for words in found})


class ParsedError(Exception):
    """A script has read its arguments."""


SCRIPTS = [words for words in of_program("python") if words[0] != "-m"]
STAGES = [words for words in of_program("biosqueeze") if words[0] in registry.names("stages")]


def test_pages_have_commands() -> None:
    assert len(SCRIPTS) > 30
    assert len(STAGES) > 15
    assert {words[0] for words in of_program("biosqueeze")} <= {*registry.names("stages"), "run"}


@pytest.mark.parametrize("words", SCRIPTS, ids=lambda words: Path(words[0]).stem)
def test_scripts_take_the_arguments(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    read = argparse.ArgumentParser.parse_args

    def stop(*arguments: object, **options: object) -> None:
        raise ParsedError(read(*arguments, **options))  # type: ignore[arg-type]

    script = next(path for path in (BENCHMARKS / words[0], ROOT / words[0]) if path.exists())
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    monkeypatch.setattr("sys.argv", [str(script), *words[1:]])
    monkeypatch.syspath_prepend(script.parent)
    with pytest.raises(ParsedError):
        runpy.run_path(str(script), run_name="__main__")


@pytest.mark.parametrize("words", STAGES, ids=lambda words: words[0])
def test_stages_take_the_options(words: tuple[str, ...]) -> None:
    stage = registry.load("stages", words[0])
    with stage_command(words[0], stage).make_context(words[0], list(words[1:])) as context:
        assert read_options(stage, context).sources
