"""Scores of predictions against gold labels."""
