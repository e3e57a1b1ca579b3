"""The custom heads: what each is for, and how it is built. Torch-free; a head is imported when it is built."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


@dataclass(frozen=True)
class HeadSpec:
    """What a custom head is for, and how it is built."""

    task_head: str
    """The kind of task head that it replaces: "token-classification", ..."""
    stock_head: str
    """The head of the stock model below it; "base" for none."""
    build: "Callable[[PreTrainedConfig, int], Any]"
    """From the config and the number of labels."""
    extra_inputs: tuple[str, ...] = ()
    """Its inputs besides those of the encoder."""


def _crf(_config: "PreTrainedConfig", labels: int) -> Any:
    from biosqueeze.models.custom_heads.crf import Crf

    return Crf(labels)


def _bilstm(config: "PreTrainedConfig", labels: int) -> Any:
    from biosqueeze.models.custom_heads.bilstm import BiLstm

    return BiLstm(config, labels)


def _mentions(config: "PreTrainedConfig", labels: int) -> Any:
    from biosqueeze.models.custom_heads.mentions import MentionHead

    return MentionHead(config, labels, starts=False)


def _entity_starts(config: "PreTrainedConfig", labels: int) -> Any:
    from biosqueeze.models.custom_heads.mentions import MentionHead

    return MentionHead(config, labels, starts=True)


def _cosine(_config: "PreTrainedConfig", _labels: int) -> Any:
    from biosqueeze.models.custom_heads.cosine import CosineHead

    return CosineHead()


HEAD_SPECS: Mapping[str, HeadSpec] = {
    "crf": HeadSpec("token-classification", "token-classification", _crf),
    "bilstm": HeadSpec("token-classification", "base", _bilstm),
    "mentions": HeadSpec("sequence-classification", "base", _mentions, ("entities",)),
    "entity-starts": HeadSpec("sequence-classification", "base", _entity_starts, ("entities",)),
    "cosine": HeadSpec("sequence-classification", "base", _cosine, ("entities",)),
}
