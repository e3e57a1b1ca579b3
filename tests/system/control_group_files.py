"""Files of control groups as the kernel has them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from biosqueeze.system import control_groups


def write(
    root: Path, monkeypatch: pytest.MonkeyPatch, groups: str, files: Mapping[str, str], *, meminfo: str = ""
) -> None:
    """Lay out /proc and /sys/fs/cgroup under `root`.

    Args:
        root: a directory.
        monkeypatch: has the files read there.
        groups: the text of /proc/self/cgroup.
        files: texts by their path in /sys/fs/cgroup.
        meminfo: the text of /proc/meminfo.
    """
    proc, cgroups = root / "proc", root / "cgroup"
    texts = {proc / "meminfo": meminfo, proc / "self/cgroup": groups}
    for path, text in (texts | {cgroups / name: text for name, text in files.items()}).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(control_groups, "PROC", proc)
    monkeypatch.setattr(control_groups, "CGROUPS", cgroups)
