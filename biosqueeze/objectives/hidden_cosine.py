"""One minus the cosine of hidden states, every layer (compact-transformers paper, equation 8, first part)."""

from biosqueeze.objectives._states import angular

KINDS = ("mlm", "task")
READS = "hidden"
LAYERS = "all"
UNIT = "tokens"
NEEDS_TEACHER_LOGITS = False

loss = angular
