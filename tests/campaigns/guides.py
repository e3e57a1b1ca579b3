"""Campaign: every command line of the guides with each option broken in turn."""

import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import huggingface_hub.constants

import biosqueeze.checkpoint
from biosqueeze import registry
from biosqueeze.options import Argument, Hidden, option_fields
from tests import guides, layouts
from tests.campaigns import judge, sandbox
from tests.campaigns.disturbed import Outcome
from tests.campaigns.judge import Failure
from tests.campaigns.sandbox import Command, Folder
from tests.test_guides import COMMANDS, NOT_RUN, PAGES, ROOT, save_small_minilm, write_data

_HUGE = "9" * 400
_VALUES = (
    "",
    "wrong",
    "-1",
    "0",
    "nan",
    "1e999",
    "./nowhere",
    "/dev/null",
    "a=b=c",
    "x,,y",
    "[/red]",
    "é\u202e",
    "-",
    _HUGE,
)
_FEW_STEPS = {"BIOSQUEEZE_FINETUNE_STEPS": "2", "BIOSQUEEZE_DISTILL_STEPS": "2"}


@dataclass(frozen=True)
class Broken:
    """A command line of a guide with one option broken."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{' '.join(word if len(word) < 40 else f'{word[:10]}...' for word in self.words)} [{self.page}]"


def write_inputs(folder: Folder) -> None:
    """Write what the guides read: data, checkpoints, and the small models in place of the Hub's.

    Raises:
        RuntimeError: a command failed.
    """
    write_data(folder.work)
    shutil.copytree(ROOT / "recipes", folder.work / "recipes")
    minilm = save_small_minilm(folder.root / "minilm")
    biosqueeze.checkpoint._locate_demo = lambda _name: minilm  # type: ignore[assignment]
    huggingface_hub.constants.HF_HUB_CACHE = str(folder.root / "hub")
    layouts.lay_out_biobert(folder.root)
    for name in ("teacher", "start", "student"):
        folder.run_input(Command(COMMANDS[name].split()[1:], environment=_FEW_STEPS))


def broken_lines(count: int, seed: int) -> list[Broken]:
    """Return command lines, drawn at random where there are more than `count`; every value of an option is tried."""
    lines = dict.fromkeys(broken for page in PAGES for words in _commands(page) for broken in _breakages(page, words))
    return random.Random(seed).sample(list(lines), min(count, len(lines)))


def _commands(page: str) -> Iterator[list[str]]:
    """Yield the commands of a page, without the word biosqueeze."""
    for block in guides.code_blocks(ROOT / page, "bash"):
        for pipeline in guides.pipelines(block):
            if not pipeline.startswith(NOT_RUN):
                for words in guides.split_pipeline(guides.as_run(pipeline)):
                    if words[0] == "biosqueeze":
                        yield words[1:]


def _breakages(page: str, words: list[str]) -> Iterator[Broken]:
    """Yield a command with each option that it has, and each that it could have, broken."""
    stages = registry.names("stages")
    if words[0] not in stages:
        options = {"--set": True, "--out": True}
    else:
        fields = option_fields(registry.load("stages", words[0]).Options)
        named = (field for field in fields if not field.marker(Argument) and not field.marker(Hidden))
        options = {f"--{field.name.replace('_', '-')}": field.type is not bool for field in named}
    for option, has_value in options.items():
        if option in words:
            at = words.index(option)
            rest = [*words[:at], *words[at + 1 + has_value :]]
            yield Broken(page, tuple(rest))
        else:
            rest = words
        if not has_value:
            yield Broken(page, (*rest, option, *_planned(option)))
            yield Broken(page, (*rest, f"{option}=1"))
            continue
        yield Broken(page, (*rest, option))
        for value in _VALUES:
            yield Broken(page, (*rest, f"{option}={value}", *_planned(value)))
    for at, word in enumerate(words[1:], start=1):
        if not word.startswith("-"):
            for value in ("", "./nowhere", "/dev/null", "[/red]", "-"):
                yield Broken(page, (*words[:at], value, *words[at + 1 :]))


def _planned(word: str) -> tuple[str, ...]:
    """Return --dry-run where the work would be long: a huge number of steps, or compiling a model."""
    return ("--dry-run",) if word in (_HUGE, "--compile") else ()


def run_broken(broken: Broken, inputs: Path) -> Outcome:
    """Run a broken command line."""
    with sandbox.folder(inputs) as place:
        before = judge.hashes(place.work)
        ended = place.run(Command(broken.words, stdin="student\n", environment=_FEW_STEPS))
        failures = list(judge.of_ending(ended, allowed=(0, 1, 2, 4)))
        if "--force" not in broken.words:
            failures += judge.of_inputs(before, place.work)
        if ended.code and "--out" in " ".join(broken.words):
            failures += _partial_outputs(place, before)
        if ended.code == 0 and "--json" in broken.words and not _is_json(ended.out):
            failures.append(Failure("no JSON", ended.out[:200]))
        return Outcome(ended.code != 0, failures)


def _partial_outputs(place: Folder, before: dict[str, str]) -> Iterator[Failure]:
    """Judge that a refused command has written nothing, except results of runs that had succeeded."""
    for name in sorted(judge.hashes(place.work).keys() - before.keys()):
        if name.endswith((".safetensors", ".onnx")) and ".partial/" not in name and ".runs/" not in name:
            yield Failure("broken output", f"{name} exists after a failure")


def _is_json(text: str) -> bool:
    try:
        return bool(json.loads(text))
    except ValueError:
        return False
