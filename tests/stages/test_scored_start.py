"""The weights before a training are scored on dev, and kept if no step scores as high, unless they have seen dev."""

from pathlib import Path

import pytest

from tests.cli.run import Shell
from tests.stages.distilling import QUICK


@pytest.mark.parametrize("with_dev", ["", "--with-dev"])
@pytest.mark.parametrize(
    "command", ["finetune teacher", "distill teacher --teacher teacher", "distill small --teacher teacher"]
)
def test_a_start_that_has_seen_dev_is_not_kept(
    command: str, with_dev: str, tuned: Path, tags: Path, shell: Shell
) -> None:
    made = shell(f"finetune {tuned} --data {tags} --dev-share 0.25 {with_dev} --steps 2 --out teacher", *QUICK)
    small = shell("shrink teacher --layers 2 --out small")
    assert (made.code, small.code) == (0, 0), made.err + small.err
    # A rate at which no step scores as high as the start.
    result = shell(f"{command} --data {tags} --steps 2 --lr 1 --out after", *QUICK)
    assert result.code == 0, result.err
    assert ("before training: dev f1" in result.err) == (not with_dev)
    assert ("kept the weights before the training" in result.err) == (not with_dev)
