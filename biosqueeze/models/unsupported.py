"""Families of transformers that are not supported: the message, with the nearest supported one. Torch-free."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

# model_type -> the supported family whose published checkpoints serve the same purpose.
_NEAREST: Mapping[str, str] = {
    "big_bird": "longformer",
    "convbert": "electra",
    "data2vec-text": "roberta",
    "deberta": "deberta-v2",
    "ernie": "bert",
    "ernie_m": "xlm-roberta",
    "flaubert": "camembert",
    "funnel": "electra",
    "layoutlm": "bert",
    "led": "longformer",
    "luke": "roberta",
    "megatron-bert": "bert",
    "modernbert-decoder": "modernbert",
    "mra": "longformer",
    "nomic_bert": "modernbert",
    "nystromformer": "longformer",
    "rembert": "xlm-roberta",
    "roberta-prelayernorm": "roberta",
    "roformer": "bert",
    "squeezebert": "mobilebert",
    "xlm": "xlm-roberta",
    "xlm-roberta-xl": "xlm-roberta",
    "xlnet": "bert",
    "xmod": "xlm-roberta",
    "yoso": "longformer",
}
_ENCODER = "bert"


def unsupported_message(name: str, supported: Iterable[str]) -> str:
    """Return what to do with a model of another family: the nearest supported one, all of them, and what works.

    Args:
        name: `model_type` in its config.json.
        supported: the names of the supported families.
    """
    families = list(supported)
    similar = get_close_matches(name.lower().replace("_", "-"), families, n=1, cutoff=0.75)
    nearest = _NEAREST.get(name, (*similar, _ENCODER)[0])
    return (
        f"models of type {name!r} are not supported; pass one of these families: {', '.join(families)}; the nearest is "
        f"{nearest if nearest in families else _ENCODER}. Of another family, only `biosqueeze inspect` works"
    )
