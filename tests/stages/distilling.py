"""What the tests of the stage distill share."""

QUICK = ("--precision", "fp32", "--batch-size", "8", "--max-length", "32")


def fall(steps: list[dict], term: str) -> float:
    """Return the mean of the last five values of a term over the mean of the first five."""
    first, last = (sum(step[term] for step in part) for part in (steps[:5], steps[-5:]))
    return last / first
