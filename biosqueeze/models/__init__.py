"""Encoders as tensors: model families, loading, and students with fewer layers or smaller widths."""
