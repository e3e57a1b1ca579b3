"""Adversarial pretraining, as PubMedBERT's (Gu et al. 2020, section 6.4 and table 9): ALUM (Liu et al. 2020).

To the losses of pretraining it adds the distance of the predictions with and without small noise on the embeddings
that is chosen to change them (equation 3 of ALUM, with the symmetric divergence of the authors' code). The noise is
found as SMART's in fine-tuning, by one step of gradient ascent. Gu et al. give no constants; these are those of
ALUM's published code (alum/ of namisan/mt-dnn), which projects embedding and step together where the paper projects
the noise alone, as is done here.
"""

from collections.abc import Mapping

from torch import Tensor
from transformers import PreTrainedModel

from biosqueeze.data.feature_keys import INPUT_IDS, LABELS
from biosqueeze.data.output_types import SINGLE
from biosqueeze.finetuning.smart import PerturbedForward, smoothness, word_embedding
from biosqueeze.models.fast_training.fast_layers import EncodedRows
from biosqueeze.models.full_precision import full
from biosqueeze.models.heads import mlm_logits
from biosqueeze.models.output_tensors import tensors_of
from biosqueeze.pretraining.learner import MaskedLanguageLearner
from biosqueeze.training.resuming.rng_state import RngState

WEIGHT = 10.0
"""Alpha of equation 3 in pretraining (`adv_alpha` in alum_train.sh)."""
RADIUS = 1e-3
"""The size of the step (`adv_step_size`). The noise before it has a standard deviation of 1e-5 (`noise_var`), a
hundredth of it; the largest element of a token's noise is the radius (`project_norm_type` inf)."""


class AdversarialLearner(MaskedLanguageLearner):
    """Masked language modelling with the term `adversarial`, a mean over the masked tokens."""

    def __init__(self, model: PreTrainedModel, pair: str | None = None) -> None:
        """Take the model as `MaskedLanguageLearner` does."""
        super().__init__(model, pair)
        self.weights = {**self.weights, "adversarial": WEIGHT}

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, int]:
        """Return the number of masked tokens, for both terms on them, and of pairs."""
        counts = super().counts(batch)
        return {**counts, "adversarial": counts["mlm"]}

    def forward(self, **batch: Tensor) -> dict[str, Tensor]:
        """Compute the losses without noise, and the distance that the noise makes. Scalars."""
        rng = RngState(batch[INPUT_IDS].device)
        encoded = self.encode(batch)
        terms = self.losses(encoded, batch)
        if not (batch[LABELS] >= 0).any():
            return {**terms, "adversarial": encoded.rows.sum() * 0}
        perturbed = PerturbedForward(lambda: self._logits(self.encode(batch)), word_embedding(self.model), rng)
        clean = self._logits(encoded)
        return {**terms, "adversarial": smoothness(perturbed, clean, batch, tensors_of(SINGLE), RADIUS)}

    def _logits(self, encoded: EncodedRows) -> Tensor:
        """Return the logits of the masked tokens, (rows, vocabulary)."""
        logits: Tensor = full(mlm_logits(self.model, encoded.rows))
        return logits


def adversarial_passes() -> float:
    """Return the operations of a step relative to one without noise.

    Forward and backward (3 forward passes), the same under noise (3), and for the step of ascent a forward pass and
    the gradients of the inputs alone (2).
    """
    return 8 / 3
