"""Recognise the family of a checkpoint, and load its weights, also from old layouts."""
