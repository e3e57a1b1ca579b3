"""Kullback-Leibler divergence of attention distributions, every layer, as a mean over pairs of query and key.

The published code of CompactBioBERT averages over queries and keys (reduction "mean"); equation 8 of its paper averages
over queries alone, which is `attention-kl` and larger by the number of keys. The weights of the code fit this one.
"""

from biosqueeze.objectives._relations import attention_divergence

KINDS = ("mlm", "task")
READS = "attention"
LAYERS = "all"
UNIT = "pairs"
SAME_HEADS = True
NEEDS_TEACHER_LOGITS = False

loss = attention_divergence
