"""PyTorch, the reference runtime: in float32, or with bfloat16 matrix products."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from biosqueeze.backends import Batch, with_token_types
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.models.custom_heads.encoder import HeadedEncoder
from biosqueeze.models.custom_heads.files import has_cosine
from biosqueeze.models.custom_heads.load import load_headed_encoder
from biosqueeze.models.device import own_device, warn_of_slow_bf16
from biosqueeze.models.families import takes_token_types
from biosqueeze.models.heads import main_output
from biosqueeze.models.loading.load import load_model

PRECISIONS = ("fp32", "bf16")


class TorchPredictor:
    """Predict with a model in memory; its training mode is restored afterwards."""

    def __init__(
        self,
        model: PreTrainedModel | HeadedEncoder,
        precision: str = "fp32",
        device: str = "cpu",
        *,
        inputs: tuple[str, ...] = (),
        threads: int | None = None,
    ) -> None:
        """Take a model.

        Args:
            model: in any mode.
            precision: fp32 or bf16.
            device: where it is.
            inputs: names of its inputs; may be left out for a supported family.
            threads: of the CPU; None: as many as torch uses.
        """
        self.model = model
        self.precision = precision
        self.device = device
        self.inputs = inputs or input_names(model)
        self.threads = threads

    @torch.inference_mode()
    def predict(self, batch: Batch) -> NDArray[np.float32]:
        """Compute logits, or last hidden states; see `Predictor`."""
        filled = with_token_types(batch)
        if "entities" in self.inputs and "entities" not in filled:
            raise SqueezeError(
                "the model needs the positions of two entities, which these data lack; give a relation data set"
            )
        tensors = {name: torch.from_numpy(filled[name]).to(self.device) for name in self.inputs}
        training, in_bf16 = self.model.training, self.precision == "bf16"
        if training:
            self.model.train(False)
        try:
            autocast = torch.autocast(torch.device(self.device).type, torch.bfloat16, enabled=in_bf16)
            with _threads(self.threads), autocast:
                output = main_output(self.model(**tensors))
        finally:
            if training:
                self.model.train(True)
        values: NDArray[np.float32] = output.float().cpu().numpy()
        return values


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Use a number of threads of the CPU; those of a Python program are its own again afterwards."""
    former = torch.get_num_threads()
    if count in (None, former):
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(former)


def input_names(model: PreTrainedModel | HeadedEncoder) -> tuple[str, ...]:
    """Return the names of a model's inputs, in order, and then those of its custom head."""
    types = ("token_type_ids",) if takes_token_types(model.config) else ()
    return ("input_ids", "attention_mask", *types, *(model.extra_inputs if isinstance(model, HeadedEncoder) else ()))


def files(checkpoint: Checkpoint, precision: str) -> tuple[Path, ...]:  # noqa: ARG001 - the same for both
    """Return the checkpoint's weights."""
    return checkpoint.weights


def available(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Return fp32, if there are float weights: bf16 has no file, so it is measured on request only."""
    return () if checkpoint.is_slim else ("fp32",)


def load(checkpoint: Checkpoint, precision: str, threads: int | None) -> TorchPredictor:
    """Load the checkpoint with its head, on the device of this process."""
    in_model = checkpoint.custom_head and not has_cosine(checkpoint)  # see `backends.open_predictor`
    model = load_headed_encoder(checkpoint) if in_model else load_model(checkpoint).model
    if precision == "bf16":
        warn_of_slow_bf16("--backend torch")
        cast_products(model)
    device = own_device()
    torch.nn.Module.to(model, device)  # in place
    return TorchPredictor(model, precision, str(device), threads=threads)


def cast_products(model: torch.nn.Module) -> None:
    """Convert the matrices of linear layers to bfloat16.

    Autocast would convert them in every call. Embeddings and LayerNorm stay in float32, as under autocast, except an
    embedding that is tied to a linear layer, the decoder of a masked language model.
    """
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.to(torch.bfloat16)
