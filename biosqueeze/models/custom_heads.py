"""Heads that stock transformers does not have: a CRF or a BiLSTM over words, a relation read from its two mentions.

The encoder is saved as a stock model, which AutoModel loads whole; the head lies beside it in head.safetensors.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import TokenClassifierOutput

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.model_facts import HEAD_FILE, HEAD_MARK
from biosqueeze.models.count import count_model, skeleton
from biosqueeze.models.crf import Crf
from biosqueeze.models.families import family_of
from biosqueeze.models.load import head_in, label_changes, load_config, load_model
from biosqueeze.models.siamese import CosineHead, mean_state, one_text
from biosqueeze.progress import note
from biosqueeze.tasks.encoding.entities import FIRST, SECOND
from biosqueeze.tasks.formulation import Formulation

Loss = Callable[[Tensor, Mapping[str, Tensor]], Tensor]
_CLASSIFIER_DROPOUTS = ("classifier_dropout", "classifier_dropout_prob")  # the second is ALBERT's name


class BiLstm(nn.Module):
    """One BiLSTM over the last hidden states and a linear layer, as the PubMedBERT study compares (table 10)."""

    def __init__(self, config: PreTrainedConfig, labels: int) -> None:
        super().__init__()
        width = config.hidden_size // 2
        self.lstm = _Lstm(config.hidden_size, width, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(_dropout_of(config, *_CLASSIFIER_DROPOUTS))
        self.classifier = _linear(config, 2 * width, labels)

    def forward(self, hidden: Tensor, attention_mask: Tensor, _entities: Tensor | None) -> Tensor:
        """Hidden states (batch, length, hidden) to logits (batch, length, labels); padding is not read."""
        lengths = attention_mask.sum(dim=1).cpu()
        # In float32 also under autocast, which not every device's LSTM knows.
        with torch.autocast(hidden.device.type, enabled=False):
            packed = pack_padded_sequence(hidden.float(), lengths, batch_first=True, enforce_sorted=False)
            states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=hidden.shape[1])
        logits: Tensor = self.classifier(self.dropout(states))
        return logits


class _Lstm(nn.LSTM):
    """An LSTM whose weights stay tensors of their own."""

    def flatten_parameters(self) -> None:
        """Nothing: weights in one block of a GPU's memory are taken for one shared tensor where a state is saved."""


class MentionHead(nn.Module):
    """A linear layer over the representations of the two entities, side by side (the PubMedBERT study's table 12).

    An entity is represented by the maximum of its pieces' last hidden states in each dimension ("mentions": section 6.5
    pools by the maximum; zeros where it has no piece in this window), or by the last hidden state of
    its first piece, which is its opening marker ("entity-starts").
    """

    def __init__(self, config: PreTrainedConfig, labels: int, *, starts: bool) -> None:
        super().__init__()
        self.starts = starts
        self.dropout = nn.Dropout(_dropout_of(config, *_CLASSIFIER_DROPOUTS, "seq_classif_dropout"))
        self.classifier = _linear(config, 2 * config.hidden_size, labels)

    def forward(self, hidden: Tensor, _attention_mask: Tensor, entities: Tensor) -> Tensor:
        """Logits (batch, labels).

        Args:
            hidden: (batch, length, hidden).
            entities: (batch, length), the bits of `tasks._entities` on each entity's pieces; padding has none.
        """
        both = [self._represent(hidden, entities.bitwise_and(bit) != 0) for bit in (FIRST, SECOND)]
        logits: Tensor = self.classifier(self.dropout(torch.cat(both, dim=-1)))  # (batch, 2 x hidden) before
        return logits

    def _represent(self, hidden: Tensor, pieces: Tensor) -> Tensor:
        """One entity: hidden (batch, length, hidden) and which pieces are its (batch, length) to (batch, hidden)."""
        if self.starts:
            pieces = pieces & (pieces.cumsum(dim=1) == 1)
        own = pieces.unsqueeze(-1)  # (batch, length, 1)
        highest = hidden.masked_fill(~own, torch.finfo(hidden.dtype).min).amax(dim=1)
        return torch.where(own.any(dim=1), highest, 0.0)


def _linear(config: PreTrainedConfig, inputs: int, outputs: int) -> nn.Linear:
    """A linear layer that begins as transformers' classifiers do."""
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=config.initializer_range)
    nn.init.zeros_(layer.bias)
    return layer


def _dropout_of(config: PreTrainedConfig, *keys: str) -> float:
    """The config's dropout before a classifier: the first of the keys that has a value, else that of hidden states."""
    values = (getattr(config, key, None) for key in (*keys, "hidden_dropout_prob", "dropout"))
    return float(next((value for value in values if value is not None), 0.0))


@dataclass(frozen=True)
class _Row:
    """A head: of which task, over which stock model, how it is made from config and number of labels."""

    task: str
    over: str
    make: Callable[[PreTrainedConfig, int], Any]
    reads: tuple[str, ...] = ()
    """What it takes beside the encoder's inputs."""


_HEADS: Mapping[str, _Row] = {
    "crf": _Row("token-classification", "token-classification", lambda _config, labels: Crf(labels)),
    "bilstm": _Row("token-classification", "base", BiLstm),
    "mentions": _Row(
        "sequence-classification",
        "base",
        lambda config, labels: MentionHead(config, labels, starts=False),
        ("entities",),
    ),
    "entity-starts": _Row(
        "sequence-classification",
        "base",
        lambda config, labels: MentionHead(config, labels, starts=True),
        ("entities",),
    ),
    "cosine": _Row("sequence-classification", "base", lambda _config, _labels: CosineHead(), ("entities",)),
}


class HeadedEncoder(nn.Module):
    """A stock encoder under one of these heads; used like a transformers model."""

    def __init__(self, encoder: PreTrainedModel, name: str, labels: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.name = name
        self.reads = _HEADS[name].reads
        self.head: Any = _HEADS[name].make(encoder.config, labels)

    @property
    def config(self) -> PreTrainedConfig:
        """The encoder's."""
        config: PreTrainedConfig = self.encoder.config
        return config

    @property
    def base_model(self) -> nn.Module:
        """The encoder without any head."""
        base: nn.Module = self.encoder.base_model
        return base

    def forward(self, *, entities: Tensor | None = None, **inputs: Tensor) -> TokenClassifierOutput:
        """Logits: (batch, length, labels) of a tagger, (batch, labels) of a relation.

        Args:
            entities: (batch, length), where the head reads it.
            inputs: the encoder's, (batch, length) each.
        """
        if isinstance(self.head, CosineHead) and entities is not None:
            both = [self._mean_of(inputs["input_ids"], entities.bitwise_and(bit) != 0) for bit in (FIRST, SECOND)]
            return TokenClassifierOutput(logits=self.head(*both))
        hidden = self.encoder(**inputs)[0]  # (batch, length, hidden), or a CRF's emissions
        return TokenClassifierOutput(logits=self.head(hidden, inputs["attention_mask"], entities))

    def _mean_of(self, input_ids: Tensor, own: Tensor) -> Tensor:
        """The mean state of one of the two texts, which the encoder reads by itself: (batch, hidden)."""
        ids, mask = one_text(input_ids, own, self.config.pad_token_id or 0)
        return mean_state(self.encoder(input_ids=ids, attention_mask=mask)[0], mask)

    @property
    def supports_gradient_checkpointing(self) -> bool:
        """Whether the encoder's activations can be computed anew in the backward pass."""
        return bool(self.encoder.supports_gradient_checkpointing)

    def gradient_checkpointing_enable(self, arguments: dict[str, Any]) -> None:
        """Have the encoder compute its activations anew in the backward pass."""
        # transformers 5.2x renamed it, and warns of the older name.
        current: Any = getattr(self.encoder, "activation_checkpointing_enable", None)
        (current or self.encoder.gradient_checkpointing_enable)(arguments)

    def get_input_embeddings(self) -> nn.Module:
        """The encoder's word embedding."""
        embedding: nn.Module = self.encoder.get_input_embeddings()
        return embedding

    def _init_weights(self, module: nn.Module) -> None:
        """Draw a part of the encoder anew, as transformers does."""
        initialise: Any = self.encoder._init_weights
        initialise(module)

    def save_pretrained(self, directory: Path) -> None:
        """Write the encoder as a stock model, and the head beside it."""
        self.encoder.save_pretrained(directory)
        tensors = self.head.to_save() if isinstance(self.head, Crf) else self.head.state_dict()
        # One entry and no more: several are written in an order of their own each time, and the file's hash changes.
        save_file(tensors, directory / HEAD_FILE, {HEAD_MARK: self.name})


def wanted_head(form: Formulation) -> str | None:
    """Which of these heads a formulation asks for; None for a stock one.

    Raises:
        UsageError: a CRF was asked for over sub-words.
    """
    if form.tagger == "crf" and form.label_all_pieces:
        raise UsageError("--tagger crf is a chain of words, so --label-all-pieces cannot go with it; leave one out")
    if form.tagger != "linear":
        return form.tagger
    return form.representation if form.representation != "cls" else None


def task_head_in(checkpoint: Checkpoint) -> str:
    """The head that a checkpoint really holds, as `load.head_in` calls it, its head.safetensors included."""
    name = _known(checkpoint)
    if name is None or _HEADS[name].over != "base":
        return head_in(checkpoint, load_config(checkpoint))
    return _HEADS[name].task


def _known(checkpoint: Checkpoint) -> str | None:
    name = checkpoint.custom_head
    if name is not None and name not in _HEADS:
        raise SqueezeError(
            f"{checkpoint.path / HEAD_FILE} holds a head called {name!r}, which this version does not know; "
            "install the version that made it (see biosqueeze.json)"
        )
    return name


def new_headed(checkpoint: Checkpoint, name: str, labels: Sequence[str], seed: int) -> HeadedEncoder:
    """A checkpoint's encoder under a head, in eval mode.

    Args:
        checkpoint: where the encoder is; its head is kept if it is of the same name for the same labels.
        name: as `wanted_head` gives it.
        labels: names of the classes.
        seed: of what the checkpoint does not hold.
    """
    encoder = load_model(checkpoint, _HEADS[name].over, labels=labels, seed=seed).model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = HeadedEncoder(encoder, name, len(labels))
    _rest_pooler(encoder)
    if _known(checkpoint) == name and list(checkpoint.labels) == list(labels):
        _fill(model, checkpoint)
    else:
        say_left_behind(checkpoint)
    return model.eval()


def stretch_to(model: "HeadedEncoder", scores: Sequence[float]) -> None:
    """Tell a head that compares by cosine the range of the scores that it is trained on; others have no use for it."""
    if isinstance(model.head, CosineHead) and scores:
        model.head.stretch(min(scores), max(scores))


def say_left_behind(checkpoint: Checkpoint) -> None:
    """Say that a head in head.safetensors is not taken over, if there is one."""
    name = _known(checkpoint)
    if name is not None:
        note(f"{checkpoint.name}: its {name} head is left behind ({HEAD_FILE})")


def _rest_pooler(encoder: PreTrainedModel) -> None:
    """No head here reads the pooler, so it gets no gradient, which training over several processes would wait for."""
    for path, parameter in encoder.named_parameters():
        if path.startswith("pooler."):
            parameter.requires_grad = False


def load_headed(checkpoint: Checkpoint) -> HeadedEncoder:
    """A checkpoint with the head in its head.safetensors, in eval mode, float32, on the CPU.

    Raises:
        SqueezeError: it has none, or one that is damaged or does not fit the encoder.
    """
    name = _known(checkpoint)
    if name is None:
        raise SqueezeError(f"{checkpoint.name} has no {HEAD_FILE}; fetch or copy it again in full")
    encoder = load_model(checkpoint, _HEADS[name].over).model
    model = HeadedEncoder(encoder, name, encoder.config.num_labels or 0)
    _rest_pooler(encoder)
    _fill(model, checkpoint)
    return model.eval()


def _fill(model: HeadedEncoder, checkpoint: Checkpoint) -> None:
    tensors = _tensors(checkpoint)
    expected = model.head.state_dict()
    wrong = sorted(n for n in {*tensors, *expected} if _shape(tensors, n) != _shape(expected, n))
    if wrong:
        raise SqueezeError(
            f"{checkpoint.path / HEAD_FILE} does not fit the encoder and its {model.config.num_labels} labels "
            f"({', '.join(wrong[:3])}); the files are not of the same model: fetch or copy all of them again"
        )
    if isinstance(model.head, Crf):
        model.head.fill(tensors)
    else:
        model.head.load_state_dict(tensors)


def _shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(tensors[name].shape) if name in tensors else None


def _tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    path = checkpoint.path / HEAD_FILE
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise SqueezeError(f"{path} is damaged or cut short; fetch or copy it again") from error


def loss_of(model: "PreTrainedModel | HeadedEncoder") -> Loss | None:
    """The loss that a head brings with it; None for that of the output type."""
    head = model.head if isinstance(model, HeadedEncoder) else None
    return head.loss if isinstance(head, Crf) else None


def decoding_parameters(source: "Checkpoint | PreTrainedModel | HeadedEncoder") -> Mapping[str, NDArray[Any]]:
    """What decoding needs beside the logits: a CRF's transitions (labels, labels), start and end (labels,).

    Raises:
        SqueezeError: a checkpoint that was trained with a CRF has lost it, or it is damaged or of other labels.
    """
    if isinstance(source, Checkpoint):
        return _parameters_in(source)
    head = source.head if isinstance(source, HeadedEncoder) else None
    return {n: t.cpu().numpy() for n, t in head.to_save().items()} if isinstance(head, Crf) else {}


def _parameters_in(checkpoint: Checkpoint) -> Mapping[str, NDArray[Any]]:
    if _known(checkpoint) != "crf":
        if checkpoint.task and checkpoint.task.formulation.get("tagger") == "crf":
            raise SqueezeError(
                f"{checkpoint.name} was fine-tuned with a CRF, which should be in {HEAD_FILE}; copy it again in full"
            )
        return {}
    tensors = _tensors(checkpoint)
    count = load_config(checkpoint).num_labels or 0
    if {n: tuple(t.shape) for n, t in tensors.items()} != {n: tuple(p.shape) for n, p in Crf(count).named_parameters()}:
        raise SqueezeError(
            f"{checkpoint.path / HEAD_FILE} is no CRF of {count} labels; the files are not of the same model: "
            "fetch or copy all of them again"
        )
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def count_headed(checkpoint: Checkpoint, name: str, labels: int) -> int:
    """Number of parameters of a checkpoint's encoder under a head; weights are not read."""
    config = load_config(checkpoint)
    for key, value in label_changes([f"LABEL_{i}" for i in range(labels)]).items():
        setattr(config, key, value)
    encoder = skeleton(config, family_of(config).architecture(_HEADS[name].over))
    with torch.device("meta"):
        head: nn.Module = _HEADS[name].make(config, labels)
    return count_model(encoder)["total"] + sum(p.numel() for p in head.parameters())
