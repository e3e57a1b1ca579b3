"""Kullback-Leibler divergence of attention distributions, every layer (compact-transformers paper, equation 8, second
part; MobileBERT's attention transfer, Sun et al. 2020).

The compact-transformers paper writes D(student || teacher), see `reverse-attention-kl`. This is D(teacher || student),
as in its published code, in MobileBERT and in `kl`.
"""

from biosqueeze.objectives._relations import attention_divergence

KINDS = ("mlm", "task")
READS = "attention"
LAYERS = "all"
UNIT = "tokens"
SAME_HEADS = True
NEEDS_TEACHER_LOGITS = False

loss = attention_divergence
