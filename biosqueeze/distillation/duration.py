"""The time of a distillation on a task, for --dry-run: a few steps on real examples, with random weights."""

import time
from collections.abc import Iterator, Sequence
from itertools import islice

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from biosqueeze.backends.torch import input_names
from biosqueeze.data.lengths import fitting_length
from biosqueeze.distillation.models import task_output_type
from biosqueeze.distillation.preflight import student_of, with_outputs_of
from biosqueeze.distillation.request import DistillationRequest, ModelSettings
from biosqueeze.finetuning.finetuned_checkpoint import task_of
from biosqueeze.finetuning.learner import FineTuner
from biosqueeze.model_facts import head_of
from biosqueeze.models.custom_heads.encoder import HeadedEncoder
from biosqueeze.models.custom_heads.files import has_cosine
from biosqueeze.models.custom_heads.load import with_cosine
from biosqueeze.models.device import own_device
from biosqueeze.models.families import family_of
from biosqueeze.models.int8_products import quantize_products
from biosqueeze.models.loading.load import load_config, load_tokenizer, new_model
from biosqueeze.system import processes
from biosqueeze.system.memory import keep_freed_memory, limited_memory
from biosqueeze.tasks import Task
from biosqueeze.training.batches import Batch, BatchSchedule, loader
from biosqueeze.training.encoder_layers import training_layers
from biosqueeze.training.precision import precision_of, teacher_precision_of
from biosqueeze.training.sources import Mixture

_EXAMPLES, _STEPS = 512, 4


def step_seconds(request: DistillationRequest) -> float:
    """Return the time of a step: a forward pass of each teacher, and both passes of the student.

    The losses on hidden states and attention, and the update of the weights are not in it: some percent.
    """
    keep_freed_memory()
    models, device = request.models, own_device()
    name, task = task_of(models.teachers[0], models.task, "to distil", models.reading)
    output_type = task_output_type(models.teachers, name, task)
    configs = [load_config(teacher) for teacher in models.teachers]
    student = with_outputs_of(configs[0], student_of(models, configs[0])[0])
    teachers = [nn.Module.to(_random(config, models), device) for config in _run_in_each_step(models, configs)]
    if teacher_precision_of(request.training) == "int8":
        for teacher in teachers:
            quantize_products(teacher)
    learner = FineTuner(_random(student, models), output_type).to(device).train()
    training = request.training
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=precision_of(training) == "bf16")
    times: list[float] = []
    with limited_memory(device.type), training_layers(learner, training, processes.count()), autocast:
        for batch in _batches(request, task):
            moved = {name: tensor.to(device) for name, tensor in batch.items()}
            began = time.monotonic()
            with torch.no_grad():
                for teacher in teachers:
                    teacher(**{name: moved[name] for name in input_names(teacher) if name in moved})
            learner(**moved)["labels"].backward()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times.append(time.monotonic() - began)
    return training.accumulate * sum(times[1:]) / len(times[1:])  # the first one allocates memory


def _run_in_each_step(models: ModelSettings, configs: Sequence[PreTrainedConfig]) -> list[PreTrainedConfig]:
    """Return the teachers that have the student's tokens; others run once, before the training."""
    tokens = load_tokenizer(models.checkpoints[-1]).get_vocab().keys()
    vocabularies = (load_tokenizer(teacher).get_vocab().keys() for teacher in models.teachers)
    return [config for config, known in zip(configs, vocabularies, strict=True) if tokens <= known]


def _random(config: PreTrainedConfig, models: ModelSettings) -> PreTrainedModel | HeadedEncoder:
    """Return a model with random weights and a head as the first teacher's."""
    teacher = models.teachers[0]
    model = new_model(config, family_of(config).architecture(head_of(teacher.config)), seed=0)
    return with_cosine(model, 0.0, 1.0) if has_cosine(teacher) else model


def _batches(request: DistillationRequest, task: Task) -> Iterator[Batch]:
    """Yield a few batches of the first labelled examples."""
    models, training = request.models, request.training
    examples = task.read(str(request.data.data), ("train",)).splits["train"][:_EXAMPLES]
    tokenizer = load_tokenizer(models.checkpoints[-1])
    positions = min(load_tokenizer(checkpoint).model_max_length for checkpoint in models.checkpoints)
    length = fitting_length(models.max_length, positions)
    windows = task.encode(examples, models.teachers[0].labels, tokenizer, length)
    source = Mixture([window.features for window in windows], None, 0.0, int(tokenizer.pad_token_id))
    schedule = BatchSchedule(source, training.batch_size, training.seed, total=_STEPS)
    return islice(loader(schedule, workers=0), _STEPS)
