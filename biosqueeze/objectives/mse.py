"""Mean squared error of the last hidden states (compact-transformers paper, equation 5, hidden part)."""

from biosqueeze.objectives._states import squared

KINDS = ("mlm", "task")
READS = "hidden"
LAYERS = "last"
UNIT = "tokens"
NEEDS_TEACHER_LOGITS = False

loss = squared
