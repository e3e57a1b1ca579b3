"""The length of sequences that a model can read."""

from biosqueeze.progress import note


def fitting_length(max_length: int, positions: int) -> int:
    """Return the length of sequences: --max-length, or the model's positions if those are fewer, with a note."""
    if max_length > positions:
        note(f"--max-length {max_length} is lowered to {positions}: the model has no more positions")
    return min(max_length, positions)
