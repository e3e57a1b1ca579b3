"""Unlabelled text: read, tokenised, masked, packed, and stored for training."""
