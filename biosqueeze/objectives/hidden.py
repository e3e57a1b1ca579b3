"""Mean squared error of hidden states, every layer (TinyBERT, Jiao et al. 2020, equation 8; compact-transformers paper,
equation 5, first part; the feature maps of MobileBERT, Sun et al. 2020).
"""

from biosqueeze.objectives._states import squared

KINDS = ("mlm", "task")
READS = "hidden"
LAYERS = "all"
UNIT = "tokens"
NEEDS_TEACHER_LOGITS = False

loss = squared
