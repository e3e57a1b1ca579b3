"""Build a student from a teacher by a preset: copied layers, or a new shape with random weights."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import UsageError
from biosqueeze.models.attention_pattern import attention_period, set_period, warn_irregular
from biosqueeze.models.count import count_parts
from biosqueeze.models.cuts.depth import keep_layers, parse_layers, shallow_config
from biosqueeze.models.families import family_of, first_position, longest_input, takes_token_types
from biosqueeze.models.layers import GLOBAL, LOCAL, set_sizes
from biosqueeze.models.loading.load import LoadedModel, load_config, load_model, load_tokenizer, new_model
from biosqueeze.models.longformer import keep_windows
from biosqueeze.models.named.new_config import new_config
from biosqueeze.models.named.presets import PRESETS, Preset, find_preset
from biosqueeze.models.named.shapes import SHAPES, Shape
from biosqueeze.models.tokenizers.tokenizer import build_tokenizer
from biosqueeze.models.verify import check_finite_parameters

# Modules with embeddings, and the ends of the names of their tables: EuroBERT has only one of them.
_EMBEDDINGS = (".embeddings.", ".embed_tokens.")
_TABLES = ("embeddings.weight", "embed_tokens.weight")


@dataclass(frozen=True)
class Student:
    """A student in eval mode with the teacher's tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    layers: tuple[int, ...] | None
    """The teacher's layers that were copied, from 0; None if the weights are random."""
    summary: str
    """Shape, source and seed, for the user."""
    has_head: bool
    """Whether its head was copied from the teacher; otherwise it is random."""


def build_student(teacher: Checkpoint, preset: str, seed: int, head: str = "as-is") -> Student:
    """Build a student of the teacher's family, or of the preset's, with the teacher's tokenizer and labels.

    Args:
        teacher: with weights.
        preset: a name in `PRESETS`.
        seed: of the random weights.
        head: the student's head; random if the teacher lacks it, or has it in another width.

    Raises:
        UsageError: there is no such preset, or it does not fit the teacher's family.
        SqueezeError: the teacher does not load, or lacks the layers.
    """
    row = find_preset(preset)
    loaded = load_model(teacher, head, seed=seed)
    check_finite_parameters(loaded.model, teacher.name)
    tokenizer = load_tokenizer(teacher)
    if row.shape is None:
        total = loaded.model.config.num_hidden_layers
        layers = kept_layers(loaded.model.config, str(row.kept_layers))
        model, _ = keep_layers(loaded.model, layers)
        listed = ", ".join(map(str, layers))
        summary = f"{row.name}: layers {listed} of {total} of {teacher.name}"
        return Student(model, tokenizer, layers, summary, loaded.has_head)
    shape, model = row.shape, _random_student(loaded, row, tokenizer, seed)
    copied, has_head = _copied(loaded, model)
    limit = shape.positions if row.own_positions or row.own_family else tokenizer.model_max_length
    if row.own_family:
        tokenizer = _tokenizer_for(model.config, teacher)
    tokenizer.model_max_length = min(limit, longest_input(model.config))
    family = f"{row.own_family} of " if row.own_family else ""
    summary = (
        f"{row.name}: {family}{shape.layers} layers x {shape.hidden}, {shape.heads} heads, ffn {shape.ffn}, random "
        f"weights (seed {seed}); from {teacher.name}: tokenizer{copied}{kept_family(loaded.model.config, row)}"
    )
    return Student(model, tokenizer, None, summary, has_head)


def _random_student(
    teacher: LoadedModel, preset: Preset, tokenizer: PreTrainedTokenizerFast, seed: int
) -> PreTrainedModel:
    """Return the student with random weights, with a head for the teacher's outputs."""
    old = teacher.model.config
    config = student_config(old, preset, tokenizer)
    head = str(family_of(old).head_of(type(teacher.model).__name__))
    return new_model(config, student_architecture(config, old, head), seed=seed)


def student_architecture(config: PreTrainedConfig, teacher: PreTrainedConfig, head: str) -> str:
    """Return the class of a student with the teacher's head.

    Args:
        config: the student's.
        teacher: the teacher's config.
        head: of the teacher.
    """
    if head == "pretraining" and config.model_type != teacher.model_type:  # each family has its own
        head = "mlm"
    return family_of(config).architecture(head)


def _tokenizer_for(config: PreTrainedConfig, teacher: Checkpoint) -> PreTrainedTokenizerFast:
    """Return the teacher's tokenizer with the inputs of the student's family."""
    family = family_of(load_config(teacher))
    return build_tokenizer(teacher, family, longest_input(config), token_types=takes_token_types(config))


def student_config(
    config: PreTrainedConfig, preset: Preset, tokenizer: PreTrainedTokenizerFast | None = None
) -> PreTrainedConfig:
    """Return the student's config: the teacher's in its shape, or that of the preset's own family.

    Args:
        config: the teacher's.
        preset: of the student.
        tokenizer: the teacher's, for the ids in the config of another family.

    Raises:
        UsageError: the teacher's family has sizes that the preset does not define.
    """
    shape = preset.shape
    if shape is None:
        return shallow_config(config, kept_layers(config, str(preset.kept_layers)))
    if preset.own_family:
        return _config_of_own_family(config, shape, tokenizer)
    family, changed = family_of(config), copy.deepcopy(config)
    if family.has_bottleneck:
        raise UsageError(
            f"the student {preset.name} defines no bottleneck sizes, which a model of type {family.name} needs; "
            f"choose one that keeps layers of the teacher, or has a family of its own: {', '.join(_for_all_teachers())}"
        )
    if getattr(config, "embedding_size", None) == config.hidden_size:
        changed.embedding_size = shape.hidden  # ELECTRA-base projects no embeddings, and neither does its student
    keep_windows(changed, range(shape.layers))
    set_sizes(changed, layers=shape.layers, hidden=shape.hidden, heads=shape.heads, ffn=shape.ffn)
    if preset.own_positions:
        changed.max_position_embeddings = shape.positions + first_position(changed)
    if getattr(config, "layer_types", None):
        changed.layer_types = _attention_types(config, shape.layers)
        set_period(changed)
    return changed


def _for_all_teachers() -> list[str]:
    return [name for name, preset in PRESETS.items() if preset.own_family or preset.kept_layers]


def _config_of_own_family(
    teacher: PreTrainedConfig, shape: Shape, tokenizer: PreTrainedTokenizerFast | None
) -> PreTrainedConfig:
    """Return the config of a shape with the teacher's vocabulary and labels."""
    config = new_config(shape, teacher.vocab_size, tokenizer)
    for key in ("id2label", "label2id", "problem_type"):
        setattr(config, key, copy.copy(getattr(teacher, key, None)))
    return config


def kept_family(config: PreTrainedConfig, preset: Preset) -> str:
    """Say for messages that a student is not of the family of its shape; "" where it is."""
    family = family_of(config).name
    if preset.shape is None or preset.own_family or preset.shape.family == family:
        return ""
    return f"; only the shape is that of a {preset.shape.family}, the family stays {family}"


def plan_student(config: PreTrainedConfig, preset: Preset) -> PreTrainedConfig:
    """Return `student_config`, with the warnings of `build_student`."""
    if preset.kept_layers:
        warn_irregular(config, kept_layers(config, preset.kept_layers))
    return student_config(config, preset)


def _attention_types(config: PreTrainedConfig, layers: int) -> list[str]:
    """Return which layers of a new stack attend globally: as often as the teacher's, every n-th from the first."""
    known: list[str] = list(config.layer_types)
    several = max(1, sum(kind != LOCAL for kind in known))
    period = attention_period(known) or round(len(known) / several)
    return [LOCAL if layer % period else GLOBAL for layer in range(layers)]


def kept_layers(config: PreTrainedConfig, text: str) -> tuple[int, ...]:
    """Return the layers to copy; of an ALBERT, whose layers share their weights, the same number from the first.

    Raises:
        UsageError: it has several groups of layers.
    """
    layers = parse_layers(text, config.num_hidden_layers)
    if not family_of(config).shares_layers:
        return layers
    if config.num_hidden_groups > 1:
        raise UsageError(
            f"a student with {text} layers of the teacher cannot be made of an ALBERT with several groups of layers: "
            "other layers would run at each depth; choose a student with a shape of its own, see `biosqueeze students`"
        )
    return tuple(range(len(layers)))


def published_config(preset: Preset) -> PreTrainedConfig:
    """Return the config of the published model: with its vocabulary, and of layers of BERT-base if they are kept."""
    if preset.shape is not None:
        return new_config(preset.shape, preset.vocabulary)
    return student_config(new_config(SHAPES["bert-base"], preset.vocabulary), preset)


def encoder_parameters(config: PreTrainedConfig) -> int:
    """Count the parameters of an encoder without a head."""
    return count_parts(config, family_of(config).architecture("base"))["total"]


def _copied(teacher: LoadedModel, student: PreTrainedModel) -> tuple[str, bool]:
    """Copy what fits from a teacher of the same family; describe it, and say whether the head was copied."""
    old, new = family_of(teacher.model.config), family_of(student.config)
    if old is not new:
        return f" and labels alone, because it is a {old.name}", False
    return ("", False) if new.has_bottleneck else _copy_matching(teacher, student)


@torch.no_grad()
def _copy_matching(teacher: LoadedModel, student: PreTrainedModel) -> tuple[str, bool]:
    """Copy embeddings of the same width, and a head if all its shapes are the same; describe what was copied."""
    old, new = teacher.model.state_dict(), student.state_dict()
    embeddings = [name for name in new if any(part in f".{name}" for part in _EMBEDDINGS)]
    copied = ""
    if all(old[name].shape[1:] == new[name].shape[1:] for name in embeddings if name.endswith(_TABLES)):
        for name in embeddings:
            _copy_rows(old[name], new[name])
        copied = ", embeddings"
    head = _head_tensors(student, new) if teacher.has_head else []
    fits = bool(head) and all(name in old and old[name].shape == new[name].shape for name in head)
    if fits:
        for name in head:
            new[name].copy_(old[name])
        copied += ", head"
    width = teacher.model.get_input_embeddings().embedding_dim
    return copied or f" (its embeddings are {width} wide, so the student's are new)", fits


def _copy_rows(source: Tensor, target: Tensor) -> None:
    """Copy the rows that both have: (rows, width) or (width,)."""
    rows = min(source.shape[0], target.shape[0])
    target[:rows].copy_(source[:rows])


def _head_tensors(model: PreTrainedModel, state: Mapping[str, Tensor]) -> list[str]:
    if model.base_model is model:
        return []
    prefix = f"{model.base_model_prefix}."
    return [name for name in state if not name.startswith(prefix) and name not in model.all_tied_weights_keys]
