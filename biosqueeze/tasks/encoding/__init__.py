"""Encoding of examples as model inputs, and decoding of model outputs into predictions."""
