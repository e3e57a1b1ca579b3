"""A share of every campaign; `python -m tests.campaigns` runs all of them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc and pidfd")
def test_a_share_of_every_campaign_finds_nothing(tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    command = [sys.executable, "-m", "tests.campaigns", "--share", "0.01", "--jobs", "2", "--json", str(summary)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert summary.is_file(), done.stderr
    found = json.loads(summary.read_text(encoding="utf-8"))
    assert found["failures"] == []
    counts = found["campaigns"]
    assert counts["kills"]["met"] > 10
    assert counts["full-disk"]["met"] > 4
    assert counts["hostile"]["runs"] == 20
    assert counts["writers"]["runs"] > 5
    assert counts["guides"]["runs"] == 30
    assert done.returncode == 0
