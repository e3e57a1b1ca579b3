"""PyTorch, in fp32 or under bf16 autocast."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel


class TorchPredictor:
    """A live PyTorch model as a predictor."""

    def __init__(self, model: PreTrainedModel, precision: str = "fp32", device: str = "cpu") -> None:
        self.model, self.precision, self.device = model, precision, device

    def predict(self, batch: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float32]:
        """Logits, float32 (batch, length, labels)."""
        inputs: Any = {name: torch.from_numpy(array).to(self.device) for name, array in batch.items()}
        autocast = torch.autocast(self.device.split(":")[0], torch.bfloat16, enabled=self.precision == "bf16")
        with torch.inference_mode(), autocast:
            logits = self.model(**inputs).logits
        result: NDArray[np.float32] = logits.float().cpu().numpy()
        return result
