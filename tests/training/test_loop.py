"""The loop: the defaults are a plain training, every option has an effect, and interruptions change nothing."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate.utils import set_seed
from torch.nn import functional

from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.finetuning.learner import FineTuner
from biosqueeze.finetuning.options import FineTuningOptions
from biosqueeze.models.fast_training.attention import training_attention
from biosqueeze.models.fast_training.cheap_dropout import cheap_dropout
from biosqueeze.training.batches import BatchSchedule, loader
from biosqueeze.training.sources import Mixture
from biosqueeze.training.step import Stepper
from tests.training import runs
from tests.training.interruption import cut_and_resumed, interrupted

PLAIN = FineTuningOptions(steps=6, batch_size=4, lr=1e-3, precision="fp32", seed=3)


def textbook(options: FineTuningOptions) -> Iterator[float]:
    """Yield the losses of a training written from scratch: AdamW, linear warm-up and decay, clipping, dropout."""
    set_seed(options.seed)
    model = runs.model_of().train()
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=options.lr, fused=True)
    source = Mixture(runs.windows(), None, 0.0, 0)
    total, rising = options.steps, max(1, round(options.steps * options.warmup))
    with training_attention(model.base_model), cheap_dropout(model):  # whose own tests compare them with naive ones
        for step, batch in enumerate(loader(BatchSchedule(source, options.batch_size, options.seed, total), 0)):
            factor = (step + 1) / rising if step < rising else (total - step) / max(1, total - rising)
            for group in optimizer.param_groups:
                group["lr"] = options.lr * factor
            logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
            summed = functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum")
            loss = summed / (batch["labels"] >= 0).sum()
            yield loss.item()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip)
            optimizer.step()
            optimizer.zero_grad()


def test_the_defaults_equal_a_plain_loop_bit_for_bit(tmp_path: Path) -> None:
    assert runs.run(tmp_path, PLAIN).losses == list(textbook(PLAIN))


def test_logs_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "events").touch()
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 9.0}\n{"step": 2, "lo')
    ended = runs.run(tmp_path, PLAIN)
    assert [line["step"] for line in ended.log] == list(range(1, ended.summary.steps + 1))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "changes",
    [{"layer_decay": 0.5}, {"reinit_layers": 1}, {"class_weights": "balanced"}, {"smart": 1.0}],
    ids=lambda changes: next(iter(changes)),
)
def test_every_option_changes_the_training(changes: dict[str, float], tmp_path: Path) -> None:
    plain, changed = runs.run(tmp_path / "a", PLAIN), runs.run(tmp_path / "b", replace(PLAIN, **changes))
    assert not runs.same(plain, changed)


def test_gradient_checkpointing_changes_no_result(tmp_path: Path) -> None:
    calls = {True: 0, False: 0}
    done = {}
    for asked in calls:
        model = runs.model_of()

        def count(*_: object, asked: bool = asked) -> None:
            calls[asked] += 1

        model.base_model.encoder.layer[1].attention.self.query.register_forward_hook(count)
        options = replace(PLAIN, gradient_checkpointing=asked)
        done[asked] = runs.run(tmp_path / str(asked), options, model=model)
    assert calls == {True: 2 * PLAIN.steps, False: PLAIN.steps}
    assert done[True].losses == pytest.approx(done[False].losses, rel=1e-6)
    for name, tensor in done[True].weights.items():
        torch.testing.assert_close(tensor, done[False].weights[name], rtol=1e-4, atol=1e-5)


def test_checkpointing_a_model_that_cannot_is_refused(tmp_path: Path) -> None:
    model = runs.model_of()
    model.supports_gradient_checkpointing = False
    with pytest.raises(UsageError, match="--gradient-checkpointing"):
        runs.run(tmp_path, replace(PLAIN, gradient_checkpointing=True), model=model)


def scripted(*scores: float) -> runs.Evaluate:
    left = iter(scores)
    return lambda model: {"f1": next(left)}


def test_evaluation_every_n_steps_and_at_the_end(tmp_path: Path) -> None:
    done = runs.run(tmp_path, replace(PLAIN, eval_every=4), evaluate=scripted(0.1, 0.2))
    assert [line["step"] for line in done.log if "dev" in line] == [4, 6]


def test_patience_counts_scores_in_a_row_without_a_better_one(tmp_path: Path) -> None:
    evaluate = scripted(0.5, 0.4, 0.6, 0.6, 0.5, 0.9)
    done = runs.run(tmp_path, replace(PLAIN, eval_every=1, patience=2), evaluate=evaluate)
    assert [line["dev"]["f1"] for line in done.log if "dev" in line] == [0.5, 0.4, 0.6, 0.6, 0.5]
    assert (done.summary.steps, done.summary.best_step, done.summary.best) == (5, 3, {"f1": 0.6})


def test_without_patience_it_goes_to_the_end(tmp_path: Path) -> None:
    done = runs.run(tmp_path, replace(PLAIN, eval_every=1), evaluate=scripted(0.5, 0.4, 0.3, 0.2, 0.1, 0.0))
    assert (done.summary.steps, done.summary.best_step) == (6, 1)


@pytest.mark.parametrize("changes", [{"patience": 1}, {"eval_every": 2}])
def test_options_that_need_a_dev_split_are_refused(changes: dict[str, int], tmp_path: Path) -> None:
    flag = "--" + next(iter(changes)).replace("_", "-")
    with pytest.raises(UsageError, match=f"{flag} needs scores on a dev split"):
        runs.run(tmp_path, replace(PLAIN, **changes))


def by_step(directory: Path) -> runs.Evaluate:
    """Return scores that depend on the last step alone, so that a resumed run gets the same scores."""
    scores = {2: 0.3, 4: 0.5, 6: 0.4, 8: 0.5, 10: 0.9}
    return lambda model: {"f1": scores[runs.log_of(directory)[-1]["step"]], "other": 1.0}


EARLY = replace(PLAIN, steps=12, eval_every=2, patience=2, layer_decay=0.8, smart=0.5)


@pytest.mark.parametrize(("at", "workers"), [(1, 0), (2, 0), (3, 0), (4, 0), (2, 2)])
def test_interrupted_early_stopping_equals_uninterrupted(at: int, workers: int, tmp_path: Path) -> None:
    whole = runs.run(tmp_path / "whole", EARLY, evaluate=by_step(tmp_path / "whole"))
    options = replace(EARLY, workers=workers)
    assert [line["step"] for line in whole.log if "dev" in line] == [2, 4, 6, 8]  # early stop at step 8
    resumed = cut_and_resumed(tmp_path / "cut", options, by_step(tmp_path / "cut"), at)
    assert resumed.log == whole.log
    assert runs.same(resumed, whole)
    for summary in (whole.summary, resumed.summary):
        assert (summary.steps, summary.best_step, summary.best) == (8, 4, {"f1": 0.5, "other": 1.0})
        assert summary.tokens == sum(line.get("tokens", 0) for line in whole.log)


@pytest.mark.parametrize(
    "changes",
    [
        {"patience": 3},
        {"eval_every": None},
        {"layer_decay": 1.0},
        {"smart": 0.0},
        {"class_weights": "balanced"},
        {"reinit_layers": 2},
        {"gradient_checkpointing": True},
        {"train_size": 10},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_resuming_with_other_options_is_refused(changes: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        runs.run(tmp_path, EARLY, evaluate=interrupted(scripted(1.0), 1))
    with pytest.raises(SqueezeError, match=next(iter(changes))):
        runs.run(tmp_path, replace(EARLY, resume=True, **changes), evaluate=scripted())


@pytest.mark.parametrize(("batch", "accumulate"), [(4, 2), (3, 3)])
def test_accumulated_ragged_batches_are_one_large_batch(
    batch: int, accumulate: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = runs.windows(8)  # batches of three: the last one is smaller
    one = FineTuningOptions(steps=1, batch_size=8, lr=1e-3, precision="fp32", warmup=1)
    parts = replace(one, batch_size=batch, accumulate=accumulate)

    def trained(name: str, options: FineTuningOptions) -> tuple[list[float], torch.Tensor]:
        """Return the losses, and all gradients in one vector."""
        seen = []

        def update(stepper: Stepper) -> None:
            seen.extend(p.grad.flatten() for p in stepper.unwrapped.parameters() if p.grad is not None)

        monkeypatch.setattr(Stepper, "update", update)
        done = runs.run(tmp_path / name, options, features=features, model=runs.model_of(dropout=0.0))
        return done.losses, torch.cat(seen)

    (loss, whole), (same_loss, split) = trained("whole", one), trained("split", parts)
    assert same_loss == pytest.approx(loss, rel=1e-6)
    assert farthest(whole, split) < 1e-5
    monkeypatch.setattr(FineTuner, "counts", lambda self, batch: {"labels": 1})
    assert farthest(whole, trained("unweighted", parts)[1]) > 1e-2  # without the weights the gradients differ


def farthest(first: torch.Tensor, second: torch.Tensor) -> float:
    """Return the largest difference relative to the largest value."""
    return float((first - second).abs().max() / first.abs().max())


@pytest.mark.parametrize(
    "changes", [{"layer_decay": 0.0}, {"layer_decay": 1.1}, {"smart": -1.0}, {"patience": 0}, {"train_size": 0}]
)
def test_options_out_of_range_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="--" + next(iter(changes)).replace("_", "-")):
        FineTuningOptions(**changes)
