"""How many cores this process may use."""

import math
import os
from pathlib import Path

from biosqueeze.system import control_groups

_QUOTA_FILES = {1: "cpu.cfs_quota_us", 2: "cpu.max"}


def usable_cores() -> int:
    """Return the number of logical cores that this process is bound to, and that its CPU quota pays for."""
    return cores_by_quota() or _bound_cores()


def cores_by_quota() -> int | None:
    """Return how many cores the CPU quota of this process pays for; None if that is no fewer than it is bound to.

    `docker run --cpus 4` leaves a process all cores, and stops it for the rest of each tenth of a second in which it
    has used the time of four. PyTorch and ONNX Runtime do not read the quota: they start a thread for each core.
    """
    try:
        quotas = [_quota_of(*group) for group in control_groups.limiting("cpu", _QUOTA_FILES)]
    except (OSError, ValueError):
        return None
    cores = min(quotas, default=math.inf)
    return max(1, math.ceil(cores)) if cores <= _bound_cores() - 1 else None


def limit_threads_to_quota() -> None:
    """Have OpenMP start no more threads than the CPU quota pays for, unless the environment sets their number."""
    cores = cores_by_quota()
    if cores is not None:
        os.environ.setdefault("OMP_NUM_THREADS", str(cores))


def _bound_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _quota_of(group: Path, version: int) -> float:
    """Return the share of time of a control group in cores, infinite where it has no quota."""
    names = (_QUOTA_FILES[version], *(("cpu.cfs_period_us",) if version == 1 else ()))  # version 2: both in one file
    quota, period = " ".join((group / name).read_text() for name in names).split()
    return math.inf if quota in ("-1", "max") else int(quota) / int(period)
