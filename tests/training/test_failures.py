"""A failing training ends with an advice, and with a saved state that can be resumed."""

import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from biosqueeze.errors import SqueezeError
from biosqueeze.training import failures
from biosqueeze.training.autobatch import copies_of_weights
from biosqueeze.training.failures import Anomaly, LossMonitor
from biosqueeze.training.job import LongPhase, TrainingJob, TrainingSummary
from biosqueeze.training.learner import Learner
from biosqueeze.training.loop import train
from biosqueeze.training.options import TrainingOptions
from biosqueeze.training.sources import Mixture
from biosqueeze.training.step import StepResult
from tests.training import runs

PLAIN = TrainingOptions(steps=12, batch_size=4, lr=1e-2, precision="fp32", seed=1)


@dataclass
class Script:
    """Failures by the number of the forward pass in training, from 1."""

    events: dict[int, Any] = field(default_factory=dict)
    largest: int | None = None  # larger batches raise an out-of-memory error
    passes: int = 0
    shapes: list[tuple[int, ...]] = field(default_factory=list)


class Small(nn.Module):
    """A minimal model."""

    supports_gradient_checkpointing = False

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 8))

    @property
    def base_model(self) -> nn.Module:
        return self


class Fragile(Learner):
    """A learner with one weight per token id that fails as the script defines."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.model, self.script, self.weights = Small(), script, {"easy": 1.0, "hard": 0.5}

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, int]:
        return dict.fromkeys(self.weights, int(batch["attention_mask"].sum()))

    def forward(self, **batch: Tensor) -> dict[str, Tensor]:
        script = self.script
        script.passes += 1
        script.shapes.append(tuple(batch["input_ids"].shape))
        if script.largest is not None and len(batch["input_ids"]) > script.largest:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        event = script.events.get(script.passes)
        if isinstance(event, Exception):
            raise event
        real = batch["attention_mask"].bool()
        noise = torch.rand(int(real.sum()))  # like dropout, draws from the generator
        error = (self.model.weight[batch["input_ids"][real] % 8] + 0.1 * noise - 0.5).square().mean()
        if event == "gradient":
            error = error + (0 * self.model.weight.sum()).abs().sqrt()  # finite value, non-finite gradient
        return {"easy": error, "hard": error * event if isinstance(event, float) else error + 0.1}


def run(directory: Path, options: TrainingOptions, script: Script) -> tuple[TrainingSummary, list[float]]:
    directory.mkdir(exist_ok=True)
    source = Mixture(runs.windows(24), None, 0.0, 0)
    learner = Fragile(script)
    summary = train(TrainingJob("test", learner, source, options, directory))
    return summary, [*(line["loss"] for line in runs.log_of(directory)), *learner.model.weight.tolist()]


def states(directory: Path) -> list[int]:
    return [int(path.name.partition("-")[2]) for path in sorted(directory.glob("state-*"))]


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (float("nan"), "the loss is NaN or infinite at step 8 (hard)"),
        (float("inf"), "the loss is NaN or infinite at step 8 (hard)"),
        ("gradient", "the gradient is NaN or infinite at step 8 (easy, hard: still finite)"),
    ],
)
def test_non_finite_values_stop_with_the_last_good_state(event: Any, says: str, tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", PLAIN, Script())[1]
    with pytest.raises(SqueezeError) as caught:
        run(tmp_path / "cut", PLAIN, Script({8: event}))
    assert says in str(caught.value)
    assert "the state at step 7 is kept: go on from it with --resume and a lower --lr than 0.01" in str(caught.value)
    assert states(tmp_path / "cut") == [7]
    # The saved state equals that of a run without a failure, random states included.
    assert run(tmp_path / "cut", replace(PLAIN, resume=True), Script())[1] == whole


def test_an_earlier_saved_state_is_kept(tmp_path: Path) -> None:
    with pytest.raises(SqueezeError, match="the state at step 5 is kept"):
        run(tmp_path, replace(PLAIN, save_every=5), Script({9: float("nan")}))
    assert states(tmp_path) == [5]


def test_non_finite_weights_are_not_saved(tmp_path: Path) -> None:
    with pytest.raises(SqueezeError, match="at step 2") as caught:
        run(tmp_path, replace(PLAIN, lr=1e30, warmup=0.0), Script())
    assert "; try a lower --lr than 1e+30, a longer --warmup, or a lower --clip" in str(caught.value)
    assert "--resume" not in str(caught.value)
    assert not states(tmp_path)


def test_resume_with_another_rate_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(SqueezeError):
        run(tmp_path, PLAIN, Script({8: float("nan")}))
    with pytest.raises(SqueezeError, match="other values of seed"):
        run(tmp_path, replace(PLAIN, resume=True, seed=2), Script())
    summary, _ = run(tmp_path, replace(PLAIN, resume=True, lr=1e-3, warmup=0.5), Script())
    assert summary.steps == 12
    rates = [line["lr"] for line in runs.log_of(tmp_path)]
    assert rates[6] == pytest.approx(1e-2 * 6 / 11)
    assert rates[7:] == pytest.approx([1e-3 * (12 - step) / 6 for step in range(7, 12)])


def test_resume_without_a_failure_needs_the_same_options(tmp_path: Path) -> None:
    with pytest.raises(SqueezeError):
        run(tmp_path, replace(PLAIN, save_every=3), Script({8: float("nan")}))
    (state,) = tmp_path.glob("state-*")
    progress = json.loads((state / "progress.json").read_text())
    assert progress["failed"]
    (state / "progress.json").write_text(json.dumps(progress | {"failed": False}))
    with pytest.raises(SqueezeError, match="other values of lr"):
        run(tmp_path, replace(PLAIN, save_every=3, resume=True, lr=1e-3), Script())


def step_result(loss: float, **terms: float) -> StepResult:
    return StepResult({"loss": loss, **terms}, 1)


def test_an_explosion_names_the_loss_term() -> None:
    monitor = LossMonitor({})
    for _ in range(failures.WINDOW):
        assert monitor.anomaly(step_result(3.0, kl=1.0, mlm=2.0)) is None
        monitor.update({"loss": 3.0, "kl": 1.0, "mlm": 2.0})
    assert monitor.anomaly(step_result(299.0, kl=150.0, mlm=149.0)) is None
    found = monitor.anomaly(step_result(402.0, kl=400.0, mlm=2.0))
    assert found == Anomaly("the loss explodes", "kl is 400, after a mean of 1")


def test_an_explosion_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(SqueezeError, match=r"the loss explodes at step 55 \(hard is .*the state at step 54 is kept"):
        run(tmp_path, replace(PLAIN, steps=80), Script({55: 1e6}))


@given(
    st.floats(0.01, 100.0),
    st.lists(st.floats(0.0, 1.0), min_size=80, max_size=120),
    st.floats(0.9, 0.999),
)
@settings(max_examples=60, deadline=None)
def test_outliers_below_the_first_loss_are_no_anomaly(start: float, noise: list[float], rate: float) -> None:
    monitor = LossMonitor({})
    for step, share in enumerate(noise):
        learned = start * rate**step
        # Every ninth batch has the loss of the first batches, however low the others are.
        loss = start if step % 9 == 0 else learned * (0.5 + share)
        assert monitor.anomaly(step_result(loss, labels=loss)) is None
        monitor.update({"loss": loss, "labels": loss})


def test_a_resumed_run_has_the_loss_means(tmp_path: Path) -> None:
    options = replace(PLAIN, steps=80, save_every=52)
    with pytest.raises(SqueezeError):
        run(tmp_path, options, Script({60: float("nan")}))
    with pytest.raises(SqueezeError, match="the loss explodes at step 53"):
        run(tmp_path, replace(options, resume=True), Script({1: 1e6}))


# ------------------------------------------------------------------ memory

CPU_OUT = RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to")


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory."), CPU_OUT, MemoryError()])
def test_out_of_memory_names_size_length_and_a_way_out(error: Exception, tmp_path: Path) -> None:
    script = Script({6: error})
    with pytest.raises(SqueezeError) as caught:
        run(tmp_path, replace(PLAIN, accumulate=2), script)
    rows, length = max(script.shapes[4:6], key=lambda shape: shape[0] * shape[1] ** 2)
    said = str(caught.value)
    assert f"out of memory at step 3 with {rows} sequences of {length} tokens" in said
    assert "--batch-size 2 --accumulate 4 (the same training in smaller parts), or --auto-batch" in said
    assert "--gradient-checkpointing" not in said  # which this model does not support
    assert "\n" not in said
    assert states(tmp_path) == [2]


def test_resume_with_a_smaller_batch_after_out_of_memory(tmp_path: Path) -> None:
    with pytest.raises(SqueezeError, match="with --resume it goes on from step 5"):
        run(tmp_path, PLAIN, Script({6: CPU_OUT}))
    summary, _ = run(tmp_path, replace(PLAIN, resume=True, batch_size=2, accumulate=2), Script())
    assert summary.steps == 12
    assert [line["step"] for line in runs.log_of(tmp_path)] == list(range(1, 13))


def test_a_smaller_batch_may_have_fewer_steps(tmp_path: Path) -> None:
    options = replace(PLAIN, steps=None, epochs=3, batch_size=5)  # 15 steps, and 14 of five parts each
    with pytest.raises(SqueezeError, match="--batch-size 1 --accumulate 5"):
        run(tmp_path, options, Script({6: CPU_OUT}))
    with pytest.raises(SqueezeError, match="other values of steps"):
        run(tmp_path, replace(options, resume=True, epochs=2), Script())
    summary, _ = run(tmp_path, replace(options, resume=True, batch_size=1, accumulate=5), Script())
    assert summary.steps == 14


def test_auto_batch_cuts_what_ran_out_of_memory(tmp_path: Path) -> None:
    options = replace(PLAIN, batch_size=8)
    with pytest.raises(SqueezeError, match="with --resume it goes on from step 5"):
        run(tmp_path, options, Script({6: CPU_OUT}))
    summary, _ = run(tmp_path, replace(options, resume=True, auto_batch=True), Script(largest=4))
    assert (summary.steps, summary.chosen) == (12, {"batch_size": 4, "accumulate": 2})


def test_auto_batch_begins_with_the_advised_size(tmp_path: Path) -> None:
    options = replace(PLAIN, batch_size=8)
    with pytest.raises(SqueezeError, match="--batch-size 4 --accumulate 2"):
        run(tmp_path, options, Script({6: CPU_OUT}))
    advised = replace(options, resume=True, auto_batch=True, batch_size=4, accumulate=2)
    assert run(tmp_path, advised, Script())[0].chosen == {"batch_size": 4, "accumulate": 2}


@pytest.mark.parametrize(("schedule", "processes", "copies"), [("linear", 1, 2), ("linear", 2, 3), ("plateau", 1, 3)])
def test_auto_batch_counts_copies_of_the_weights(schedule: Any, processes: int, copies: int) -> None:
    assert copies_of_weights(replace(PLAIN, schedule=schedule), processes) == copies


class Killed(Mixture):
    """Training data that end the process that reads them."""

    def features(self, item: int, rng: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


class Lost(Mixture):
    """Training data that are no longer there."""

    def features(self, item: int, rng: Any) -> Any:
        raise SqueezeError("text: cannot be read; restore it") from OSError("gone")


@pytest.mark.parametrize(
    ("kind", "says"),
    [(Lost, "^text: cannot be read; restore it$"), (Killed, "a process of --workers was killed, .*, or 0$")],
)
def test_failed_workers_are_explained(kind: type[Mixture], says: str, tmp_path: Path) -> None:
    source = kind(runs.windows(24), None, 0.0, 0)
    job = TrainingJob("test", Fragile(Script()), source, replace(PLAIN, workers=2), tmp_path)
    with pytest.raises(SqueezeError, match=says):
        train(job)


def test_other_errors_are_not_changed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="shapes do not match"):
        run(tmp_path, PLAIN, Script({6: RuntimeError("shapes do not match")}))


def advice(options: TrainingOptions, long: int = 0, step: int | None = 7, *, supported: bool = True) -> str:
    """Return the advice for a training, with its last part in batches of `long` if that is not 0."""
    learner, source = Fragile(Script()), Mixture(runs.windows(24), None, 0.0, 0)
    learner.model.supports_gradient_checkpointing = supported
    phase = LongPhase(source, long, 0.1) if long else None
    return failures.memory_advice(TrainingJob("test", learner, source, options, Path(), long=phase), step)


def test_a_single_sequence_gets_no_smaller() -> None:
    one = replace(PLAIN, batch_size=1)
    assert advice(one) == "--gradient-checkpointing (with --resume it goes on from step 7)"
    # A state cannot be resumed with sequences of another length.
    for shorter in (advice(replace(one, gradient_checkpointing=True)), advice(one, supported=False)):
        assert shorter == "a smaller --max-length, and --force to start over with it"
    assert advice(one, long=1, step=None, supported=False) == "a smaller --long-length or --max-length"


@pytest.mark.parametrize(
    ("long", "parts"),
    [
        (6, "--batch-size 6 --accumulate 2 --long-batch-size 3"),
        (9, "--batch-size 4 --accumulate 3 --long-batch-size 3"),
    ],
)
def test_batches_of_both_lengths_are_divided_alike(long: int, parts: str) -> None:
    options = replace(PLAIN, batch_size=12)
    said = advice(options, long, supported=False)
    assert said == f"{parts} (the same training in smaller parts) (with --resume it goes on from step 7)"


@given(st.integers(2, 300), st.integers(1, 9))
def test_a_smaller_batch_keeps_the_global_one(size: int, accumulate: int) -> None:
    less, more = failures.next_smaller_batch(size, accumulate)
    assert less < size and less * more == size * accumulate
    assert size % 2 or less == size // 2


@pytest.mark.parametrize(("asked", "largest", "found"), [(8, 3, (2, 4)), (8, 8, (8, 1)), (6, 2, (1, 6))])
def test_auto_batch_equals_the_size_that_fits(asked: int, largest: int, found: tuple[int, int], tmp_path: Path) -> None:
    options = replace(PLAIN, batch_size=asked, auto_batch=True, save_every=5)
    script = Script(largest=largest)
    summary, tried = run(tmp_path / "tried", options, script)
    plain = replace(PLAIN, batch_size=found[0], accumulate=found[1], save_every=5)
    assert tried == run(tmp_path / "asked", plain, Script())[1]
    assert (summary.as_metrics()["batch_size"], summary.as_metrics()["accumulate"]) == found
    longest = max(len(window["input_ids"]) for window in runs.windows(24))
    assert script.shapes[0] == (asked, longest)


def test_auto_batch_resumes_with_the_size_it_found(tmp_path: Path) -> None:
    options = replace(PLAIN, batch_size=8, auto_batch=True, save_every=5)
    whole = run(tmp_path / "whole", options, Script(largest=4))[1]
    tries = 2
    with pytest.raises(SqueezeError):
        run(tmp_path / "cut", options, Script({tries + 2 * 7: float("nan")}, largest=4))
    roomy = Script()  # with more memory, the resumed run keeps its batch size
    assert run(tmp_path / "cut", replace(options, resume=True), roomy)[1] == whole
    assert max(rows for rows, _ in roomy.shapes) == 4


def test_auto_batch_fails_when_nothing_fits(tmp_path: Path) -> None:
    with pytest.raises(SqueezeError, match="not even one sequence of 128 tokens fits"):
        run(tmp_path, replace(PLAIN, auto_batch=True), Script(largest=0))
