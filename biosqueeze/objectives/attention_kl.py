"""What each token of every layer attends to: Kullback-Leibler divergence (compact-transformers paper, equation 8,
second part; MobileBERT's attention transfer, Sun et al. 2020).

The compact-transformers paper writes D(student || teacher); here it is D(teacher || student), as in MobileBERT and in
`kl`.
"""

from biosqueeze.objectives._relations import attention_divergence

KINDS = ("mlm", "task")
READS = "attention"
LAYERS = "all"
UNIT = "tokens"
SAME_HEADS = True
NEEDS_TEACHER_LOGITS = False

loss = attention_divergence
