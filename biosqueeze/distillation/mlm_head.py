"""A masked-language-model head for a teacher that was saved without one: trained on the corpus, the encoder frozen."""

import hashlib
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from biosqueeze import processes
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.cache import cache_folder, load_or_build
from biosqueeze.data.collate import Features
from biosqueeze.data.feature_keys import LABELS
from biosqueeze.distillation.chunked_loss import Work, summed
from biosqueeze.distillation.loss_config import LossConfig
from biosqueeze.distillation.models import DistillationModels
from biosqueeze.distillation.options import DistillationOptions
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.models.heads import mlm_logits
from biosqueeze.models.inputs import model_inputs
from biosqueeze.objectives import Rows, mlm
from biosqueeze.progress import note
from biosqueeze.training.batches import BatchSchedule, ItemSource, loader
from biosqueeze.training.device import own_device
from biosqueeze.training.failures import TrainingError
from biosqueeze.training.hashes import checkpoint_hash, source_hash
from biosqueeze.training.job import TrainingJob
from biosqueeze.training.learner import Learner
from biosqueeze.training.loop import train
from biosqueeze.training.options import TrainingOptions
from biosqueeze.training.precision import precision_of
from biosqueeze.training.sources import Blocks, Ids, MaskedBlocks

FORMAT = 1  # part of each key: another number leaves all heads that were fitted before unread
LEARNING_RATE = 1e-3  # a head alone bears more than a whole model
HELD_OUT = 64  # blocks of the corpus at most, and a tenth of it
HELD_AT_ONCE = 16  # without gradients, the logits of all their masked rows lie in memory
_FILE = "head.safetensors"


@dataclass(frozen=True)
class Head:
    """The weights of a head by their names in the model, and how well it does on text that it was not fitted on."""

    weights: dict[str, Tensor]
    before: float  # perplexity of the masked tokens with the random head
    after: float

    @property
    def facts(self) -> dict[str, Any]:
        """For the manifest."""
        found = {"perplexity_before": round(self.before, 3), "perplexity": round(self.after, 3)}
        return {**found, "sha256": self.sha256}

    @property
    def sha256(self) -> str:
        """SHA-256 over its weights."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.weights.items()):
            digest.update(name.encode())
            digest.update(tensor.numpy().data)
        return digest.hexdigest()


@dataclass(frozen=True)
class Fitting:
    """What heads are fitted on."""

    options: DistillationOptions
    source: ItemSource  # masked text
    directory: Path  # for what is needed while it is done; nothing stays there

    @property
    def steps(self) -> int:
        """How long."""
        return self.options.fit_head or 0

    def key(self) -> str:
        """Differs wherever the head may differ, for one and the same teacher."""
        options = self.options
        together = options.batch_size * options.accumulate * processes.count()
        content = [FORMAT, self.steps, options.seed, together, precision_of(options), source_hash(self.source)]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def training(self) -> TrainingOptions:
        """How it is trained; no state is saved on the way."""
        options = self.options
        return TrainingOptions(
            steps=self.steps,
            save_every=self.steps,
            lr=LEARNING_RATE,
            batch_size=options.batch_size,
            accumulate=options.accumulate,
            auto_batch=options.auto_batch,
            precision=options.precision,
            max_length=options.max_length,
            workers=options.workers,
            seed=options.seed,
        )


def fit_missing_heads(
    pairing: DistillationModels, teachers: Sequence[Checkpoint], fitting: Fitting
) -> dict[str, dict[str, Any]]:
    """Where --fit-head asks for it, give each teacher that lacks its head one that is fitted to the corpus.

    A student without a head starts from the first teacher's, where it fits.

    Args:
        pairing: of plain encoders; the models are changed in place.
        teachers: where they come from.
        fitting: on what, and how long.

    Returns:
        facts of each fitted head by the name of its teacher.

    Raises:
        SqueezeError: the corpus is too small, or the cache cannot be written.
    """
    facts: dict[str, dict[str, Any]] = {}
    if fitting.options.fit_head is None:
        return facts
    for model, checkpoint, has_head in zip(pairing.teachers, teachers, pairing.heads, strict=True):
        if not has_head:
            head = fitted_head(model, checkpoint, fitting)
            fill(model, head.weights)
            facts[checkpoint.name] = head.facts
    if not pairing.student_has_head and fill(pairing.student, own_weights(pairing.teachers[0])):
        note(f"the student starts from the head of {teachers[0].name} too")
    return facts


def check_unused_options(
    options: DistillationOptions, pairing: DistillationModels, teachers: Sequence[Checkpoint], recipe: LossConfig
) -> None:
    """No option is ignored in silence.

    Raises:
        UsageError: --fit-head is given, and every teacher has its head, or no loss reads it.
    """
    if options.fit_head is None:
        return
    if not any(module.NEEDS_TEACHER_LOGITS for module in recipe.losses.values()):
        raise UsageError(
            f"--fit-head: none of the losses {', '.join(recipe.weights)} reads a teacher's head; leave it out, or add "
            "--loss kl"
        )
    if all(pairing.heads):
        names = " and ".join(teacher.name for teacher in teachers)
        raise UsageError(f"{names} {'has its' if len(teachers) == 1 else 'have their'} own head; leave --fit-head out")


def fitted_head(model: PreTrainedModel, teacher: Checkpoint, fitting: Fitting) -> Head:
    """The head for a teacher, from the cache or fitted now and kept there.

    Args:
        model: the teacher, with a fresh head.
        teacher: where it comes from.
        fitting: on what, and how long.

    Raises:
        SqueezeError: the corpus is too small, or the cache cannot be written.
    """
    folder = cache_folder() / "heads" / f"{checkpoint_hash(teacher)[:12]}-{fitting.key()}"
    load = partial(_load, {name: tensor.shape for name, tensor in own_weights(model).items()})
    kept = load(folder)
    if kept is not None:
        note(
            f"the head of {teacher.name} was fitted earlier: perplexity {kept.after:,.1f} on held-out masked tokens; "
            f"it is in {folder}"
        )
        return kept
    fitted = _fit(model, teacher.name, fitting)
    if processes.is_main():
        load_or_build(folder, load, partial(_save, fitted), "head")
        note(f"the head is kept in {folder}")
    processes.barrier()
    kept = load(folder)
    if kept is None:
        raise SqueezeError(
            f"the fitted head in {folder} cannot be read by every process; set BIOSQUEEZE_CACHE to a shared disk"
        )
    return kept


def _fit(model: PreTrainedModel, name: str, fitting: Fitting) -> Head:
    """Fit it; of several processes the main one alone says how good it is, and has all of it."""
    learner = HeadFitter(model)
    held, rest = hold_out(fitting.source)
    count = sum(parameter.numel() for parameter in learner.parameters() if parameter.requires_grad)
    tied = "; its decoder is the encoder's word embedding, which stays as it is" if _is_tied(model) else ""
    note(f"fitting a head to {name}, the encoder frozen: {count:,} weights, {fitting.steps:,} steps{tied}")
    before = perplexity(learner, held, fitting.options) if processes.is_main() else math.nan
    _train(learner, rest, fitting)
    after = perplexity(learner, held, fitting.options) if processes.is_main() else math.nan
    note(f"perplexity of held-out masked tokens: {before:,.1f} before, {after:,.1f} after")
    learner.to("cpu")
    return Head({name: tensor.detach() for name, tensor in own_weights(learner.model).items()}, before, after)


def _train(learner: "HeadFitter", source: MaskedBlocks, fitting: Fitting) -> None:
    directory = fitting.directory / "fit-head"
    directory.mkdir(exist_ok=True)
    try:
        train(TrainingJob("fit the head", learner, source, fitting.training(), directory))
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt("the head was not fitted to the end, and nothing of it is kept") from interrupt
    except TrainingError as error:
        # What the loop advises is for a training that has a rate of its own and can be resumed.
        cut = "" if fitting.options.auto_batch else "--auto-batch, "
        raise SqueezeError(
            f"the head could not be fitted ({error.cause}); give {cut}a smaller --batch-size or --max-length, or "
            "--precision fp32"
        ) from error
    finally:
        if processes.is_main():
            shutil.rmtree(directory, ignore_errors=True)


class HeadFitter(Learner):
    """A model whose encoder stands still, dropout included, while its head learns masked language modelling."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        self.weights = {"mlm": 1.0}
        model.requires_grad_(requires_grad=False)
        for parameter in own_weights(model).values():
            parameter.requires_grad_()

    def train(self, mode: bool = True) -> "HeadFitter":
        """Set the mode of the head alone."""
        super().train(mode)
        self.model.base_model.train(False)
        return self

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, int]:
        """How many tokens are masked."""
        return {"mlm": int((batch[LABELS] >= 0).sum())}

    def forward(self, **batch: Tensor) -> dict[str, Tensor]:
        """`mlm`: the mean cross entropy of the true tokens at the masked positions, a scalar."""
        with torch.no_grad():
            hidden = self.model.base_model(**model_inputs(self.model, batch)).last_hidden_state
        masked = batch[LABELS] >= 0  # (batch, length)
        rows, labels = hidden[masked], batch[LABELS][masked]  # (rows, hidden), (rows,)
        head = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        total = summed(Work(partial(self._sums, labels), [1.0]), rows, head)
        return {"mlm": total[0] / max(1, len(labels))}

    def _sums(self, labels: Tensor, hidden: Tensor, part: slice) -> Tensor:
        """The one term's sum over some rows: (1,)."""
        return mlm.loss(Rows(mlm_logits(self.model, hidden), None, labels[part])).unsqueeze(0)


def own_weights(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """The parameters that are the head's and not the encoder's, by name; a tied decoder is the encoder's."""
    trunk = {id(parameter) for parameter in model.base_model.parameters()}
    return {name: parameter for name, parameter in model.named_parameters() if id(parameter) not in trunk}


def _is_tied(model: PreTrainedModel) -> bool:
    own = own_weights(model)
    return not any(len(tensor) == model.config.vocab_size and tensor.dim() > 1 for tensor in own.values())


@torch.no_grad()
def fill(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> bool:
    """Copy a head into a model; False, and nothing is changed, where it does not have the same parts."""
    own = own_weights(model)
    if {name: p.shape for name, p in own.items()} != {name: tensor.shape for name, tensor in weights.items()}:
        return False
    for name, parameter in own.items():
        parameter.copy_(weights[name])
    return True


@dataclass(frozen=True)
class Part:
    """Some of the blocks of a corpus."""

    blocks: Blocks
    items: Ids  # (blocks of the part,)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.items)

    def lengths_of(self, items: Ids) -> Ids:
        """Their lengths in tokens, (items,)."""
        return self.blocks.lengths_of(self.items[items])

    def features(self, item: int) -> Features:
        """What a model reads of one."""
        return self.blocks.features(int(self.items[item]))


def hold_out(source: ItemSource) -> tuple[MaskedBlocks, MaskedBlocks]:
    """A few blocks from all over the corpus, and the rest.

    Raises:
        SqueezeError: there is a single one.
    """
    if not isinstance(source, MaskedBlocks):
        raise TypeError(f"masked text was expected, not {type(source).__name__}")
    total = len(source.blocks)
    if total < 2:
        raise SqueezeError(
            "--fit-head holds a piece of the corpus out to say how good the head is, and this corpus gives a single "
            "piece; give more text with --corpus"
        )
    held = np.linspace(0, total - 1, max(1, min(HELD_OUT, total // 10))).astype(np.int64)
    rest = np.setdiff1d(np.arange(total), held)
    return replace(source, blocks=Part(source.blocks, held)), replace(source, blocks=Part(source.blocks, rest))


@torch.no_grad()
def perplexity(learner: Learner, source: MaskedBlocks, options: TrainingOptions) -> float:
    """The exponential of the mean cross entropy of the true tokens at masked positions, which are always the same."""
    device = own_device()
    learner.to(device).train(False)
    size = min(options.batch_size, HELD_AT_ONCE, len(source.blocks))
    plan = BatchSchedule(source, size, options.seed, total=math.ceil(len(source.blocks) / size))
    total, count = 0.0, 0
    for batch in loader(plan, 0):
        with torch.autocast(device.type, torch.bfloat16, enabled=precision_of(options) == "bf16"):
            term = learner(**{name: tensor.to(device) for name, tensor in batch.items()})["mlm"]
        masked = learner.counts(batch)["mlm"]
        total, count = total + float(term) * masked, count + masked
    return math.exp(min(total / max(1, count), 700.0))


def _save(head: Head, folder: Path) -> None:
    facts = {"before": str(head.before), "after": str(head.after)}
    save_file(head.weights, folder / _FILE, {"format": "pt", **facts})


def _load(shapes: Mapping[str, torch.Size], folder: Path) -> Head | None:
    """The head, if it is there and whole."""
    try:
        with safe_open(folder / _FILE, "pt") as file:
            facts = file.metadata()
            # Copies: what is read is mapped, and would change with the file.
            weights = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - it is no mapping
            head = Head(weights, float(facts["before"]), float(facts["after"]))
    except (OSError, SafetensorError, KeyError, ValueError, TypeError):
        return None
    return head if {name: tensor.shape for name, tensor in weights.items()} == dict(shapes) else None
