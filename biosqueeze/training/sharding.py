"""Divide parameters, gradients and optimiser states over the processes of a training (FSDP, torch's `fully_shard`)."""

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from transformers import PreTrainedModel

from biosqueeze.models.layers import layers_by_depth
from biosqueeze.progress import note
from biosqueeze.training.learner import Learner
from biosqueeze.training.optimiser.optimisation import optimizer_of
from biosqueeze.training.options import TrainingOptions


def shard_layers(models: Iterable[PreTrainedModel]) -> None:
    """Shard every layer's weights over the processes; a layer is gathered only while it runs."""
    for model in models:
        for layer in dict.fromkeys(layers_by_depth(model)):
            fully_shard(layer, reshard_after_forward=True)


def local_part(tensor: Tensor) -> Tensor:
    """Return what this process holds of a tensor; all of it where it is not sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def held_parameters(modules: Iterable[nn.Module]) -> str:
    """Return how many of the parameters each process holds, in words."""
    parameters = [parameter for module in modules for parameter in module.parameters()]
    held, total = sum(local_part(p).numel() for p in parameters), sum(p.numel() for p in parameters)
    return f"each process holds {held:,} of {total:,} parameters"


class ShardedLearner:
    """A sharded copy of a learner, with its optimiser.

    Layers are gathered one at a time; embeddings and heads for a whole pass, because a head runs in slices, and their
    number differs between processes. Weights are gathered in float32, and so are gradients added, after each
    micro-batch. The learner itself stays on the CPU, and gets the weights when they are scored or written.
    """

    def __init__(self, whole: Learner, accelerator: Accelerator, options: TrainingOptions) -> None:
        """Copy and shard a learner.

        Args:
            whole: the learner, with equal weights in every process.
            accelerator: has joined the processes; its saved states will hold each process's shard.
            options: of the optimiser.
        """
        self.whole, self.accelerator = whole, accelerator
        self.sharded = copy.deepcopy(whole)
        shard_layers(self.sharded.encoders())
        fully_shard(self.sharded)
        self.sharded.forward = accelerator.autocast()(self.sharded.forward)  # type: ignore[method-assign]
        self.optimizer: Optimizer = optimizer_of(self.sharded, options)
        self.parameters = dict(self.sharded.named_parameters())
        accelerator.register_save_state_pre_hook(lambda _models, _weights, folder: self._save(Path(folder)))
        accelerator.register_load_state_pre_hook(lambda _models, folder: self._load(Path(folder)))
        note(f"{held_parameters([self.sharded])}, and as much of the gradients and of the optimiser's states")

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Copy the weights to the learner of the main process, which is on the device inside the block."""
        targets = dict(self.whole.named_parameters())
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                weights = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
                if self.accelerator.is_main_process:
                    targets[name].copy_(weights)
        if self.accelerator.is_main_process:
            self.whole.to(self.accelerator.device).eval()
        yield
        self.whole.to("cpu")

    def _file(self, folder: Path) -> Path:
        return folder / f"shard-{self.accelerator.process_index}.safetensors"

    def _save(self, folder: Path) -> None:
        """Write this process's part of the weights and of the optimiser's states."""
        tensors: dict[str, Tensor] = {}
        for name, parameter in self.parameters.items():
            tensors[name] = local_part(parameter.detach())
            states = self.optimizer.state.get(parameter, {})
            tensors |= {f"{name}/{key}": local_part(value) for key, value in states.items()}
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, self._file(folder))

    @torch.no_grad()
    def _load(self, folder: Path) -> None:
        """Read what `_save` wrote."""
        tensors = load_file(self._file(folder))
        states: dict[Tensor, dict[str, Tensor]] = {parameter: {} for parameter in self.parameters.values()}
        for key, tensor in tensors.items():
            name, _, state = key.partition("/")
            parameter = self.parameters[name]
            if state:
                states[parameter][state] = _distributed_like(parameter, tensor) if tensor.dim() else tensor
            else:
                local_part(parameter).copy_(tensor)
        groups: Any = self.optimizer.state_dict()["param_groups"]
        ordered = (parameter for group in self.optimizer.param_groups for parameter in group["params"])
        self.optimizer.load_state_dict(
            {"state": {number: states[parameter] for number, parameter in enumerate(ordered)}, "param_groups": groups}
        )


def _distributed_like(parameter: Tensor, local: Tensor) -> Tensor:
    """Return a tensor that is divided as a parameter is, from the part of this process."""
    if not isinstance(parameter, DTensor):
        return local
    return DTensor.from_local(
        local.to(parameter.device),
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
