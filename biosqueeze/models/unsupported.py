"""Families of transformers that are not supported: the message, and what still works. Torch-free."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from biosqueeze.errors import SqueezeError

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
# Endings of the classes of encoders, with and without a head.
_ENCODER_CLASSES = (
    "Model",
    "ForMaskedLM",
    "ForTokenClassification",
    "ForSequenceClassification",
    "ForQuestionAnswering",
)
_DECODER_CLASSES = ("HeadModel", "HeadsModel")


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
        f"{nearest if nearest in families else _ENCODER}. Of another family, only `biosqueeze inspect` and "
        "`biosqueeze export` work"
    )


def stock_architecture(name: str, config: Mapping[str, Any]) -> str:
    """Return the class of transformers in config.json, if it is an encoder's.

    Args:
        name: of the checkpoint, for messages.
        config: the content of config.json.

    Raises:
        SqueezeError: there is none, or it is the class of a decoder or of another kind of model.
    """
    architecture = (config.get("architectures") or [None])[0]
    if architecture is None:
        raise SqueezeError(
            f"{name} has no architectures in config.json, which name the class of a model whose family "
            f"({config.get('model_type')}) is not supported; save it with transformers' save_pretrained"
        )
    is_encoder = architecture.endswith(_ENCODER_CLASSES) and not architecture.endswith(_DECODER_CLASSES)
    if config.get("is_encoder_decoder") or config.get("is_decoder") or not is_encoder:
        raise SqueezeError(
            f"{name} is a {architecture}, and biosqueeze exports encoders: with no head, a masked-language-model head, "
            "or one for tokens, sequences or questions"
        )
    return str(architecture)
