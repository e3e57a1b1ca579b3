"""Build and load encoders with custom heads, and read from checkpoints what decoding needs."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.model_facts import HEAD_FILE
from biosqueeze.models.count import count_model, skeleton
from biosqueeze.models.custom_heads.cosine import CosineHead
from biosqueeze.models.custom_heads.crf import Crf
from biosqueeze.models.custom_heads.encoder import HEAD_SPECS, HeadedEncoder
from biosqueeze.models.families import family_of
from biosqueeze.models.load import detect_head, label_changes, load_config, load_model
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


def task_head_in(checkpoint: Checkpoint) -> str:
    """Return the head that a checkpoint contains, named as in `load.detect_head`; a custom head counts as its task's.

    Raises:
        SqueezeError: head.safetensors has an unknown head.
    """
    name = _custom_head(checkpoint)
    if name is None or HEAD_SPECS[name].stock_head != "base":
        return detect_head(checkpoint, load_config(checkpoint))
    return HEAD_SPECS[name].task_head


def _custom_head(checkpoint: Checkpoint) -> str | None:
    name = checkpoint.custom_head
    if name is not None and name not in HEAD_SPECS:
        raise SqueezeError(
            f"{checkpoint.path / HEAD_FILE} has a head called {name!r}, which this version does not know; "
            "install the version that wrote it (see biosqueeze.json)"
        )
    return name


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
    if _custom_head(checkpoint) == name and list(checkpoint.labels) == list(labels):
        _fill(model, checkpoint)
    else:
        note_dropped_head(checkpoint)
    return model.eval()


def set_score_range(model: HeadedEncoder, scores: Sequence[float]) -> None:
    """Set the range of a cosine head to that of the scores in train; other heads are unchanged."""
    if isinstance(model.head, CosineHead) and scores:
        model.head.set_range(min(scores), max(scores))


def note_dropped_head(checkpoint: Checkpoint) -> None:
    """Print that the checkpoint's custom head, if it has one, is not used."""
    name = _custom_head(checkpoint)
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
    name = _custom_head(checkpoint)
    if name is None:
        raise SqueezeError(f"{checkpoint.name} has no {HEAD_FILE}; fetch or copy it again in full")
    encoder = load_model(checkpoint, HEAD_SPECS[name].stock_head).model
    model = HeadedEncoder(encoder, name, encoder.config.num_labels or 0)
    _freeze_pooler(encoder)
    _fill(model, checkpoint)
    return model.eval()


def _fill(model: HeadedEncoder, checkpoint: Checkpoint) -> None:
    tensors = _read_tensors(checkpoint)
    expected = model.head.state_dict()
    wrong = sorted(name for name in {*tensors, *expected} if _shape(tensors, name) != _shape(expected, name))
    if wrong:
        raise SqueezeError(
            f"{checkpoint.path / HEAD_FILE} does not fit the encoder and its {model.config.num_labels} labels "
            f"({', '.join(wrong[:3])}); the files are not of the same model: fetch or copy all of them again"
        )
    if isinstance(model.head, Crf):
        model.head.load_scores(tensors)
    else:
        model.head.load_state_dict(tensors)


def _shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(tensors[name].shape) if name in tensors else None


def _read_tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    path = checkpoint.path / HEAD_FILE
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise SqueezeError(f"{path} is damaged or cut short; fetch or copy it again") from error


def decoding_parameters(source: Checkpoint | PreTrainedModel | HeadedEncoder) -> Mapping[str, NDArray[Any]]:
    """Return what decoding needs besides the logits: a CRF's transitions (labels, labels), start and end (labels,).

    Raises:
        SqueezeError: the CRF of a checkpoint that was trained with one is missing, damaged, or for other labels.
    """
    if isinstance(source, Checkpoint):
        return _parameters_in(source)
    head = source.head if isinstance(source, HeadedEncoder) else None
    return {n: t.cpu().numpy() for n, t in head.saved_scores().items()} if isinstance(head, Crf) else {}


def _parameters_in(checkpoint: Checkpoint) -> Mapping[str, NDArray[Any]]:
    if _custom_head(checkpoint) != "crf":
        if checkpoint.task and checkpoint.task.formulation.get("tagger") == "crf":
            raise SqueezeError(
                f"{checkpoint.name} was fine-tuned with a CRF, which should be in {HEAD_FILE}; copy it again in full"
            )
        return {}
    tensors = _read_tensors(checkpoint)
    count = load_config(checkpoint).num_labels or 0
    if {n: tuple(t.shape) for n, t in tensors.items()} != {n: tuple(p.shape) for n, p in Crf(count).named_parameters()}:
        raise SqueezeError(
            f"{checkpoint.path / HEAD_FILE} is not a CRF of {count} labels; the files are not of the same model: "
            "fetch or copy all of them again"
        )
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def count_headed_parameters(checkpoint: Checkpoint, name: str, labels: int) -> int:
    """Count the parameters of a checkpoint's encoder with a custom head, from its config alone."""
    config = load_config(checkpoint)
    for key, value in label_changes([f"LABEL_{i}" for i in range(labels)]).items():
        setattr(config, key, value)
    encoder = skeleton(config, family_of(config).architecture(HEAD_SPECS[name].stock_head))
    with torch.device("meta"):
        head: nn.Module = HEAD_SPECS[name].build(config, labels)
    return count_model(encoder)["total"] + sum(p.numel() for p in head.parameters())
