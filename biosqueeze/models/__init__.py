"""Encoders as tensors: which families there are, how they load, and how they get shallower and narrower."""
