"""Build and load encoders with custom heads."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.model_facts import HEAD_FILE
from biosqueeze.models.count import count_model
from biosqueeze.models.custom_heads.cosine import CosineHead
from biosqueeze.models.custom_heads.crf import Crf
from biosqueeze.models.custom_heads.encoder import HeadedEncoder
from biosqueeze.models.custom_heads.files import damaged_head, known_head
from biosqueeze.models.custom_heads.specs import HEAD_SPECS
from biosqueeze.models.families import family_of
from biosqueeze.models.loading.load import label_changes, load_config, load_model, skeleton
from biosqueeze.progress import note
from biosqueeze.tasks.formulation import Formulation


def custom_head_of(form: Formulation) -> str | None:
    """Return the custom head that a formulation needs; None for a stock one.

    Raises:
        UsageError: the formulation combines a CRF with labels on all sub-words.
    """
    if form.tagger == "crf" and form.label_all_pieces:
        raise UsageError("--tagger crf labels whole words, so --label-all-pieces cannot go with it; leave one out")
    if form.tagger != "linear":
        return form.tagger
    return form.representation if form.representation != "cls" else None


def build_headed_encoder(checkpoint: Checkpoint, name: str, labels: Sequence[str], seed: int) -> HeadedEncoder:
    """Return a checkpoint's encoder with a custom head, in eval mode.

    Args:
        checkpoint: with the encoder; its head is loaded if it has the same name and the same labels.
        name: as returned by `custom_head_of`.
        labels: names of the classes.
        seed: of the weights that the checkpoint lacks.
    """
    encoder = load_model(checkpoint, HEAD_SPECS[name].stock_head, labels=labels, seed=seed).model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = HeadedEncoder(encoder, name, len(labels))
    _freeze_pooler(encoder)
    if has_custom_head(checkpoint, name, labels):
        _fill(model.head, _fitting_tensors(checkpoint, name, encoder.config))
    else:
        note_dropped_head(checkpoint)
    return model.eval()


def has_custom_head(checkpoint: Checkpoint, name: str, labels: Sequence[str]) -> bool:
    """Return whether a checkpoint has a custom head of this name, for the same labels."""
    return known_head(checkpoint) == name and list(checkpoint.labels) == list(labels)


def with_cosine(encoder: PreTrainedModel, low: float, high: float) -> HeadedEncoder:
    """Return an encoder with a cosine head, in eval mode; `low` and `high` are the scores for cosines of 0 and 1."""
    model = HeadedEncoder(encoder, "cosine", 1)
    model.head.set_range(low, high)
    _freeze_pooler(encoder)
    return model.eval()


def set_score_range(model: HeadedEncoder, scores: Sequence[float]) -> None:
    """Set the range of a cosine head to that of the scores in train; other heads are unchanged."""
    if isinstance(model.head, CosineHead) and scores:
        model.head.set_range(min(scores), max(scores))


def note_dropped_head(checkpoint: Checkpoint) -> None:
    """Print that the checkpoint's custom head, if it has one, is not used."""
    name = known_head(checkpoint)
    if name is not None:
        note(f"{checkpoint.name}: its {name} head is dropped ({HEAD_FILE})")


def _freeze_pooler(encoder: PreTrainedModel) -> None:
    """Exclude the pooler from training: no custom head uses it, and several processes would wait for its gradient."""
    for path, parameter in encoder.named_parameters():
        if path.startswith("pooler."):
            parameter.requires_grad = False


def load_headed_encoder(checkpoint: Checkpoint) -> HeadedEncoder:
    """Load a checkpoint with the head in its head.safetensors, in eval mode, float32, on the CPU.

    Raises:
        SqueezeError: there is none, or it is damaged or does not fit the encoder.
    """
    name = known_head(checkpoint)
    if name is None:
        raise SqueezeError(f"{checkpoint.name} has no {HEAD_FILE}; fetch or copy it again in full")
    encoder = load_model(checkpoint, HEAD_SPECS[name].stock_head).model
    tensors = _fitting_tensors(checkpoint, name, encoder.config)
    model = HeadedEncoder(encoder, name, encoder.config.num_labels or 0)
    _freeze_pooler(encoder)
    _fill(model.head, tensors)
    return model.eval()


def _empty_head(name: str, config: PreTrainedConfig, labels: int) -> nn.Module:
    """Return a custom head without storage, for the names and shapes of its tensors."""
    with torch.device("meta"):
        head: nn.Module = HEAD_SPECS[name].build(config, labels)
    return head


def _fitting_tensors(checkpoint: Checkpoint, name: str, config: PreTrainedConfig) -> dict[str, Tensor]:
    """Read head.safetensors, and compare it with the head that the config defines before that is built.

    Raises:
        SqueezeError: names or shapes differ.
    """
    tensors, labels = _read_tensors(checkpoint), config.num_labels or 0
    expected = _empty_head(name, config, labels).state_dict()
    wrong = sorted(name for name in {*tensors, *expected} if _shape(tensors, name) != _shape(expected, name))
    if wrong:
        raise SqueezeError(
            f"{checkpoint.path / HEAD_FILE} does not fit the encoder and its {labels} labels "
            f"({', '.join(wrong[:3])}); the files are not of the same model: fetch or copy all of them again"
        )
    return tensors


def _fill(head: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    if isinstance(head, Crf):
        head.load_scores(tensors)
    else:
        head.load_state_dict(tensors)


def _shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(tensors[name].shape) if name in tensors else None


def _read_tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    path = checkpoint.path / HEAD_FILE
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise damaged_head(path) from error


def decoding_parameters(model: PreTrainedModel | HeadedEncoder) -> Mapping[str, NDArray[Any]]:
    """Return what decoding needs besides the logits of a model; see `files.saved_decoding_parameters`."""
    head = model.head if isinstance(model, HeadedEncoder) else None
    return {n: t.cpu().numpy() for n, t in head.saved_scores().items()} if isinstance(head, Crf) else {}


def count_headed_parameters(checkpoint: Checkpoint, name: str, labels: int) -> int:
    """Count the parameters of a checkpoint's encoder with a custom head, from its config alone."""
    config = load_config(checkpoint)
    for key, value in label_changes([f"LABEL_{i}" for i in range(labels)]).items():
        setattr(config, key, value)
    encoder = skeleton(config, family_of(config).architecture(HEAD_SPECS[name].stock_head))
    head = _empty_head(name, config, labels)
    return count_model(encoder)["total"] + sum(p.numel() for p in head.parameters())
