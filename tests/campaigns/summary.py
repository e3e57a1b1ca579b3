"""The result of campaigns: counts, and every failure with the command that repeats it."""

import platform
import shlex
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.campaigns.plan import Experiment

_BROKEN = ("broken output", "other output", "no output", "input", "secret")
_LOST = ("lost work", "no way on", "both refused")
_BUGS = ("exit 3", "traceback")
_HANGS = ("hang", "memory", "disk", "orphans")
_COLUMNS = {"broken outputs": _BROKEN, "lost work": _LOST, "exit 3 or traceback": _BUGS, "hangs, memory": _HANGS}


@dataclass(frozen=True)
class Finding:
    """The outcome of one experiment; `met`: it was killed, found the disk full, or was refused."""

    campaign: str
    label: str
    what: str
    met: bool
    failures: list[tuple[str, str]]


@dataclass(frozen=True)
class Summary:
    """All outcomes of a run."""

    experiments: Sequence[Experiment]
    findings: Sequence[Finding]
    share: float
    seed: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return the counts by campaign, and the failures."""
        return {
            "revision": _revision(),
            "machine": platform.machine(),
            "python": platform.python_version(),
            "seconds": round(self.seconds),
            "campaigns": {name: self._counts(name) for name in self._names()},
            "failures": [self._failure(one) for one in self.findings if one.failures],
        }

    def as_text(self) -> str:
        """Return the failures and a Markdown table."""
        failed = [
            f"{one.campaign} {one.what}\n  {one.failures}\n  {self._again(one)}"
            for one in self.findings
            if one.failures
        ]
        head = ["campaign", "runs", "killed, full or refused", *_COLUMNS, "other"]
        rows = [[name, *(f"{value:,}" for value in self._counts(name).values())] for name in self._names()]
        lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
        return "\n".join([*failed, *lines, f"{self.seconds:.0f} s, revision {_revision()}"])

    def _names(self) -> list[str]:
        return list(dict.fromkeys(experiment.campaign for experiment in self.experiments))

    def _counts(self, name: str) -> dict[str, int]:
        mine = [finding for finding in self.findings if finding.campaign == name]
        kinds = Counter(kind for finding in mine for kind in {kind for kind, _ in finding.failures})
        counts = {title: sum(kinds.pop(kind, 0) for kind in group) for title, group in _COLUMNS.items()}
        return {"runs": len(mine), "met": sum(finding.met for finding in mine), **counts, "other": kinds.total()}

    def _failure(self, finding: Finding) -> dict[str, Any]:
        return {**vars(finding), "again": self._again(finding)}

    def _again(self, finding: Finding) -> str:
        only = shlex.quote(finding.label)
        return f"python -m tests.campaigns {finding.campaign} --share {self.share} --seed {self.seed} --only {only}"


def _revision() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
