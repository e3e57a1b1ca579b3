"""Score a checkpoint example by example, and compare two by a paired bootstrap over the examples."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Predictions:
    """What a checkpoint predicts on a split, beside the gold labels."""

    task: Any
    gold: Sequence[Any]
    predicted: Sequence[Any]

    @property
    def score(self) -> float:
        """The task's main metric, from 0 to 1."""
        return float(self.task.score(self.gold, self.predicted)[self.task.METRIC])

    def resampled(self, chosen: Sequence[int]) -> float:
        """Return the main metric on some of the examples, in which one may occur several times."""
        gold, predicted = ([values[index] for index in chosen] for values in (self.gold, self.predicted))
        return float(self.task.score(gold, predicted)[self.task.METRIC])


def predict(checkpoint: str, data: str, backend: str, split: str = "test") -> Predictions:
    """Predict a split with a fine-tuned checkpoint."""
    from biosqueeze.finetuning.evaluation import EvaluationRequest, resolve_evaluation
    from biosqueeze.finetuning.task_model import load_task_model
    from biosqueeze.tasks.formulation import ReadingOptions

    evaluation = resolve_evaluation(
        EvaluationRequest(
            checkpoint=checkpoint,
            data=data,
            task=None,
            split=split,
            reading=ReadingOptions(),
            backend=backend,
            batch_size=32,
            max_length=None,
            threads=None,
            device="cpu",
            floors={},
        )
    )
    examples = evaluation.examples()
    model = load_task_model(evaluation.checkpoint, evaluation.task, evaluation.inference)
    return Predictions(evaluation.task, [example.gold for example in examples], model.predict(examples))


def interval(student: Predictions, teacher: Predictions, resamples: int, seed: int = 0) -> tuple[float, float]:
    """Return the 95% interval of student's score divided by teacher's, over resampled examples."""
    if len(student.gold) != len(teacher.gold):
        raise ValueError("student and teacher were scored on different examples")
    draw, count = np.random.default_rng(seed), len(student.gold)
    samples = [draw.integers(count, size=count).tolist() for _ in range(resamples)]
    ratios = [student.resampled(chosen) / teacher.resampled(chosen) for chosen in samples]
    low, high = np.quantile(ratios, (0.025, 0.975))
    return float(low), float(high)
