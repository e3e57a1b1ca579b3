"""Matrix products of a frozen encoder in int8, on CPUs whose VNNI instructions multiply int8 faster than fp32.

Weights are quantized once, by output channel; inputs in each pass, by token: a few tokens, such as [CLS], are ten times
as large as the others, and one scale for all of them would leave the others few of the 256 values.
"""

import copy

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from biosqueeze.models.device import own_device
from biosqueeze.models.layers import encoder_layers

_LEAST_INPUTS = 256
"""Of a product; below it, quantizing the inputs takes longer than int8 saves."""
_LARGEST, _ZERO = 127, 128  # of signed weights; of unsigned inputs, the only ones for which oneDNN has fast kernels
_TINY = 1e-30  # as the largest of zeros: what is divided by it stays finite


def has_int8_products() -> bool:
    """Return whether the products of fp32 models are faster in int8 here: on a CPU, with sums that cannot overflow."""
    return own_device().type == "cpu" and torch.cpu._is_vnni_supported()


def quantize_products(model: nn.Module) -> int:
    """Replace the wide linear layers in the layers of an encoder; return how many.

    Embeddings and head stay as they are.
    """
    count = 0
    for layer in encoder_layers(model):
        for name, module in list(layer.named_modules()):
            if isinstance(module, nn.Linear) and module.in_features >= _LEAST_INPUTS:
                layer.set_submodule(name, Int8Linear(module))
                count += 1
    return count


def with_int8_products(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy whose products are in int8; it shares all other weights with the model, which stays as it is."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    copied = copy.deepcopy(model, shared)
    quantize_products(copied)
    return copied


class Int8Linear(nn.Module):
    """A frozen linear layer whose product is computed in int8; inputs and outputs are fp32."""

    def __init__(self, linear: nn.Linear) -> None:
        """Quantize the weights symmetrically, each output channel by its largest."""
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach().float()
        self.scales = weight.abs().amax(dim=1).clamp_min(_TINY) / _LARGEST
        self.zeros = torch.zeros(self.out_features, dtype=torch.int32)
        quantized = (weight / self.scales[:, None]).round_().to(torch.int8)
        self.packed = torch.ops.onednn.qlinear_prepack(quantized, None)
        self.bias = torch.zeros(self.out_features) if linear.bias is None else linear.bias.detach().float()
        # The conversion to integers cuts off the fraction: half is added to round.
        self.shift = torch.tensor(_ZERO + 0.5)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the affine map of (..., inputs), as (..., outputs), without gradients."""
        rows = inputs.reshape(-1, self.in_features)
        largest = torch.maximum(rows.amax(dim=1, keepdim=True), rows.amin(dim=1, keepdim=True).neg_())
        largest.clamp_min_(_TINY)
        quantized = torch.addcmul(self.shift, rows, _LARGEST / largest).to(torch.uint8)
        outputs: Tensor = torch.ops.onednn.qlinear_pointwise(
            *(quantized, 1 / _LARGEST, _ZERO, self.packed, self.scales, self.zeros),
            *(None, 1.0, 0, torch.float32, "none", [], ""),  # no bias, outputs as they are, nothing after the product
        )
        return torch.addcmul(self.bias, outputs, largest, out=outputs).view(*inputs.shape[:-1], self.out_features)
