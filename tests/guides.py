"""The commands of the Markdown pages, and a small shell that runs them in this process."""

import gzip
import io
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from biosqueeze.cli import main

# Values that only make a run longer, that a model trained for two steps cannot reach, or that the generated data lack.
SHORTENED = (
    (r"--steps \d+", "--steps 2"),
    (r"--probe-at [\d,]+", "--probe-at 1,2"),
    (r"--fit-head \d+", "--fit-head 2"),
    (r"--epochs \S+ ?", ""),
    (r"--labels O,B-Disorder,I-Disorder", "--labels O,B-Disorder,B-Drug,B-Gene,I-Disorder,I-Drug,I-Gene"),
    (r"--min f1=\S+", "--min f1=0"),
    (r"--batch-size (48|64)", "--batch-size 4"),
    (r"biosqueeze distill (?!.*--(steps|dry-run))", "biosqueeze distill --epochs 1 "),
)
# Commands that start processes of their own: they are planned, not run.
PLANNED = re.compile(
    r"biosqueeze (benchmark|bench|run) |--grid|--probe|--folds|--speedup|--family \d|accelerate launch"
)


@dataclass(frozen=True)
class Ran:
    """One pipeline and its result."""

    command: str
    code: int
    out: str
    err: str


def code_blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def pipelines(block: str) -> list[str]:
    """Return the pipelines of a block, continuation lines joined."""
    lines = block.replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines if line.strip() and not line.lstrip().startswith("#")]


def as_run(pipeline: str) -> str:
    """Return a pipeline with few steps, or with --dry-run."""
    for pattern, replacement in SHORTENED:
        pipeline = re.sub(pattern, replacement, pipeline)
    pipeline = re.sub(r"accelerate launch .*?-m biosqueeze", "accelerate launch biosqueeze", pipeline)
    if PLANNED.search(pipeline) and "--dry-run" not in pipeline:
        pipeline += " --dry-run"
    return pipeline.replace("accelerate launch ", "")


class SmallShell:
    """Runs pipelines of biosqueeze, printf, zcat and head in this process and the current directory."""

    def __init__(self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.capfd, self.monkeypatch = capfd, monkeypatch

    def __call__(self, pipeline: str) -> Ran:
        command = as_run(pipeline)
        code, out, err = 0, "", ""
        for words in split_pipeline(command):
            code, out, messages = self._program(words, out)
            err += messages
            if code:
                break
        return Ran(command, code, out, err)

    def _program(self, words: list[str], stdin: str) -> tuple[int, str, str]:
        match words:
            case ["biosqueeze", *arguments]:
                self.capfd.readouterr()
                self.monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin.encode()))))
                code = main.run(arguments)
                return code, *self.capfd.readouterr()
            case ["printf", text]:
                return 0, text.encode().decode("unicode_escape"), ""
            case ["zcat", path]:
                return 0, gzip.decompress(Path(path).read_bytes()).decode(), ""
            case ["head", "-n", count]:
                return 0, "".join(stdin.splitlines(keepends=True)[: int(count)]), ""
        return 127, "", f"{words[0]}: no such program"


def split_pipeline(pipeline: str) -> list[list[str]]:
    """Split a pipeline at its pipes, and each command into words."""
    lexer = shlex.shlex(pipeline, posix=True, punctuation_chars="|")
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    for word in lexer:
        if word == "|":
            commands.append([])
        else:
            commands[-1].append(word)
    return commands
