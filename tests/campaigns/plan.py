"""The experiments of each campaign."""

import functools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.campaigns import disturbed, guides, hostile, scenarios
from tests.campaigns.disturbed import Clean, Outcome, Point
from tests.campaigns.faults import can_mount
from tests.campaigns.sandbox import Folder
from tests.campaigns.scenarios import SCENARIOS, Scenario

HOSTILE_INPUTS = 2000
BROKEN_LINES = 3000
_RANDOM_TIMES = 6
_DISK_SIZES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97)
_DELAYS = (0.0, 0.0, 0.2, 0.5, 0.8, 0.98)
_QUICK = 0.1  # below this share, slow scenarios are left out, and half of the others from all but the kills


@dataclass(frozen=True)
class Request:
    """What is asked for: a directory for the inputs, the share of all experiments, the seed."""

    scratch: Path
    share: float
    seed: int

    @functools.cached_property
    def inputs(self) -> Path:
        """The inputs of the scenarios."""
        return self._written("inputs", scenarios.write_inputs)

    @functools.cached_property
    def guide_inputs(self) -> Path:
        """The inputs of the guides."""
        return self._written("guides", guides.write_inputs)

    @functools.cached_property
    def clean(self) -> dict[str, Clean]:
        """The undisturbed runs of the scenarios, by name."""
        chosen = (one for one in SCENARIOS.values() if self.share >= _QUICK or not one.slow)
        return {one.name: disturbed.clean_run(one, self.inputs) for one in chosen}

    def _written(self, name: str, write: Callable[[Folder], None]) -> Path:
        (self.scratch / name).mkdir()
        place = Folder(self.scratch / name)
        write(place)
        return place.work


@dataclass(frozen=True)
class Experiment:
    """One command line that is disturbed, damaged or broken."""

    campaign: str
    label: str
    what: object
    run: Callable[[], Outcome]


_Disturb = Callable[[Point, Scenario, Clean, Path], Outcome]


_Points = Callable[[Scenario, Clean, random.Random], list[Point]]


def _disturbances(
    campaign: str, disturb: _Disturb, points: _Points, request: Request, *, half: int | None = None
) -> Iterator[Experiment]:
    """Yield a share of the points of each scenario; of every second one alone, where little is asked for."""
    for number, (name, clean) in enumerate(request.clean.items()):
        if request.share < _QUICK and half not in (None, number % 2):
            continue
        drawn = random.Random(f"{request.seed} {campaign} {name}")
        every = points(SCENARIOS[name], clean, drawn)
        for point in drawn.sample(every, max(1, int(request.share * len(every)))) if every else ():
            run = partial(disturb, point, SCENARIOS[name], clean, request.inputs)
            yield Experiment(campaign, str(point), SCENARIOS[name].line, run)


def _kill_points(scenario: Scenario, clean: Clean, drawn: random.Random) -> list[Point]:
    times = [drawn.random() for _ in range(_RANDOM_TIMES if scenario.processes == 1 else 0)]
    return [*_events(scenario, clean), *(Point(scenario.name, 0, share) for share in times)]


def _events(scenario: Scenario, clean: Clean) -> list[Point]:
    return [Point(scenario.name, number) for number in range(1, clean.events + 1)]


def _disk_points(scenario: Scenario, clean: Clean, _: random.Random) -> list[Point]:
    if scenario.has_hub:  # writes no file here
        return []
    sizes = _DISK_SIZES if can_mount() else ()
    return [*_events(scenario, clean), *(Point(scenario.name, 0, size) for size in sizes)]


def _writer_points(scenario: Scenario, clean: Clean, _: random.Random) -> list[Point]:
    alone = scenario.processes == 1
    return [Point(scenario.name, number, delay) for number, delay in enumerate(_DELAYS)] if alone else []


def _hostile(request: Request) -> Iterator[Experiment]:
    if request.share >= _QUICK:
        hostile.import_readers(request.inputs)
    damages = hostile.damages(round(request.share * HOSTILE_INPUTS), request.seed)
    for number, damage in enumerate(damages):
        yield Experiment("hostile", f"{number}", damage, partial(hostile.read_by, damage, request.inputs))


def _guides(request: Request) -> Iterator[Experiment]:
    for broken in guides.broken_lines(round(request.share * BROKEN_LINES), request.seed):
        run = partial(guides.run_broken, broken, request.guide_inputs)
        yield Experiment("guides", str(broken), broken, run)


CAMPAIGNS: dict[str, Callable[[Request], Iterator[Experiment]]] = {
    "kills": partial(_disturbances, "kills", disturbed.killed_at, _kill_points),
    "full-disk": partial(_disturbances, "full-disk", disturbed.filled_at, _disk_points, half=0),
    "hostile": _hostile,
    "writers": partial(_disturbances, "writers", disturbed.written_twice, _writer_points, half=1),
    "guides": _guides,
}
