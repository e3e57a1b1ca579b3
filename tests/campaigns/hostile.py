"""Campaign: every file that a command reads is damaged in every way that hypothesis draws."""

import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.campaigns import judge, mutations, sandbox
from tests.campaigns.disturbed import Outcome
from tests.campaigns.judge import Failure
from tests.campaigns.mutations import Mutation
from tests.campaigns.sandbox import Command, Ended, Folder

_SHORT = "--batch-size 1 --length 8 --rounds 1 --seconds 0 --warmup 1 --threads 1"
_DISK_MEGABYTES = 300.0
_TRAINING = "--steps 1 --precision fp32 --batch-size 4 --max-length 24"


def _commands_on(checkpoint: str) -> tuple[str, ...]:
    """Return the commands that read a checkpoint."""
    return (
        f"inspect {checkpoint}",
        f"shrink {checkpoint} --ffn 32 --out out",
        f"relabel {checkpoint} --labels O,B-Chemical --out out",
        f"predict {checkpoint} records.jsonl --out out.jsonl",
        f"evaluate {checkpoint} --data ner",
        f"finetune {checkpoint} --data ner --out out {_TRAINING}",
        f"finetune {checkpoint} --data ner --out out {_TRAINING} --dry-run",
        f"distill start --teacher {checkpoint} --data ner --out out {_TRAINING}",
        f"bench {checkpoint} {_SHORT}",
        f"report {checkpoint} --html out.html",
    )


_DATA_COMMANDS = (
    "finetune bert --data {0} --task {1} --out out " + _TRAINING,
    "tasks inspect {0} --task {1}",
    "tasks inspect {0}",
)


@dataclass(frozen=True)
class Target:
    """A file, its format, and the commands that read it."""

    file: str
    format: str
    commands: tuple[str, ...]


def _targets() -> Iterator[Target]:
    yield Target("teacher/model.safetensors", "safetensors", _commands_on("teacher"))
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "biosqueeze.json"):
        yield Target(f"teacher/{name}", "json", _commands_on("teacher"))
    yield Target("sharded/model.safetensors.index.json", "json", _commands_on("sharded"))
    yield Target("teacher/results/evaluate-torch.json", "json", ("report teacher --html out.html", "inspect teacher"))
    yield Target("teacher/metrics.jsonl", "jsonl", ("report teacher --html out.html",))
    on_graph = (*_commands_on("exported")[:4], f"bench exported {_SHORT}", "quantize exported --out out")
    yield Target("exported/onnx/model.onnx", "onnx", on_graph)
    yield Target("int8/onnx/model_quantized.onnx", "onnx", (*_commands_on("int8")[:4], f"bench int8 {_SHORT}"))
    yield Target("brief.toml", "toml", ("run brief.toml --dry-run", "run brief.toml --out recipe-out"))
    yield Target("done/recipe-state.json", "json", ("run brief.toml --out done", "run brief.toml --out done --dry-run"))
    resumed = (
        f"finetune bert --data ner --out begun --resume --steps 3 --save-every 1 {_TRAINING.removeprefix('--steps 1 ')}"
    )
    yield Target("begun.partial/state-00000002/progress.json", "json", (resumed,))
    yield Target("begun.partial/state-00000002/model.safetensors", "safetensors", (resumed,))
    for ending in ("jsonl", "jsonl.gz", "txt", "txt.gz", "pubtator"):
        lines = tuple(f"predict {model} records.{ending} --out out.jsonl" for model in ("teacher", "int8"))
        more = (f"predict teacher records.{ending} --skip-bad --out out.jsonl", f"predict teacher records.{ending}")
        text = {"jsonl": "jsonl", "txt": "text", "pubtator": "text"}.get(ending, "gz")
        yield Target(f"records.{ending}", text, (*lines, *more))
    for ending, text in (("txt", "text"), ("txt.gz", "gz"), ("jsonl", "jsonl")):
        corpus = (f"distill small --teacher bert --corpus corpus.{ending} --out out {_TRAINING}",)
        static = f"quantize exported --calibration corpus.{ending} --out out"
        yield Target(f"corpus.{ending}", text, (*corpus, static))
    endings = {"qa": "json", "relation": "jsonl", "nli": "jsonl"}
    for kind in ("ner", "pico", "classification", "similarity", "qa", "relation", "nli"):
        ending = endings.get(kind, "tsv")
        text = "text" if ending == "tsv" else ending
        yield Target(f"{kind}/train.{ending}", text, tuple(line.format(kind, kind) for line in _DATA_COMMANDS))
    yield Target("ner/test.tsv", "text", ("evaluate teacher --data ner",))
    for kind, ending in (("bioc", "xml"), ("biocjson", "json"), ("pubtator", "pubtator")):
        text = {"pubtator": "text"}.get(ending, ending)
        yield Target(f"{kind}/train.{ending}", text, tuple(line.format(kind, "ner") for line in _DATA_COMMANDS))


TARGETS = tuple(_targets())


@dataclass(frozen=True)
class Damage:
    """One hostile input, and the command that reads it."""

    target: Target
    line: str
    mutation: Mutation

    def __str__(self) -> str:
        return f"{self.line} [{self.target.file}: {str(self.mutation)[:120]}]"


def damages(count: int, number: int) -> list[Damage]:
    """Draw damages; `number` is the seed."""
    drawn: list[Damage] = []

    @seed(number)
    @settings(
        max_examples=2 * count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(st.sampled_from(TARGETS).flatmap(_on))
    def draw(damage: Damage) -> None:
        if damage not in drawn:
            drawn.append(damage)

    draw()
    return drawn[:count]


def import_readers(inputs: Path) -> None:
    """Run each command once on files that are not damaged, and import what it needed.

    Raises:
        RuntimeError: one failed.
    """
    for line in dict.fromkeys(line for target in TARGETS for line in target.commands):
        with sandbox.folder(inputs) as place:
            place.run_input(Command(shlex.split(line)))


def _on(target: Target) -> st.SearchStrategy[Damage]:
    drawn = mutations.BY_FORMAT[target.format]
    if target.file.startswith("records."):  # predict reads named pipes, and waits for their writer
        drawn = drawn.filter(lambda mutation: mutation != ("kind", "fifo"))
    return st.builds(Damage, st.just(target), st.sampled_from(target.commands), drawn)


def read_by(damage: Damage, inputs: Path) -> Outcome:
    """Damage a file and run the command that reads it; it may be refused."""
    with sandbox.folder(inputs) as place:
        os.environ["TMPDIR"] = str(place.root / "tmp")  # where the secret lies
        mutations.apply(damage.mutation, place.work / damage.target.file)
        before = set(place.work.rglob("*"))
        ended = place.run(Command(shlex.split(damage.line)))
        failures = list(judge.of_ending(ended, allowed=(0, 1, 2)))
        made = [
            path for path in (place.work / "out", place.work / "out.jsonl", place.work / "out.html") if path.exists()
        ]
        if ended.code:
            failures += [Failure("broken output", f"{path.name} exists after a failure") for path in made]
        else:
            failures += [failure for path in made for failure in _of_output(path, place)]
        failures += _of_disk(place, before)
        return Outcome(ended.code != 0, failures)


def _of_output(path: Path, place: Folder) -> Iterator[Failure]:
    """Judge that an output can be loaded."""
    if path.suffix == ".jsonl":
        yield from _of_predictions(path)
    elif judge.content_of(path) is None:
        yield Failure("broken output", path.name)
    elif path.is_dir():
        loaded: Ended = place.run(Command(shlex.split(f"bench {path.name} {_SHORT}")))
        if loaded.code:
            yield Failure("broken output", f"cannot be loaded: {loaded.err.strip()[-200:]}")


def _of_predictions(path: Path) -> Iterator[Failure]:
    def refuse(word: str) -> float:
        raise ValueError(f"{word} is no JSON")

    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            json.loads(line, parse_constant=refuse)
    except ValueError as error:
        yield Failure("broken output", f"{path.name}: {error}")


def _of_disk(place: Folder, before: set[Path]) -> Iterator[Failure]:
    """Judge that little was written, and nothing from outside of the checkpoint."""
    written = [
        path for path in place.work.rglob("*") if path not in before and path.is_file() and not path.is_symlink()
    ]
    megabytes = sum(path.stat().st_size for path in written) / 1e6
    if megabytes > _DISK_MEGABYTES:
        yield Failure("disk", f"{megabytes:.0f} MB")
    for path in written:
        if path.stat().st_size < 1_000_000 and mutations.SECRET.encode() in path.read_bytes():
            yield Failure("secret", f"{path.name} holds a file from outside")
