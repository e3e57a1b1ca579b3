"""The objectives of pretraining: which head a model needs, and the learner that trains it."""

from transformers import PreTrainedModel

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.errors import UsageError
from biosqueeze.models.dropout import set_dropout
from biosqueeze.pretraining.adversarial import AdversarialLearner
from biosqueeze.pretraining.learner import MaskedLanguageLearner, PretrainingLearner
from biosqueeze.pretraining.models import StartModel
from biosqueeze.pretraining.options import PretrainingOptions
from biosqueeze.pretraining.replaced_tokens import ReplacedTokenLearner, load_generator, new_generator

# Families whose own pretraining head also has two logits for a pair of texts.
PAIR_FAMILIES = ("bert", "mobilebert", "albert")


def head_of_objective(objective: str, family: str) -> str:
    """Return the head that an objective trains: "mlm" or "pretraining".

    Raises:
        UsageError: stock transformers has no such head for the family.
    """
    if objective == "rtd":
        if family != "electra":
            raise UsageError(
                f"--objective rtd: a model of type {family} has no head that detects replaced tokens, as ELECTRA has; "
                "give an ELECTRA discriminator, --shape electra-base, or --objective mlm"
            )
        return "pretraining"
    if "+" not in objective:
        return "mlm"
    if family not in PAIR_FAMILIES:
        raise UsageError(
            f"--objective {objective}: a model of type {family} has no head for pairs of texts, which only "
            f"{', '.join(PAIR_FAMILIES)} have in stock transformers; give --objective mlm"
        )
    return "pretraining"


def build_learner(
    start: StartModel, options: PretrainingOptions, generator: PreTrainedModel | None = None
) -> PretrainingLearner:
    """Return the learner of the objective.

    Args:
        start: the model.
        options: of the training.
        generator: of replaced-token detection; None: the one of the options.
    """
    if options.dropout is not None:
        set_dropout(start.model, options.dropout)
    if options.objective == "rtd":
        generator = generator or _generator_of(start, options)
        if options.dropout is not None:
            set_dropout(generator, options.dropout)
        return ReplacedTokenLearner(start.model, generator, options.rtd_weight)
    if options.adversarial:
        return AdversarialLearner(start.model, options.pair)
    return MaskedLanguageLearner(start.model, options.pair)


def _generator_of(start: StartModel, options: PretrainingOptions) -> PreTrainedModel:
    """Load the generator, or build one with other random weights than the model's."""
    if options.generator:
        return load_generator(open_checkpoint(options.generator), start.model)
    return new_generator(start.model, options.generator_share, options.seed + 1)
