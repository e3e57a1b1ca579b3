"""Settings of a pretraining, grouped by the step that reads them. Torch-free."""

from dataclasses import dataclass

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.models.named.shapes import Shape
from biosqueeze.pretraining.options import PretrainingOptions

# Options that may differ on --resume: their content is compared instead.
UNCOMPARED_ON_RESUME = ("checkpoint", "tokenizer", "corpus", "probe")


@dataclass(frozen=True)
class NewModel:
    """A model from random weights."""

    shape: Shape
    tokenizer: Checkpoint  # a directory with a tokenizer, with or without a model

    @property
    def family(self) -> str:
        """The family of the shape."""
        return self.shape.family

    @property
    def name(self) -> str:
        """The name of the shape."""
        return self.shape.name


@dataclass(frozen=True)
class PretrainingRequest:
    """The settings of all steps, for `pipeline.pretrain`."""

    start: Checkpoint | NewModel
    options: PretrainingOptions
