"""Load encoders as published on the Hub: with old layouts, missing config keys or missing heads, which are reported."""

import copy
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.initialization import no_init_weights
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError, in_one_line
from biosqueeze.models.families import family_of, longest_input, takes_token_types
from biosqueeze.models.loading.detection import config_with_family, detect_head
from biosqueeze.models.loading.weights import read_weights
from biosqueeze.models.longformer import mark_question
from biosqueeze.models.tokenizers.tokenizer import build_tokenizer
from biosqueeze.models.tokenizers.tokenizer_settings import check_tokenizer
from biosqueeze.progress import warn, warn_once

# Heads for the order of sentences; DeBERTa-v3's discriminator, which transformers lacks, and what is left beside it.
_OTHER_HEADS = ("cls.seq_relationship.", "sop_classifier.", "mask_predictions.", "lm_predictions.")
# Of a classifier: one row for each label.
OUTPUT_LAYER = {f"classifier.{name}" for name in ("weight", "bias", "out_proj.weight", "out_proj.bias")}
# No part of a model. The first two name its outputs, which are named here anyway; with attention maps among the outputs
# transformers does not save a model whose attention is SDPA; what the last one quantizes on loading is float here.
_NO_PART = {"return_dict", "use_return_dict", "output_attentions", "quantization_config"}

_logging: Any = transformers.utils.logging
_logging.disable_progress_bar()


@dataclass(frozen=True)
class LoadedModel:
    """A model in eval mode, float32, on the CPU."""

    model: PreTrainedModel
    missing: tuple[str, ...]
    """Tensors that the checkpoint lacks; they are random, from the seed."""
    has_head: bool
    """Whether everything outside the trunk came from the checkpoint; otherwise the head is random."""


def load_config(checkpoint: Checkpoint) -> PreTrainedConfig:
    """Return the transformers config; a missing `model_type` is inferred from the names of the weights.

    Raises:
        SqueezeError: the family is unknown or not supported, or transformers rejects a value.
    """
    raw = {key: value for key, value in config_with_family(checkpoint).items() if key not in _NO_PART}
    try:
        config: PreTrainedConfig = CONFIG_MAPPING[raw["model_type"]].from_dict(raw)
    except Exception as error:  # transformers' checks, or whatever its code meets in a wrong value
        cause = in_one_line(error)
        raise SqueezeError(f"{checkpoint.path / 'config.json'} is not valid ({cause}); correct that value") from error
    return config


def load_tokenizer(checkpoint: Checkpoint) -> PreTrainedTokenizerFast:
    """Load the checkpoint's tokenizer, cased if its vocabulary is; `model_max_length` is limited by the positions.

    Raises:
        SqueezeError: there is none, it is damaged, or it has more pieces than the model has embeddings.
    """
    config = load_config(checkpoint)
    tokenizer = build_tokenizer(
        checkpoint, family_of(config), longest_input(config), token_types=takes_token_types(config)
    )
    check_tokenizer(tokenizer, config.vocab_size)
    return tokenizer


def load_model(
    checkpoint: Checkpoint,
    head: str = "as-is",
    *,
    labels: Sequence[str] | None = None,
    seed: int = 0,
    attention: str = "sdpa",
    **config_changes: Any,
) -> LoadedModel:
    """Load a checkpoint's weights into a stock transformers model.

    Args:
        checkpoint: with weights.
        head: "as-is" for the checkpoint's own; or base, mlm, token-classification, ...: random if the checkpoint
            lacks it.
        labels: names of the classes; a classifier for other labels is dropped.
        seed: of the tensors that the checkpoint lacks.
        attention: transformers' attention implementation.
        config_changes: other values to set in the config before the model is built.

    Raises:
        SqueezeError: files are damaged, tensors of the trunk are missing, or shapes differ from config.json.
    """
    config = load_config(checkpoint)
    family = family_of(config)
    tensors = read_weights(checkpoint)
    kind = detect_head(checkpoint, config, tuple(tensors)) if head == "as-is" else head
    if labels is not None:
        tensors = _without_other_classifier(config, tensors, labels)
        config_changes |= label_changes(labels)
    for key, value in config_changes.items():
        setattr(config, key, value)
    architecture = family.architecture(kind)
    # Before any memory is allocated for sizes in config.json, they must be those of the weights.
    empty = skeleton(config, architecture)
    tensors = _fit_prefix(empty, tensors)
    if _has_own_decoder(empty, tensors):
        warn_once(
            checkpoint.path,
            f"{checkpoint.name}: its decoder differs from its embedding, so the two are not tied, although config.json "
            "says so (tie_word_embeddings)",
        )
        config.tie_word_embeddings = False
        empty = skeleton(config, architecture)
    named, missing = _match(empty, checkpoint, tensors, warn_unused=head == "as-is")
    model = new_model(config, architecture, seed=seed if missing else None, attention=attention)
    model.load_state_dict(named, strict=False)
    return LoadedModel(model, missing, has_head=not any(_is_head(name, model) for name in missing))


def new_model(
    config: PreTrainedConfig, architecture: str, *, seed: int | None, attention: str = "sdpa"
) -> PreTrainedModel:
    """Build a float32 model of a stock class, in eval mode.

    Args:
        config: the model's.
        architecture: a class of transformers.
        seed: of the random weights. None leaves them undefined, for a caller that sets every one of them: drawing those
            of a large encoder takes seconds.
        attention: transformers' attention implementation; families without SDPA always have the eager one.

    Raises:
        SqueezeError: transformers rejects the config's values.
    """
    config.architectures = [architecture]
    if architecture.endswith("ForQuestionAnswering"):
        config.num_labels = 2  # start and end; the config may have the number of classes of a former head
    if not hasattr(transformers, architecture):
        raise SqueezeError(
            f"transformers has no {architecture}, so a {config.model_type} cannot have that head; start from a model "
            "of another family, or choose another task"
        )
    build: Any = getattr(transformers, architecture)._from_config
    supported = attention if family_of(config).supports_sdpa else "eager"
    try:
        with torch.random.fork_rng(devices=[]), no_init_weights() if seed is None else nullcontext():
            torch.default_generator.manual_seed(seed or 0)  # of the CPU alone: fork_rng restores no other
            model: Any = build(config, attn_implementation=supported, dtype=torch.float32)
    except Exception as error:  # whatever the code of transformers and torch meets in a wrong value
        cause = in_one_line(error)
        raise SqueezeError(f"no {architecture} can be built from this config ({cause}); correct config.json") from error
    if seed is None:
        model.tie_weights()  # what is left undrawn is left untied too
    mark_question(model)
    built: PreTrainedModel = model.eval()
    return built


def skeleton(config: PreTrainedConfig, architecture: str) -> PreTrainedModel:
    """Return a model without storage (on torch's meta device), for the names and shapes of its tensors."""
    with torch.device("meta"):
        return new_model(copy.deepcopy(config), architecture, seed=None)


def without_head(model: PreTrainedModel, seed: int) -> PreTrainedModel:
    """Return a stock encoder with the weights of a model's trunk; a missing pooler is random, from the seed."""
    config = copy.deepcopy(model.config)
    encoder = new_model(config, family_of(config).architecture("base"), seed=seed)
    encoder.load_state_dict(model.base_model.state_dict(), strict=False)
    return encoder


def label_changes(labels: Sequence[str]) -> dict[str, dict[Any, Any]]:
    """Return the config keys and values for the names of the classes."""
    return {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}


def _without_other_classifier(
    config: PreTrainedConfig, tensors: dict[str, Tensor], labels: Sequence[str]
) -> dict[str, Tensor]:
    """Return the tensors without a classifier for other labels; one for the same in another order is put in order."""
    names = [str(label) for _, label in sorted((config.id2label or {}).items())]
    if len(names) == len(labels) == 1:
        return tensors
    if sorted(names) == sorted(labels) and len(set(names)) == len(names):
        places = {name: place for place, name in enumerate(names)}
        order = [places[label] for label in labels]
        rows = (len(order),)
        return {name: t[order] if name in OUTPUT_LAYER and t.shape[:1] == rows else t for name, t in tensors.items()}
    return {name: t for name, t in tensors.items() if not name.startswith(("classifier.", "pre_classifier."))}


def _is_head(name: str, model: PreTrainedModel) -> bool:
    return model.base_model is not model and not name.startswith(f"{model.base_model_prefix}.")


def _match(
    model: PreTrainedModel,
    checkpoint: Checkpoint,
    tensors: Mapping[str, Tensor],
    *,
    warn_unused: bool,
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return the tensors that the model has, and the names of those that the checkpoint lacks.

    Raises:
        SqueezeError: shapes or types differ, or tensors of the trunk are missing.
    """
    named = _one_of_tied(model, tensors)
    expected = model.state_dict()
    _check_types(checkpoint, named, expected)
    _check_shapes(checkpoint, named, expected)
    unused = sorted(name for name in named.keys() - expected.keys() if not _is_expendable(name))
    if unused and warn_unused:
        warn(
            f"{checkpoint.name}: {len(unused)} tensors are not part of a {type(model).__name__}: {_first_names(unused)}"
        )
    tied = model.all_tied_weights_keys
    missing = tuple(sorted(name for name in expected.keys() - named.keys() if name not in tied))
    _check_trunk(checkpoint, model, missing)
    return {name: named[name] for name in expected if name in named}, missing


def _fit_prefix(model: PreTrainedModel, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the tensors as in the model: the trunk's with or without a prefix such as `bert.`."""
    prefix = f"{model.base_model_prefix}."
    target = "" if model.base_model is model else prefix
    if any(name.startswith(prefix) for name in tensors):
        return {target + n.removeprefix(prefix) if n.startswith(prefix) else n: t for n, t in tensors.items()}
    trunk = {name.partition(".")[0] for name, _ in model.base_model.named_parameters()} | {"pooler"}
    return {target + n if n.partition(".")[0] in trunk else n: t for n, t in tensors.items()}


def _has_own_decoder(model: PreTrainedModel, tensors: Mapping[str, Tensor]) -> bool:
    """Return whether a matrix that the model ties to another one differs from it in the checkpoint."""
    pairs = [(tensors.get(tied), tensors.get(original)) for tied, original in model.all_tied_weights_keys.items()]
    both = [(a, b) for a, b in pairs if a is not None and b is not None and a.dim() == 2]
    return any(a.shape == b.shape and not torch.equal(a, b.to(a.dtype)) for a, b in both)


def _one_of_tied(model: PreTrainedModel, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Drop copies of tied tensors; a copy replaces a missing original.

    Biases of a model whose matrices are not tied are still one tensor in files of transformers 4: each has its values.
    """
    named, ties = dict(tensors), model.all_tied_weights_keys
    for tied, original in ties.items():
        if tied in named:
            named.setdefault(original, named[tied])
            del named[tied]
    possible: Any = model._tied_weights_keys or {}
    for tied, original in possible.items():
        if tied.endswith(".bias") and tied not in ties and original in named:
            named.setdefault(tied, named[original])
    return named


def _check_shapes(checkpoint: Checkpoint, named: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    for name in sorted(named.keys() & expected.keys()):
        shape, config_shape = tuple(named[name].shape), tuple(expected[name].shape)
        if shape != config_shape:
            raise SqueezeError(
                f"{checkpoint.name}: {name} is {_format_shape(shape)} in the weights and {_format_shape(config_shape)} "
                f"by config.json; {_mismatch_reason(checkpoint, name, shape, config_shape)}"
            )


def _mismatch_reason(checkpoint: Checkpoint, name: str, shape: tuple[int, ...], config_shape: tuple[int, ...]) -> str:
    if checkpoint.config.get("pruned_heads"):
        return (
            "heads of single layers were removed (pruned_heads in config.json), which transformers 5 no longer "
            "supports: pass the checkpoint from before that"
        )
    if name in OUTPUT_LAYER and shape and shape[1:] == config_shape[1:]:
        return f"name all its labels, 0 to {shape[0] - 1}, in id2label of config.json"
    return "the two are not of the same model: fetch both again"


def _check_types(checkpoint: Checkpoint, named: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    floats = (name for name in sorted(named.keys() & expected.keys()) if expected[name].is_floating_point())
    quantized = next((name for name in floats if not _is_unscaled(named[name])), None)
    if quantized is not None:
        what = "8-bit floats" if named[quantized].is_floating_point() else "integers"
        raise SqueezeError(
            f"{checkpoint.name}: {quantized} holds {what}, so another tool has quantized the weights; take the "
            "checkpoint that they were made from"
        )


def _is_unscaled(tensor: Tensor) -> bool:
    """Return whether a tensor has the values themselves; integers and floats of 8 bits have scales beside them."""
    return tensor.is_floating_point() and tensor.itemsize > 1


def _format_shape(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{size:,}" for size in shape) or "a single number"


def _check_trunk(checkpoint: Checkpoint, model: PreTrainedModel, missing: Sequence[str]) -> None:
    lacking = [name for name in missing if not _is_head(name, model) and ".pooler." not in f".{name}"]
    if lacking:
        raise SqueezeError(
            f"{checkpoint.name}: the weights lack {len(lacking)} tensors that config.json needs "
            f"({_first_names(lacking)}); they are of another model, or incomplete: fetch both again"
        )


def _is_expendable(name: str) -> bool:
    """Return whether a tensor may be dropped without a warning: the pooler, `_OTHER_HEADS`."""
    return ".pooler." in f".{name}" or name.startswith(_OTHER_HEADS)


def _first_names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
