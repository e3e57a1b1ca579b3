"""PyTorch: the reference, in float32 or with bfloat16 matrix products."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from biosqueeze.backends import Batch, with_token_types
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.models.custom_heads.encoder import HeadedEncoder
from biosqueeze.models.custom_heads.load import load_headed_encoder
from biosqueeze.models.families import family_of
from biosqueeze.models.heads import main_output
from biosqueeze.models.load import load_model

PRECISIONS = ("fp32", "bf16")


class TorchPredictor:
    """A model as predictor; it may be in the middle of its training, and finds itself as it was left."""

    def __init__(self, model: PreTrainedModel | HeadedEncoder, precision: str = "fp32", device: str = "cpu") -> None:
        self.model = model
        self.precision = precision
        self.device = torch.device(device)
        self.inputs = input_names(model)

    @torch.inference_mode()
    def predict(self, batch: Batch) -> NDArray[np.float32]:
        """Logits, or last hidden states; see `Predictor`."""
        filled = with_token_types(batch)
        if "entities" in self.inputs and "entities" not in filled:
            raise SqueezeError("the model reads where two entities are, which these data do not say; give relations")
        tensors = {name: torch.from_numpy(filled[name]).to(self.device) for name in self.inputs}
        training = self.model.training
        if training:
            self.model.train(False)
        try:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
                output = main_output(self.model(**tensors))
        finally:
            if training:
                self.model.train(True)
        values: NDArray[np.float32] = output.float().cpu().numpy()
        return values


def input_names(model: PreTrainedModel | HeadedEncoder) -> tuple[str, ...]:
    """The arguments that a model of this family takes, in order, and what its head reads beside them."""
    types = ("token_type_ids",) if family_of(model.config).takes_token_types else ()
    return ("input_ids", "attention_mask", *types, *(model.extra_inputs if isinstance(model, HeadedEncoder) else ()))


def files(checkpoint: Checkpoint, precision: str) -> tuple[Path, ...]:  # noqa: ARG001 - the same for both
    """The checkpoint's own weights."""
    return checkpoint.weights


def available(checkpoint: Checkpoint) -> tuple[str, ...]:  # noqa: ARG001 - every checkpoint has weights
    """fp32: bf16 needs no file of its own, so it is measured on request only."""
    return ("fp32",)


def load(checkpoint: Checkpoint, precision: str, threads: int | None) -> TorchPredictor:
    """The checkpoint with the head that it has, on the CPU."""
    if threads is not None:
        torch.set_num_threads(threads)
    model = load_headed_encoder(checkpoint) if checkpoint.custom_head else load_model(checkpoint).model
    if precision == "bf16":
        cast_products(model)
    return TorchPredictor(model, precision)


def cast_products(model: torch.nn.Module) -> None:
    """Hold the matrices of linear layers in bfloat16.

    Autocast casts them anyway, in every call anew. Embeddings and LayerNorm stay in float32, as under autocast alone,
    but for an embedding whose table is a linear layer's matrix too, the decoder of a masked language model.
    """
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.to(torch.bfloat16)
