"""Some labelled examples of a distillation on a task, encoded to see how long they are."""

from statistics import fmean

from biosqueeze.data.collate import Features
from biosqueeze.distillation.request import DistillationRequest
from biosqueeze.finetuning.finetuned_checkpoint import task_of
from biosqueeze.models.load import load_tokenizer
from biosqueeze.progress import collect_warnings, quietly
from biosqueeze.training.options import fitting_length

_TOKENS, _LEAST = 4_096, 8
_EXAMPLES = 512


def usual_batch_size(request: DistillationRequest) -> int:
    """Return the request's batch size, halved while a batch has more than 4,096 tokens on average, but at least 8.

    A step on 32 abstracts takes five times as long as one on 32 sentences, and learns from five times as much text.
    """
    size = request.training.batch_size
    if size * request.models.max_length <= _TOKENS:
        return size
    with quietly(), collect_warnings():  # the run itself reads the data again, and warns
        lengths = [len(features["input_ids"]) for features in labelled_sample(request)]
    while size // 2 >= _LEAST and size * fmean(lengths or [0]) > _TOKENS:
        size //= 2
    return size


def labelled_sample(request: DistillationRequest) -> list[Features]:
    """Return up to 512 encoded training examples, from all parts of the file.

    Raises:
        SqueezeError: the data cannot be read, or do not fit the teacher.
    """
    models = request.models
    _, task = task_of(models.teachers[0], models.task, "to distil", models.reading)
    examples = task.read(str(request.data.data), ("train",)).splits["train"]
    tokenizer = load_tokenizer(models.checkpoints[-1])
    positions = min(load_tokenizer(checkpoint).model_max_length for checkpoint in models.checkpoints)
    chosen = examples[:: max(1, len(examples) // _EXAMPLES)][:_EXAMPLES]
    length = fitting_length(models.max_length, positions)
    return [window.features for window in task.encode(chosen, models.teachers[0].labels, tokenizer, length)]
