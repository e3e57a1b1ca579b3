"""One minus the cosine of the last hidden states (compact-transformers paper, equation 3)."""

from biosqueeze.objectives._states import angular

KINDS = ("mlm", "task")
READS = "hidden"
LAYERS = "last"
UNIT = "tokens"
NEEDS_TEACHER_LOGITS = False

loss = angular
