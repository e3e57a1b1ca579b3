"""Campaigns: a command is killed, or finds a full disk, or runs twice at once; then it is repeated.

It is disturbed before each change that it makes on the disk, or after any share of its time.
"""

import contextlib
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.campaigns import judge, sandbox
from tests.campaigns.faults import Fault, full_disk_from, kill_before, small_disk
from tests.campaigns.judge import Failure
from tests.campaigns.sandbox import Ended, Folder
from tests.campaigns.scenarios import Scenario

_ATTEMPTS = 4


@dataclass(frozen=True)
class Clean:
    """An undisturbed run: the contents of its outputs, the names of all files after it, its changes, its time."""

    outputs: Mapping[str, str]
    names: frozenset[str]
    events: int
    seconds: float
    size: int  # bytes that it adds


@dataclass(frozen=True)
class Point:
    """Where a scenario is disturbed: before a change, or after a share of its time."""

    scenario: str
    number: int
    share: float | None = None

    def __str__(self) -> str:
        return f"{self.scenario}:{self.number}" if self.share is None else f"{self.scenario}:{self.share:.3f}"


def clean_run(scenario: Scenario, inputs: Path) -> Clean:
    """Run a scenario undisturbed, and import what it needed.

    Raises:
        RuntimeError: it failed.
    """
    with sandbox.folder(inputs, with_hub=scenario.has_hub) as place:
        ended = _run(scenario, place)
        if any(one.code for one in ended):
            raise RuntimeError(f"{scenario.line}: {ended[-1].err}")
        sandbox.import_all(place.imported())
        return Clean(
            outputs=judge.outputs(scenario, place.work),
            names=frozenset(judge.hashes(place.work)),
            events=len(ended[0].events),
            seconds=max(one.seconds for one in ended),
            size=_size(place.work) - _size(inputs),
        )


@dataclass(frozen=True)
class Outcome:
    """Whether the command met the disturbance, and what went wrong."""

    met: bool
    failures: list[Failure]


def killed_at(point: Point, scenario: Scenario, clean: Clean, inputs: Path) -> Outcome:
    """Kill a scenario at a point, and repeat it."""
    with sandbox.folder(inputs, with_hub=scenario.has_hub) as place:
        before = judge.hashes(place.work)
        if point.share is None:
            ended = _run(scenario, place, kill_before(point.number))
        else:
            ended = [place.run(scenario.commands()[0], kill_after=point.share * clean.seconds)]
        failures = [Failure("orphans", f"{one.orphans} processes ran on") for one in ended[:1] if one.orphans]
        return Outcome(ended[0].killed, [*failures, *_after(scenario, place, clean, before)])


def filled_at(point: Point, scenario: Scenario, clean: Clean, inputs: Path) -> Outcome:
    """Fill the disk before a change, or let it have room for a share of the output; then repeat with room."""
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(sandbox.folder(inputs, with_hub=scenario.has_hub))
        before = judge.hashes(place.work)
        if point.share is None:
            ended = _run(scenario, place, full_disk_from(point.number))
        else:
            make_room = stack.enter_context(small_disk(place.work, int(point.share * clean.size)))
            ended = _run(scenario, place)
            make_room()
        failures = [failure for one in ended for failure in judge.of_ending(one, allowed=_allowed(scenario))]
        return Outcome(ended[0].code == 1, [*failures, *_after(scenario, place, clean, before)])


def written_twice(point: Point, scenario: Scenario, clean: Clean, inputs: Path) -> Outcome:
    """Start a scenario twice; one must succeed, and the other succeed or be refused."""
    with sandbox.folder(inputs, with_hub=scenario.has_hub) as place:
        before = judge.hashes(place.work)
        ended = place.run_together(
            [*scenario.commands(), *scenario.commands()], delay=(point.share or 0) * clean.seconds
        )
        failures = [failure for one in ended for failure in judge.of_ending(one, allowed=_allowed(scenario))]
        if all(one.code for one in ended):
            failures.append(Failure("both refused", ended[0].err.strip()[-200:]))
        return Outcome(any(one.code for one in ended), [*failures, *_after(scenario, place, clean, before)])


def _after(scenario: Scenario, place: Folder, clean: Clean, before: Mapping[str, str]) -> Iterator[Failure]:
    """Judge what a disturbed command has left, repeat it, and judge again."""
    yield from judge.of_outputs(scenario, place.work, clean.outputs)
    yield from judge.of_inputs(before, place.work)
    saved = judge.Saved.below(place.work, before)
    yield from _repeat(scenario, place, clean, saved)


def _allowed(scenario: Scenario) -> tuple[int, ...]:
    """Return exit codes that are no failure; a launcher ends the other processes."""
    return (0, 1) if scenario.processes == 1 else (0, 1, -signal.SIGTERM)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _run(scenario: Scenario, place: Folder, fault: Fault | None = None, *more: str) -> list[Ended]:
    return place.run_together(scenario.commands(*more), fault, launched=scenario.processes > 1)


def _repeat(scenario: Scenario, place: Folder, clean: Clean, saved: judge.Saved) -> Iterator[Failure]:
    """Repeat a command as its messages say until it is done; then compare with the undisturbed run."""
    more: list[str] = []
    for _ in range(_ATTEMPTS):
        ended = _run(scenario, place, None, *more)
        for one in ended:
            yield from judge.of_ending(one, allowed=_allowed(scenario))
        yield from judge.of_repeat(saved, ended[0])
        message = ended[0].err
        if ended[0].code == 0 or _is_done_before(message, scenario, place, clean):
            break
        if "--resume" in message and "--resume" not in more:
            more.append("--resume")
        elif "--force" in message and "--force" not in more:
            more.append("--force")
        else:
            yield Failure("no way on", " | ".join(message.splitlines()[-2:]))
            return
    yield from judge.of_outputs(scenario, place.work, clean.outputs)
    yield from (Failure("no output", name) for name in scenario.outputs if not (place.work / name).exists())
    if ended[0].code == 0:  # a command that is refused removes nothing
        yield from judge.leftovers(place.work, clean.names)


def _is_done_before(message: str, scenario: Scenario, place: Folder, clean: Clean) -> bool:
    """Return whether a refusal is right: all outputs exist already and are complete."""
    return "exists already" in message and judge.outputs(scenario, place.work) == clean.outputs
