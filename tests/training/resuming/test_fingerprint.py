"""A training can only be resumed with the options that it was started with, except the incidental ones."""

from dataclasses import fields

import pytest

from biosqueeze.options import Hidden, option_fields
from biosqueeze.stages import distill, finetune
from biosqueeze.training.options import TrainingOptions
from biosqueeze.training.resuming.fingerprint import INCIDENTAL, differing, fingerprint_of


@pytest.mark.parametrize(
    "options", [finetune.Options(checkpoint="a", data="b"), distill.Options(teacher=("a",), student="tiny")]
)
def test_all_options_but_the_incidental_are_compared(options: TrainingOptions) -> None:
    names = {field.name for field in option_fields(type(options)) if field.marker(Hidden) is None}
    compared = fingerprint_of(options, identity={}, uncompared=("checkpoint",))
    assert set(compared) == names - INCIDENTAL - {"epochs", "checkpoint"}
    assert {field.name for field in fields(TrainingOptions)} >= INCIDENTAL


def test_identity_replaces_the_option_of_its_name() -> None:
    assert fingerprint_of(TrainingOptions(steps=3), identity={"steps": 4, "data": "hash"})["steps"] == 4


@pytest.mark.parametrize(
    ("changes", "failed", "names"),
    [
        ({"lr": 2.0, "seed": 1}, False, ["lr", "seed"]),
        ({"lr": 2.0, "seed": 1}, True, ["seed"]),
        ({"steps": 9, "steps_per_epoch": 3}, False, ["steps"]),
        ({"steps_per_epoch": 3}, False, ["steps_per_epoch"]),
        ({"steps": 9}, True, ["steps"]),
        ({"batch_size": 1, "accumulate": 16, "steps": 9, "steps_per_epoch": 3, "data or corpus": "b"}, True, []),
        ({"precision": "fp32", "steps": 9, "steps_per_epoch": 3, "data or corpus": "b"}, True, []),
        ({"long_batch_size": 1}, True, []),
        ({"long_batch_size": 1}, False, ["long_batch_size"]),
        ({"lr": 2.0, "data or corpus": "b"}, True, ["data or corpus"]),
    ],
)
def test_a_failed_run_may_change_some_options(changes: dict[str, object], failed: bool, names: list[str]) -> None:
    identity = {"steps": 8, "steps_per_epoch": 2, "data or corpus": "a"}
    saved = fingerprint_of(TrainingOptions(), identity=identity)
    assert differing(saved, saved | changes, failed=failed) == names
