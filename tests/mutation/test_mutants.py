"""The mutants fit the package."""

from tests.mutation import mutants


def test_every_mutant_changes_one_place() -> None:
    assert not mutants.stale()
