"""Training until dev scores stop rising: against a version written from scratch, interrupted, and by its limits."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate.utils import set_seed
from torch.nn import functional

from biosqueeze.errors import UsageError
from biosqueeze.finetuning.options import FineTuningOptions
from biosqueeze.models.fast_training.attention import training_attention
from biosqueeze.models.fast_training.cheap_dropout import cheap_dropout
from biosqueeze.training.batches import BatchSchedule, loader
from biosqueeze.training.optimiser import schedules
from biosqueeze.training.optimiser.schedules import evaluations_of_plateau
from biosqueeze.training.sources import Mixture
from tests.training import runs
from tests.training.interruption import cut_and_resumed

PLATEAU = FineTuningOptions(
    schedule="plateau", steps=40, eval_every=2, patience=2, warmup=0.1, batch_size=4, lr=1e-3, precision="fp32", seed=3
)
# The best at step 4 is not exceeded at 6 and 8, which ends the training. If step 10 is the last, the rate falls from 8.
LIMITED = replace(PLATEAU, steps=10, patience=3, warmup=0.4)
SCORES = {2: 0.3, 4: 0.5, 6: 0.4, 8: 0.5, 10: 0.9}


def by_step(directory: Path) -> runs.Evaluate:
    """Return scores that depend on the last step alone, so that a resumed run gets the same scores."""
    return lambda model: {"f1": SCORES[runs.log_of(directory)[-1]["step"]]}


def textbook(options: FineTuningOptions, factors: Iterable[float]) -> dict[str, torch.Tensor]:
    """Train with AdamW and the given shares of the peak rate; return the average of the weights in float64."""
    set_seed(options.seed)
    model = runs.model_of().train()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.01},
        {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=options.lr, fused=True)
    factors = list(factors)
    batches = loader(
        BatchSchedule(Mixture(runs.windows(), None, 0.0, 0), options.batch_size, options.seed, len(factors)), 0
    )
    average: dict[str, torch.Tensor] = {}
    with training_attention(model.base_model), cheap_dropout(model):  # whose own tests compare them with naive ones
        for step, (factor, batch) in enumerate(zip(factors, batches, strict=True), 1):
            for group in optimizer.param_groups:
                group["lr"] = options.lr * factor
            logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
            summed = functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum")
            (summed / (batch["labels"] >= 0).sum()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip)
            optimizer.step()
            optimizer.zero_grad()
            kept = (1 - 1 / step) ** 10
            for name, weight in model.named_parameters():
                average[name] = kept * average.get(name, torch.zeros(())) + (1 - kept) * weight.detach().double()
    return average


@pytest.mark.parametrize(
    ("options", "falling", "best_step", "falls_from"),
    [(PLATEAU, [], 4, None), (LIMITED, [1.0, 0.5], 10, 8)],
    ids=["by its scores", "by its steps"],
)
def test_equals_a_training_written_from_scratch(
    options: FineTuningOptions, falling: list[float], best_step: int, falls_from: int | None, tmp_path: Path
) -> None:
    done = runs.run(tmp_path, options, evaluate=by_step(tmp_path))
    factors = [0.25, 0.5, 0.75, *[1.0] * 5, *falling]
    expected = textbook(options, factors[:best_step])
    rates = [line["lr"] / options.lr for line in done.log if "lr" in line]
    assert rates == pytest.approx(factors)
    assert (done.summary.steps, done.summary.best_step) == (len(factors), best_step)
    assert done.summary.falls_from == falls_from
    for name, weight in done.model.named_parameters():
        torch.testing.assert_close(weight.double(), expected[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "at"), [(PLATEAU, 1), (PLATEAU, 4), (LIMITED, 4), (LIMITED, 5)], ids=["rise", "stop", "fall", "end"]
)
def test_interrupted_equals_uninterrupted(options: FineTuningOptions, at: int, tmp_path: Path) -> None:
    """Interrupted in the rise, at the end by scores, where the rate begins to fall, and at the last step."""
    whole = runs.run(tmp_path / "whole", options, evaluate=by_step(tmp_path / "whole"))
    resumed = cut_and_resumed(tmp_path / "cut", options, by_step(tmp_path / "cut"), at)
    assert resumed.log == whole.log
    assert runs.same(resumed, whole)
    assert resumed.summary.best == whole.summary.best
    assert resumed.summary.best_step == whole.summary.best_step


def rising_scores() -> runs.Evaluate:
    scores = iter(range(1, 100))
    return lambda model: {"f1": next(scores) / 100}


@pytest.mark.parametrize(
    ("changes", "falls_from", "steps"),
    [
        ({"steps": 20}, 16, 20),
        ({"steps": None, "epochs": 2.0}, 10, 12),  # six batches in an epoch
        ({"steps": None, "hours": 1e-9}, 1, 2),
    ],
    ids=["steps", "epochs", "hours"],
)
def test_ends_at_its_limits(changes: dict[str, object], falls_from: int, steps: int, tmp_path: Path) -> None:
    done = runs.run(tmp_path, replace(PLATEAU, **changes), evaluate=rising_scores())
    assert (done.summary.falls_from, done.summary.steps) == (falls_from, steps)
    assert done.log[-1]["dev"]["f1"] == done.summary.best["f1"]  # the last weights are scored too


def without_dev(tmp_path: Path) -> None:
    runs.run(tmp_path, PLATEAU)


def with_another_schedule(tmp_path: Path) -> None:
    runs.run(tmp_path, replace(PLATEAU, schedule="linear", hours=1.0), evaluate=rising_scores())


@pytest.mark.parametrize(
    ("refused", "says"),
    [(without_dev, "--schedule plateau needs scores on a dev split"), (with_another_schedule, "--hours needs")],
)
def test_refused(refused: Callable[[Path], None], says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=says):
        refused(tmp_path)


def test_length_for_people() -> None:
    assert PLATEAU.length == "until dev scores stop rising, at most 40 steps"
    assert replace(PLATEAU, steps=None).length == "until dev scores stop rising, at most 6,000 steps"
    both = replace(PLATEAU, steps=10, hours=1.5)
    assert both.length == "until dev scores stop rising, at most 1.5 hours or 10 steps"
    assert replace(PLATEAU, steps=None, hours=1.5).length == "until dev scores stop rising, at most 1.5 hours"
    assert replace(PLATEAU, schedule="linear", steps=None).length == "3 epochs"


@pytest.mark.parametrize(
    ("per_epoch", "dev_sequences", "tokens", "given", "expected"),
    [
        (2, 16, 1_000, {}, (20, 30, 30, 1)),
        (2, 2000, 1_000, {}, (63, 10, 10, 1)),
        (2, 2000, 1_000, {"batch_size": 4, "accumulate": 8}, (63, 10, 10, 1)),
        (35, 16, 1_000, {}, (200, 6, 3, 1)),
        (35, 16, 2_500, {}, (160, 6, 3, 1)),
        (35, 16, 9_000, {}, (100, 6, 3, 0.99)),
        (2, 16, 9_000, {}, (20, 15, 15, 0.99)),
        (2, 16, 9_000, {"eval_every": 500}, (500, 6, 3, 0.99)),
        (2, 16, 1_000, {"eval_every": 50, "patience": 2}, (50, 2, 2, 1)),
    ],
)
def test_evaluations_by_default(
    per_epoch: int, dev_sequences: int, tokens: float, given: dict[str, int], expected: tuple[int, int, int, float]
) -> None:
    """The steps between two, how many are enough before and after the goal is reached, and its share that is enough."""
    options = FineTuningOptions(schedule="plateau", **{"batch_size": 32, **given})
    made = evaluations_of_plateau(options, per_epoch, dev_sequences=dev_sequences, tokens=tokens)
    assert (made.every, made.patience, made.patience_at_goal, made.goal_share) == expected


@pytest.mark.parametrize(("tokens", "best", "patience"), [(1_000, 0.995, 6), (1_000, 1.0, 3), (9_000, 0.995, 3)])
def test_long_sequences_need_a_part_of_the_goal(tokens: float, best: float, patience: int) -> None:
    made = evaluations_of_plateau(FineTuningOptions(schedule="plateau"), 1000, dev_sequences=9, tokens=tokens)
    assert (made.patience_at(best, 1.0), made.patience_at(best, None)) == (patience, 6)


def test_few_examples_are_evaluated_often(tmp_path: Path) -> None:
    options = replace(PLATEAU, eval_every=None, patience=1, steps=500, batch_size=12)
    done = runs.run(tmp_path, options, evaluate=lambda model: {"f1": 1.0})  # 2 steps an epoch
    assert [line["step"] for line in done.log if "dev" in line] == [20, 40]


@pytest.mark.parametrize(("goal", "steps"), [(None, 14), (0.8, 14), (0.7, 8), (0.5, 8)])
def test_less_patience_at_the_goal(
    goal: float | None, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best score is that of the first evaluation, at step 2: six more evaluations, or three at the goal."""
    monkeypatch.setattr(schedules, "PLATEAU_EVAL_EVERY", 2)
    options = replace(PLATEAU, patience=None)
    assert runs.run(tmp_path, options, evaluate=lambda model: {"f1": 0.7}, goal=goal).summary.steps == steps
