"""Tokenizers of checkpoints, old and new: casing, settings, SentencePiece, and text without transformers."""
