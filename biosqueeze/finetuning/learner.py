"""The learner of fine-tuning: the loss on labels, and SMART's smoothness term."""

from collections.abc import Mapping

from torch import Tensor
from transformers import PreTrainedModel

from biosqueeze.backends.torch import input_names
from biosqueeze.data.output_types import TOKENS, OutputType
from biosqueeze.finetuning.layer_decay import layered_groups
from biosqueeze.finetuning.smart import PerturbedForward, smoothness, word_embedding
from biosqueeze.models.custom_heads.encoder import HeadedEncoder, Loss
from biosqueeze.models.fast_training.first_token import reads_first_token
from biosqueeze.models.heads import main_output
from biosqueeze.models.output_tensors import tensors_of
from biosqueeze.training.learner import Learner
from biosqueeze.training.optimiser.parameter_groups import Group
from biosqueeze.training.options import TrainingOptions
from biosqueeze.training.resuming.rng_state import RngState


class FineTuner(Learner):
    """A model that is trained on the labels of a task; see `data.output_types` for the features."""

    def __init__(
        self,
        model: PreTrainedModel | HeadedEncoder,
        output_type: OutputType = TOKENS,
        loss: Loss | None = None,
        *,
        smart: float = 0.0,
        layer_decay: float = 1.0,
    ) -> None:
        super().__init__()
        self.model = model
        self.tensors = tensors_of(output_type)
        self.loss = loss or self.tensors.loss
        self.inputs = input_names(model)
        self.weights: Mapping[str, float] = {"labels": 1.0} | ({"smart": smart} if smart else {})
        self.layer_decay = layer_decay

    def forward(self, **batch: Tensor) -> dict[str, Tensor]:
        """Compute `labels`, the mean loss over the scored units, and with --smart `smart`, the smoothness term."""
        if "smart" not in self.weights:
            return {"labels": self.loss(self._logits(batch), batch)}
        rng = RngState(batch["input_ids"].device)
        logits = self._logits(batch)
        perturbed = PerturbedForward(lambda: self._logits(batch), word_embedding(self.model), rng)
        return {"labels": self.loss(logits, batch), "smart": smoothness(perturbed, logits, batch, self.tensors)}

    @property
    def reads_first_token(self) -> bool:
        """Whether the model is a sequence classifier with BERT's layers: nothing else is read."""
        return reads_first_token(self.model)

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, int]:
        """Count the tokens with a label, or the sequences; the same for every term."""
        return dict.fromkeys(self.weights, self.tensors.scored(batch))

    def parameter_groups(self, options: TrainingOptions) -> list[Group]:
        """Return the optimiser's parameter groups, with learning rates that fall with depth under --layer-decay."""
        if self.layer_decay == 1:
            return super().parameter_groups(options)
        return layered_groups(self, self.model, options.weight_decay, options.lr, self.layer_decay)

    def _logits(self, batch: Mapping[str, Tensor]) -> Tensor:
        return main_output(self.model(**{name: batch[name] for name in self.inputs if name in batch})).float()
