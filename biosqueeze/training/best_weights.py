"""Evaluate on the dev split during a training, and keep the best weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from biosqueeze.progress import note
from biosqueeze.training.job import TrainingJob
from biosqueeze.training.resuming.state import Progress, Weights

_MEAN_MAY_LOSE = 0.005  # of a score


class BestWeights:
    """The weights with the highest dev score so far, on the CPU of the main process."""

    def __init__(self, job: TrainingJob, accelerator: Accelerator) -> None:
        self.job, self.accelerator = job, accelerator
        self.weights: Weights | None = None

    def evaluate(self, learner: Any) -> dict[str, float]:
        """Compute the dev scores in the main process, and return them in every process.

        Args:
            learner: as it is trained, perhaps wrapped for several processes.
        """
        if self.job.evaluate is None:
            return {}
        learner.eval()
        scores = [self.job.evaluate(self.job.learner.model) if self.accelerator.is_main_process else {}]
        if self.accelerator.num_processes > 1:
            broadcast_object_list(scores)
        learner.train()
        return scores[0]

    def begin(self, scores: Mapping[str, float], progress: Progress) -> None:
        """Keep the weights before the first step until others score as high; --patience does not depend on them.

        Args:
            scores: of these weights.
            progress: changed in place.
        """
        score = progress.start_score = scores[str(self.job.metric)]
        note(f"before training: dev {self.job.metric} {score:.4f}")
        self._keep(scores, score, progress)

    def update(self, scores: Mapping[str, float], progress: Progress) -> None:
        """Keep the weights if their score is the best so far; else count towards --patience. Without a metric only log.

        Args:
            scores: of the current weights.
            progress: changed in place.
        """
        if self.job.metric is None:
            listed = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
            note(f"step {progress.step}: held-out {listed}")
            return
        score = scores[self.job.metric]
        note(f"step {progress.step}: dev {self.job.metric} {score:.4f}")
        if progress.best_trained is not None and score <= progress.best_trained:
            progress.stale += 1
            return
        progress.best_trained, progress.stale = score, 0
        if progress.start_score is None or score >= progress.start_score:
            self._keep(scores, score, progress)

    def average_with_start(self, learner: Any, progress: Progress) -> bool:
        """Score the mean of the weights before the first step, which are the best, and of the last; keep it if as good.

        Wortsman et al. 2022 (Robust fine-tuning of zero-shot models, section 3, with alpha = 1/2). It may have
        `_MEAN_MAY_LOSE` less on dev: the start descends from a checkpoint that was selected on dev, and scores too high
        there.

        Args:
            learner: with the last weights.
            progress: changed in place.

        Returns:
            whether it is kept.
        """
        with self._mean_with_start():
            scores = self.evaluate(learner)
            score = scores[str(self.job.metric)]
            note(f"mean of these weights and of those before training: dev {self.job.metric} {score:.4f}")
            if progress.best_score is not None and score < progress.best_score - _MEAN_MAY_LOSE:
                return False
            self._keep(scores, score, progress)
            return True

    @contextmanager
    def _mean_with_start(self) -> Iterator[None]:
        """Give the model the mean of its weights and of those before the first step inside the block."""
        if self.weights is None:
            yield
            return
        model = self.job.learner.model
        last = {name: tensor.cpu().clone() for name, tensor in model.state_dict().items()}
        model.load_state_dict({name: _midpoint(start, last[name]) for name, start in self.weights.items()})
        yield
        model.load_state_dict(last)

    def _keep(self, scores: Mapping[str, float], score: float, progress: Progress) -> None:
        progress.best_score, progress.best_step, progress.best = score, progress.step, dict(scores)
        if self.accelerator.is_main_process:
            state = self.job.learner.model.state_dict()
            self.weights = {name: tensor.detach().cpu().clone() for name, tensor in state.items()}


def _midpoint(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return torch.lerp(first, second, 0.5) if first.is_floating_point() else second
