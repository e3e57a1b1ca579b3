"""What a command may leave behind: complete outputs, unchanged inputs, and one line that explains a failure."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from biosqueeze import manifest
from biosqueeze.data.text.corpus import MANIFEST as CORPUS
from biosqueeze.errors import SqueezeError
from biosqueeze.files import content_hash
from tests.campaigns.sandbox import MEGABYTES, Ended
from tests.campaigns.scenarios import Scenario

# Written into checkpoints that are inputs.
_ADDED = re.compile(r"(^|/)(results/.*|README\.md|report\.html|metrics\.jsonl)$")
_CODE = re.compile(r"[0-9a-f]{6,}")  # random, or of a path


@dataclass(frozen=True)
class Failure:
    """Something that must not happen."""

    kind: str
    detail: str


def of_ending(ended: Ended, allowed: Iterable[int]) -> Iterator[Failure]:
    """Judge how a command ended: exit code, messages, time, memory, processes left."""
    last = (ended.err.strip().splitlines() or [""])[-1]
    if ended.hung:
        yield Failure("hang", f"still running after {ended.seconds:.0f} s")
    elif not ended.killed and ended.code not in allowed:
        yield Failure("exit 3" if ended.code == 3 else f"exit {ended.code}", " | ".join(ended.err.splitlines()[-2:]))
    if "Traceback (most recent call last)" in ended.err:
        yield Failure("traceback", last)
    elif ended.code in (1, 2) and not _is_one_line(ended.err):
        yield Failure("no one line", ended.err[-300:])
    if ended.megabytes > MEGABYTES:
        yield Failure("memory", f"{ended.megabytes:.0f} MB")
    if ended.orphans:
        yield Failure("orphans", f"{ended.orphans} processes ran on")


def _is_one_line(err: str) -> bool:
    lines = [line for line in err.splitlines() if re.match(r"(process \d+: )?(error|bug|interrupted)\b|Usage:", line)]
    return len({re.sub(r"^process \d+: ", "", line) for line in lines}) == 1 and bool(err.strip().splitlines()[-1])


def hashes(work: Path) -> dict[str, str]:
    """Return the hash of every file below a directory, by its relative name."""
    files = (path for path in sorted(work.rglob("*")) if path.is_file())
    return {str(path.relative_to(work)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def of_inputs(before: Mapping[str, str], work: Path) -> Iterator[Failure]:
    """Judge that no input has changed; results and cards may."""
    after = hashes(work)
    for name, value in before.items():
        if name not in after:
            yield Failure("input", f"{name} is gone")
        elif after[name] != value and not _ADDED.search(name):
            yield Failure("input", f"{name} has changed")


def of_outputs(scenario: Scenario, work: Path, clean: Mapping[str, str]) -> Iterator[Failure]:
    """Judge that what lies under a final name is what an undisturbed run writes."""
    for name in scenario.outputs:
        if not (work / name).exists():
            continue
        content = content_of(work / name)
        if content is None:
            yield Failure("broken output", name)
        elif content != clean[name]:
            yield Failure("other output", f"{name} differs from an undisturbed run's")


def outputs(scenario: Scenario, work: Path) -> dict[str, str]:
    """Return the contents of all outputs of an undisturbed run."""
    return {name: content_of(work / name) or "" for name in scenario.outputs if (work / name).exists()}


def content_of(path: Path) -> str | None:
    """Return a hash of a complete output, or a word where it holds times; None where it is broken."""
    try:
        if path.is_dir():
            return _content_of_directory(path)
        text = path.read_bytes()
        if path.suffix == ".json":
            return "JSON" if json.loads(text) else None
        if path.suffix == ".html":
            return "a page" if text.rstrip().endswith(b"</html>") else None
        if path.suffix in (".md", ".tex"):
            return "a table" if text.endswith(b"\n") else None
        return hashlib.sha256(text).hexdigest()
    except (OSError, ValueError, SqueezeError):
        return None


def _content_of_directory(folder: Path) -> str | None:
    if (folder / CORPUS).is_file():
        return _content_of_corpus(folder)
    return content_hash(folder) if is_complete(folder) else None


def _content_of_corpus(folder: Path) -> str | None:
    """Return a hash of a complete corpus, whatever its options; None where a shard is missing."""
    corpus = json.loads((folder / CORPUS).read_bytes())
    if not all((folder / shard["name"]).is_file() for shard in corpus["shards"]):
        return None
    facts = {name: value for name, value in corpus.items() if name != "options"}
    files = {name: value for name, value in hashes(folder).items() if name != CORPUS}
    return hashlib.sha256(json.dumps([facts, files]).encode()).hexdigest()


def is_complete(checkpoint: Path) -> bool:
    """Return whether a directory has a valid manifest, and weights unless it is a vocabulary."""
    try:
        facts = manifest.read_manifest(checkpoint)
        return facts is not None and (facts.stage == "vocab" or any(checkpoint.glob("*.safetensors")))
    except SqueezeError:
        return False


@dataclass(frozen=True)
class Saved:
    """The work that lies on the disk after a failure: training states, parts of a corpus, and finished outputs."""

    states: frozenset[str]  # and reports of parts
    finished: frozenset[str]  # under their final names

    @classmethod
    def below(cls, work: Path, inputs: Mapping[str, str]) -> "Saved":
        """Find the work below a directory; the inputs are none."""
        states = {str(path) for path in work.rglob("state-*") if path.is_dir()}
        parts = {str(path) for path in work.rglob("*.partial/parts/*.json")}
        made = (path.parent for path in work.rglob(manifest.FILE_NAME) if str(path.relative_to(work)) not in inputs)
        finished = {str(path).removesuffix(".partial") for path in made if is_complete(path)}
        corpora = {str(path.parent) for path in work.rglob(CORPUS)}
        return cls(frozenset(states | parts), frozenset(finished | corpora))


def of_repeat(saved: Saved, repeat: Ended) -> Iterator[Failure]:
    """Judge that a repeated command has used the states and the finished checkpoints."""
    for line in repeat.events:
        _, event, path = line.split(" ", 2)
        if event == "os.rename" and path in saved.states:
            yield Failure("lost work", f"{path} was computed again")
        for end in (f".partial/{manifest.FILE_NAME}", f"/{CORPUS}"):
            if path.endswith(end) and path.removesuffix(end) in saved.finished:
                yield Failure("lost work", f"{path.removesuffix(end)} was made again")


def leftovers(work: Path, clean: Iterable[str]) -> Iterator[Failure]:
    """Judge that an undisturbed run leaves the same files; beside checkpoints, locks and partial files may be left."""
    known = {_CODE.sub("*", name) for name in clean}
    for path in sorted(work.rglob("*")):
        incidental = path.suffix in (".lock", ".partial") and not is_complete(path.parent)
        if _CODE.sub("*", str(path.relative_to(work))) not in known and not path.is_dir() and not incidental:
            yield Failure("leftover", str(path.relative_to(work)))
