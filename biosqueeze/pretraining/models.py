"""The model of a pretraining with its tokenizer: built from a shape, or loaded from a checkpoint."""

from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.models.count import count_model, count_parts
from biosqueeze.models.families import FAMILIES, family_of, longest_input
from biosqueeze.models.loading.load import load_model, load_tokenizer, new_model
from biosqueeze.models.named.new_config import new_config
from biosqueeze.models.named.shapes import Shape
from biosqueeze.models.tokenizers.new_vocabulary import check_padding, vocabulary_size
from biosqueeze.models.tokenizers.tokenizer import build_tokenizer, tokenizer_family
from biosqueeze.models.tokenizers.tokenizer_settings import check_tokenizer
from biosqueeze.models.verify import check_finite_parameters
from biosqueeze.pretraining.request import NewModel
from biosqueeze.progress import note

# Special tokens that pretraining needs: around each text, between two, for padding, and in place of what is masked.
# EuroBERT's tokenizer has others around a text.
_NEEDED = {"cls_token": "bos_token", "sep_token": "eos_token", "pad_token": "pad_token", "mask_token": "mask_token"}


@dataclass(frozen=True)
class StartModel:
    """A model before its training, in eval mode on the CPU."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast

    @property
    def positions(self) -> int:
        """The longest input, special tokens included."""
        return longest_input(self.model.config)


def load_start(start: Checkpoint | NewModel, head: str, seed: int) -> StartModel:
    """Build or load the model with a head; a head that a checkpoint lacks is random, from the seed.

    Args:
        start: the checkpoint, or shape and tokenizer.
        head: "mlm" or "pretraining".
        seed: of random weights.

    Raises:
        SqueezeError: the checkpoint or the tokenizer cannot be used.
    """
    if isinstance(start, Checkpoint):
        return _load(start, head, seed)
    tokenizer = load_new_tokenizer(start)
    config = shape_config(start.shape, tokenizer)
    model = new_model(config, family_of(config).architecture(head), seed=seed)
    total = count_model(model)["total"]
    note(
        f"{start.name}: {start.shape}, {config.vocab_size:,} tokens, {total:,} parameters, random weights (seed {seed})"
    )
    return StartModel(model, tokenizer)


def _load(checkpoint: Checkpoint, head: str, seed: int) -> StartModel:
    loaded = load_model(checkpoint, head, seed=seed)
    check_finite_parameters(loaded.model, checkpoint.name)
    tokenizer = load_tokenizer(checkpoint)
    check_special_tokens(tokenizer, checkpoint.name)
    if loaded.missing:
        names = ", ".join(loaded.missing[:3]) + (", ..." if len(loaded.missing) > 3 else "")
        note(f"{checkpoint.name} lacks {len(loaded.missing)} tensors of its head ({names}): random, from seed {seed}")
    return StartModel(loaded.model, tokenizer)


def load_new_tokenizer(start: NewModel) -> PreTrainedTokenizerFast:
    """Load the tokenizer of a new model.

    Raises:
        SqueezeError: there is none, it is damaged, or it lacks a special token.
    """
    family = FAMILIES[start.family]
    read_as = tokenizer_family(start.tokenizer, family)
    tokenizer = build_tokenizer(start.tokenizer, read_as, start.shape.positions, token_types=family.takes_token_types)
    tokenizer.model_max_length = start.shape.positions
    check_special_tokens(tokenizer, start.tokenizer.name)
    check_tokenizer(tokenizer, vocabulary_size(tokenizer))
    return tokenizer


def check_special_tokens(tokenizer: PreTrainedTokenizerFast, name: str) -> None:
    """Check that a tokenizer has the special tokens that pretraining needs.

    Raises:
        SqueezeError: it lacks one.
    """
    values: dict[str, Any] = {
        role: getattr(tokenizer, role) or getattr(tokenizer, other) for role, other in _NEEDED.items()
    }
    lacking = [role for role, token in values.items() if token is None or token not in tokenizer.get_vocab()]
    if lacking:
        raise SqueezeError(
            f"the tokenizer of {name} has no {' and no '.join(role.replace('_', ' ') for role in lacking)}, which "
            "pretraining needs; make one with `biosqueeze vocab`, or name its tokens in tokenizer_config.json"
        )


def shape_config(shape: Shape, tokenizer: PreTrainedTokenizerFast) -> PreTrainedConfig:
    """Return the config of a new model: the shape's sizes, the tokenizer's ids, the family's defaults for the rest.

    Raises:
        SqueezeError: the tokenizer's padding token has another id than the family's positions need.
    """
    check_padding(tokenizer, {"model_type": shape.family}, "take another --shape")
    return new_config(shape, vocabulary_size(tokenizer), tokenizer)


def new_parameters(start: NewModel, head: str) -> int:
    """Count the parameters of a new model, without building it."""
    config = shape_config(start.shape, load_new_tokenizer(start))
    return count_parts(config, family_of(config).architecture(head))["total"]
