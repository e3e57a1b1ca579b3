"""How the layers of the trained encoders are computed during a training."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from biosqueeze.models.fast_training.attention import training_attention
from biosqueeze.models.fast_training.cheap_dropout import cheap_dropout
from biosqueeze.models.fast_training.fast_layers import fast_layers
from biosqueeze.models.fast_training.first_token import first_token_alone
from biosqueeze.training.learner import Learner
from biosqueeze.training.options import TrainingOptions


@contextmanager
def training_layers(learner: Learner, options: TrainingOptions, processes: int) -> Iterator[None]:
    """Use the attention and dropout for training inside the block, and fast layers if neither wrapped nor compiled.

    What no loss reads in the last layer is not computed.
    """
    plain = processes == 1 and not options.compile and not options.gradient_checkpointing
    with ExitStack() as contexts:
        contexts.enter_context(cheap_dropout(learner))
        for encoder in learner.encoders():
            contexts.enter_context(training_attention(encoder.base_model))
            if learner.fast_layers and plain:
                contexts.enter_context(fast_layers(encoder.base_model))
        if learner.reads_first_token:
            contexts.enter_context(first_token_alone(learner.model))
        yield
