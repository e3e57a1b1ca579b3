"""Distillation: student and teacher models, training data, losses, and the cache of teacher outputs."""
