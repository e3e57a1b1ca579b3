"""Saved states, what they are valid for, and the end of a training by a signal."""
