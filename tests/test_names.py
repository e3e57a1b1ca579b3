"""Names of tests are short enough to be read in a report."""

import re
from pathlib import Path

LONGEST = 60


def test_names_have_at_most_sixty_characters() -> None:
    files = Path(__file__).parent.rglob("test_*.py")
    names = [name for file in files for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8"))]
    assert [name for name in names if len(name) > LONGEST] == []
