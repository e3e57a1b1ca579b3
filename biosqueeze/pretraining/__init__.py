"""Pretraining of encoders: masked, replaced and paired text, the learners of their objectives, and their costs."""
