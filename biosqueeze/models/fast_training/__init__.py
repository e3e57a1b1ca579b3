"""Faster layers, attention and dropout for training on a CPU."""
