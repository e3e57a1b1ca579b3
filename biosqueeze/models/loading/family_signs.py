"""Infer a family and a head from the names of a checkpoint's tensors, its config.json and its files. Torch-free."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from biosqueeze.models.families import FAMILIES, Family

# Signs of a family where names have no prefix, or one that many families have: the beginning of a tensor's name in the
# trunk, and a key of config.json.
_SIGNS = (
    ("modernbert", "layers.0.attn.Wqkv.", "global_attn_every_n_layers"),
    ("eurobert", "layers.0.self_attn.q_proj.", "rms_norm_eps"),
    ("longformer", "encoder.layer.0.attention.self.query_global.", "attention_window"),
    ("albert", "encoder.albert_layer_groups.", "num_hidden_groups"),
    ("mobilebert", "embeddings.embedding_transformation.", "intra_bottleneck_size"),
    ("deberta-v2", "encoder.rel_embeddings.", "position_buckets"),
    ("mpnet", "encoder.relative_attention_bias.", "relative_attention_num_buckets"),
)
_GENERIC_PREFIX = "model"
_OF_TOKENS = ("base", "mlm", "pretraining")
# Families that are recognised but not supported, and a part of the names of their tensors. The first DeBERTa has the
# prefix of its successors.
_UNSUPPORTED = (("deberta", ".attention.self.in_proj."), ("t5", "encoder.block."))


def infer_family(names: Sequence[str], config: Mapping[str, Any], files: Iterable[str]) -> str | None:
    """Infer the family from the names of the tensors, or from config.json and the tokenizer's files alone.

    The layers of BERT, RoBERTa and ELECTRA have the same names. Without a prefix, the tokenizer (RoBERTa has
    merges.txt, XLM-RoBERTa sentencepiece.bpe.model) and the width of the embeddings (ELECTRA's differs from the
    layers') distinguish them.

    Args:
        names: names of the tensors; empty if the weights were not fetched.
        config: config.json.
        files: names of the files in the checkpoint's directory.

    Returns:
        A `model_type`, possibly of an unsupported family; None if nothing fits.
    """
    prefixes = {name.removeprefix("module.").partition(".")[0] for name in names}
    unsupported = [family for family, sign in _UNSUPPORTED if any(sign in name for name in names)]
    if unsupported:
        return unsupported[0]
    prefixed = [name for name, family in FAMILIES.items() if (family.prefix or name) in prefixes - {_GENERIC_PREFIX}]
    if prefixed:
        return _roberta_like(config, set(files)) if "roberta" in prefixed else prefixed[0]
    for family, start, key in _SIGNS:
        if key in config or any(name.removeprefix(f"{_GENERIC_PREFIX}.").startswith(start) for name in names):
            return family
    if "dim" in config or any(".attention.q_lin." in name for name in names):
        return "distilbert"
    if names and not any(".attention.self.query." in name for name in names):
        return None
    return _bert_or_similar(prefixes, config, set(files))


def _bert_or_similar(prefixes: set[str], config: Mapping[str, Any], files: set[str]) -> str:
    electra = {"embeddings_project", "discriminator_predictions", "generator_predictions"}
    if "embedding_size" in config or prefixes & electra:
        return "electra"
    signs = {"merges.txt", "sentencepiece.bpe.model"}
    if files & signs or "lm_head" in prefixes or config.get("type_vocab_size") == 1 or _is_camembert(config):
        return _roberta_like(config, files)
    return "bert"


def _roberta_like(config: Mapping[str, Any], files: set[str]) -> str:
    """Return the family of RoBERTa's tensors: the three have the same names, and differ in their tokenizers."""
    if _is_camembert(config):
        return "camembert"
    multilingual = "sentencepiece.bpe.model" in files or config.get("vocab_size") == 250_002
    return "xlm-roberta" if multilingual else "roberta"


def _is_camembert(config: Mapping[str, Any]) -> bool:
    """Return whether a config has the ids of CamemBERT's special tokens, which differ from all others'."""
    return (config.get("bos_token_id"), config.get("eos_token_id")) == (5, 6)


def infer_head(family: Family, names: Iterable[str], labels: Sequence[str]) -> str:
    """Infer the head from the names of the tensors; "base" if there is none.

    BERT's token and sequence classifiers have the same names: labels such as B-Disease, or no pooler, mean tokens.
    """
    tensor_names = list(names)
    head = next((h for prefix, h in family.heads if any(n.startswith(prefix) for n in tensor_names)), "base")
    pooled = any(".pooler." in f".{name}" for name in tensor_names)
    tagged = any(label[:2] in ("B-", "I-") for label in labels)
    if head == "token-classification" and pooled and not tagged:
        return "sequence-classification"
    return head


def lacks_head(family: Family, names: Iterable[str], head: str) -> bool:
    """Return whether no tensor belongs to a head that predicts tokens, or for the head of a task, to one of any task.

    The tensors of these have the same names, whatever the task.
    """
    prefixes = tuple(prefix for prefix, kind in family.heads if (kind in _OF_TOKENS) == (head in _OF_TOKENS))
    return not any(name.startswith(prefixes) for name in names)
