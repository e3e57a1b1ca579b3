"""Pictures of importances."""

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from biosqueeze.reporting.importance import save_picture


def test_a_picture_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_figure: Any, file: Any, **_options: Any) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "no space left on device")

    path, scores = tmp_path / "scores.png", SimpleNamespace(items=lambda: {"heads": torch.ones(1, 2)})
    path.write_bytes(b"before")
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", fail)
    with pytest.raises(OSError, match="no space left"):
        save_picture(SimpleNamespace(importance="fisher", layers=(0,), scores=scores), path)  # type: ignore[arg-type]
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]
