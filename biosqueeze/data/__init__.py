"""Text and examples on their way to a model: numpy arrays, no torch."""
