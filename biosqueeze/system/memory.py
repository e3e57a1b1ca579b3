"""The memory of a training on a CPU: keep what is freed, and fail at an allocation that cannot be served."""

import ctypes
import resource
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from biosqueeze.system import control_groups

# Parameter numbers of mallopt, from malloc.h, and its defaults.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_KEEP = {_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1}
_RETURN = {_MMAP_MAX: 65536, _TRIM_THRESHOLD: 128 * 1024, _MMAP_THRESHOLD: 128 * 1024}
_UNLIMITED = 2**62  # version 1 has no word for it, but a number near 2**63
# Files of a control group by the version of cgroups: its limit, its use, and the file cache in that use.
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
    2: ("memory.max", "memory.current", ("inactive_file", "active_file")),
}
_LIMIT_FILES = {version: limit for version, (limit, *_) in _FILES.items()}
_SWAP_FILES = ("memory.swap.max", "memory.swap.current")  # of version 2


def keep_freed_memory() -> bool:
    """Set glibc to keep large freed blocks; return False where the C library is another one.

    A dense gradient of a word embedding (30,522 x 384 floats are 47 MB) is above the size from which glibc maps each
    block anew, so that the kernel clears every page of it again at every step.
    """
    return _set(_KEEP)


def return_freed_memory() -> bool:
    """Undo `keep_freed_memory`: give each large freed block back; return False where the C library is another one.

    Blocks that are kept do not serve larger requests, and code for other batch sizes is allocated between them.
    """
    return _set(_RETURN)


def _set(parameters: Mapping[int, int]) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return all(mallopt(name, value) for name, value in parameters.items())


@contextmanager
def limited_memory(device: str) -> Iterator[None]:
    """Apply `limit_to_available_memory`, and undo it after the block."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limit_to_available_memory(device)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def limit_to_available_memory(device: str) -> None:
    """Let a process that trains on the CPU allocate what is available now, and no more (Linux).

    Linux promises memory that it does not have, and kills a process that uses it: no message, no saved state. Under
    this limit the allocation fails instead, which is an error of Python or of torch. A GPU has limits of its own.
    """
    available = available_memory() if device == "cpu" else None
    if available is None:
        return
    limit, hard = _data_size() + available, resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def available_memory() -> int | None:
    """Return the bytes that this process can still use, swap included, in its machine and control groups.

    None where the kernel does not report them.
    """
    try:
        machine = dict(_fields(control_groups.PROC / "meminfo"))
        groups = list(control_groups.limiting("memory", _LIMIT_FILES))
        free = min([1024 * machine["MemAvailable"], *(_free_in(group, version) for group, version in groups)])
        swap = min([1024 * machine["SwapFree"], *(_free_swap_in(group) for group, _ in groups)])
        return free + swap
    except (OSError, KeyError, ValueError):
        return None


def _free_in(group: Path, version: int) -> int:
    limit, used, caches = _FILES[version]
    free = _below_limit(group / limit, group / used)
    if free == sys.maxsize:
        return free
    statistics = dict(_fields(group / "memory.stat"))
    return max(0, free + sum(statistics[name] for name in caches))


def _free_swap_in(group: Path) -> int:
    limit, used = (group / name for name in _SWAP_FILES)
    return max(0, _below_limit(limit, used)) if limit.exists() else sys.maxsize


def _below_limit(limit: Path, used: Path) -> int:
    """Return the difference of two numbers of bytes; the highest number where there is no limit."""
    most = limit.read_text().strip()
    return sys.maxsize if most == "max" or int(most) > _UNLIMITED else int(most) - int(used.read_text())


def _fields(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the names and numbers of the lines of a file of the kernel, such as `MemFree: 12 kB`."""
    for line in path.read_text().splitlines():
        name, number, *_ = line.split()
        yield name.rstrip(":"), int(number)


def _data_size() -> int:
    """Return the bytes that RLIMIT_DATA counts: private pages that this process may write."""
    pages = int((control_groups.PROC / "self" / "statm").read_text().split()[5])
    return pages * resource.getpagesize()
