"""Hidden states of every layer: one minus their cosine (compact-transformers paper, equation 8, first part)."""

from biosqueeze.objectives._states import angular

KINDS = ("mlm", "task")
READS = "hidden"
LAYERS = "all"
UNIT = "tokens"
NEEDS_TEACHER_LOGITS = False

loss = angular
