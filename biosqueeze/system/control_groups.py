"""The control groups of this process (Linux), through which containers and schedulers limit memory and processors."""

from collections.abc import Iterator, Mapping
from pathlib import Path

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def limiting(controller: str, limit_files: Mapping[int, str]) -> Iterator[tuple[Path, int]]:
    """Yield the control groups of this process that may have a limit, those around it too, and their version.

    Args:
        controller: "memory" or "cpu".
        limit_files: name of the file of the limit, by version (1 and 2).

    Raises:
        OSError: the kernel does not tell, or this is not Linux.
    """
    for line in (PROC / "self" / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        version, root = (1, CGROUPS / controller) if controllers else (2, CGROUPS)
        group = root / path.lstrip("/")
        for directory in (group, *group.parents):
            if directory.is_relative_to(root) and (directory / limit_files[version]).exists():
                yield directory, version
