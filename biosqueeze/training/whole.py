"""The model with all its weights, whatever a wrapper made of it."""

from copy import deepcopy
from typing import Any

from accelerate import Accelerator
from accelerate.utils import DistributedType

from biosqueeze.training.learner import Learner

_PREFIX = "model."


class Whole:
    """Gives the model back; where its weights are sharded (FSDP), a copy that the main process fills with them."""

    def __init__(self, accelerator: Accelerator, learner: Learner) -> None:
        self.accelerator = accelerator
        self.copy: Any = deepcopy(learner.model) if accelerator.distributed_type == DistributedType.FSDP else None

    def model(self, wrapped: Any) -> Any:
        """The model; all processes must ask, and only the main one's answer is whole."""
        if self.copy is None:
            return self.accelerator.unwrap_model(wrapped).model
        weights = self.accelerator.get_state_dict(wrapped)
        if self.accelerator.is_main_process:
            named = {n.removeprefix(_PREFIX): tensor for n, tensor in weights.items() if n.startswith(_PREFIX)}
            self.copy.load_state_dict(named)
        return self.copy
