"""The objectives of pretraining: which head a model needs, and the learner that trains it."""

from biosqueeze.errors import UsageError
from biosqueeze.models.dropout import set_dropout
from biosqueeze.pretraining.learner import MaskedLanguageLearner, PretrainingLearner
from biosqueeze.pretraining.models import StartModel
from biosqueeze.pretraining.options import PretrainingOptions

# Families whose own pretraining head also has two logits for a pair of texts.
PAIR_FAMILIES = ("bert", "mobilebert", "albert")


def head_of_objective(objective: str, family: str) -> str:
    """Return the head that an objective trains: "mlm" or "pretraining".

    Raises:
        UsageError: stock transformers has no such head for the family.
    """
    if "+" not in objective:
        return "mlm"
    if family not in PAIR_FAMILIES:
        raise UsageError(
            f"--objective {objective}: a model of type {family} has no head for pairs of texts, which only "
            f"{', '.join(PAIR_FAMILIES)} have in stock transformers; give --objective mlm"
        )
    return "pretraining"


def build_learner(start: StartModel, options: PretrainingOptions) -> PretrainingLearner:
    """Return the learner of the objective."""
    if options.dropout is not None:
        set_dropout(start.model, options.dropout)
    return MaskedLanguageLearner(start.model, options.pair)
