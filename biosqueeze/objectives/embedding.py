"""Mean squared error of the embeddings, the input of the first layer (TinyBERT, Jiao et al. 2020, equation 9;
compact-transformers paper, equation 6).
"""

from biosqueeze.objectives._states import squared

KINDS = ("mlm", "task")
READS = "hidden"
LAYERS = "embeddings"
UNIT = "tokens"
NEEDS_TEACHER_LOGITS = False

loss = squared
