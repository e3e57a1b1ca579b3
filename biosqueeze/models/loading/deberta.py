"""What DeBERTa-v2 and -v3 checkpoints leave out of config.json, or say twice. Torch-free."""

from collections.abc import Mapping, Sequence
from typing import Any

from biosqueeze.errors import SqueezeError

_OLD_HEAD, _PUBLISHED_HEAD, _DISCRIMINATOR = "cls", "lm_predictions", "mask_predictions"


def complete_config(name: str, config: Mapping[str, Any], tensors: Sequence[str]) -> dict[str, Any]:
    """Return config.json with the kind of its masked-language-model head, and without a repeated size of the heads.

    Microsoft's checkpoints name their head `lm_predictions`. transformers builds that one only where `legacy` is false,
    which their config.json lacks, and otherwise one with random weights. Those of DeBERTa-v3 are discriminators
    (`mask_predictions`, He et al. 2021, section 3.1), whose language model head was not trained with the encoder: for
    them `legacy` stays true, so that the head counts as missing.

    Args:
        name: of the checkpoint, for messages.
        config: the content of config.json.
        tensors: names of the weights; empty if they were not fetched.

    Raises:
        SqueezeError: its heads have another size than hidden size / heads, which stock transformers cannot run.
    """
    completed = dict(config)
    size = completed.pop("attention_head_size", None)
    hidden, heads = config.get("hidden_size", 1536), config.get("num_attention_heads", 24)
    if size is not None and size * heads != hidden:
        raise SqueezeError(
            f"{name}: attention_head_size is {size} in config.json, and hidden_size / num_attention_heads "
            f"({hidden} / {heads}) was expected; correct that value"
        )
    prefixes = {tensor.partition(".")[0] for tensor in tensors}
    if _PUBLISHED_HEAD in prefixes and not prefixes & {_OLD_HEAD, _DISCRIMINATOR}:
        completed.setdefault("legacy", False)
    return completed
