"""Repeat a cut and the training after it: `steps_of = N` in the table of a shrink step."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.cli.recipe_file import RecipeStep
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.models.cuts.gradual import MOST_STEPS
from biosqueeze.options import Argument

_KEY = "steps_of"
_TRAININGS = ("distill", "finetune")
_VARIABLE = f"BIOSQUEEZE_SHRINK_{_KEY.upper()}"


def with_repeated_cuts(path: Path, steps: list[RecipeStep]) -> list[RecipeStep]:
    """Replace each gradual cut and its training by N of both: `cut-1`, `student-1`, ..., and at last `cut`, `student`.

    A list of checkpoints that has the training, such as that of a later bench, gets all N of them.

    Raises:
        UsageError: a gradual cut has no training after it, or two steps then have one name.
    """
    repeated = _repeated(path, steps)
    names = [step.name for step in repeated]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise UsageError(f"{path}: [{twice}] is also the name of a step of a gradual cut ({_KEY}); give it another")
    return repeated


def check_first_cut(options: Any, fine_tuned: Mapping[str, str]) -> None:
    """Check a gradual cut of a fine-tuned model before that is trained: what it starts from has the same sizes.

    Args:
        options: of the shrink step.
        fine_tuned: outputs of earlier steps, and the checkpoints that they start from.

    Raises:
        UsageError: it cannot be cut to these sizes, or not in so many steps.
    """
    start = fine_tuned.get(options.checkpoint)
    if start is None or options.steps_of is None:
        return
    from biosqueeze.models.cuts.gradual import check_steps, next_layers
    from biosqueeze.models.cuts.width import choose_widths
    from biosqueeze.models.loading.load import load_config

    try:
        config = load_config(open_checkpoint(start, weights=False))
    except SqueezeError:  # the fine-tuning tells, if it is not done yet
        return
    next_layers(config, options.layers, options.steps_of)
    target = choose_widths(config, options.ffn, options.heads, options.hidden)
    check_steps(config, options.layers, target, options.steps_of)


def _repeated(path: Path, steps: list[RecipeStep]) -> list[RecipeStep]:
    for number, step in enumerate(steps):
        if (count := _count(step)) is None:
            continue
        before, later = steps[:number], steps[number + 1 :]
        if not later or later[0].stage not in _TRAININGS:
            raise UsageError(
                f"{path}: [{step.name}] cuts in {count} steps ({_KEY}), so a training must follow it; add a table with "
                f'stage = "distill", or leave {_KEY} out'
            )
        training, pairs = later[0], list(_pairs(step, later[0], count))
        after = [_with_all(each, training.name, pairs) for each in later[1:]]
        return [*before, *pairs, *_repeated(path, after)]
    return steps


def _count(step: RecipeStep) -> int | None:
    """Return the number of cuts of a gradual shrink step; None for other steps, and where the number is not valid."""
    if step.stage != "shrink":
        return None
    given = step.overrides.get(_KEY, [os.environ.get(_VARIABLE) or step.table.get(_KEY)])[-1]
    try:
        count = int(given) if isinstance(given, str | float) else given
    except (ValueError, OverflowError):
        return None
    return count if isinstance(count, int) and 2 <= count <= MOST_STEPS else None


def _pairs(cut: RecipeStep, training: RecipeStep, count: int) -> Iterator[RecipeStep]:
    """Yield the cuts and their trainings; each cut but the first reads what was trained last."""
    for part in range(1, count + 1):
        suffix = f"-{part}" if part < count else ""
        names = {f"@{name}": f"@{name}{suffix}" for name in (cut.name, training.name)}
        for step in (cut, training):
            table = {key: _renamed(value, names) for key, value in step.table.items()}
            overrides = {key: _renamed(values, names) for key, values in step.overrides.items()}
            if step is cut:
                overrides[_KEY] = [str(count - part + 1)]
                if part > 1:
                    table.pop("checkpoint", None)
                    overrides.pop("checkpoint", None)
            if suffix and "out" in table | overrides:
                raise UsageError(f"[{step.name}] is repeated, so it cannot have one out; leave that out")
            yield replace(step, name=f"{step.name}{suffix}", table=table, overrides=overrides)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value


def _with_all(step: RecipeStep, training: str, pairs: list[RecipeStep]) -> RecipeStep:
    """Return a later step whose list of checkpoints has every training."""
    everything = [f"@{each.name}" for each in pairs[1::2]]
    lists = {name for name, field in step.fields.items() if field.marker(Argument) and field.repeated}

    def repeated(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return [each for item in value for each in (everything if item == f"@{training}" else [item])]

    def expanded(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: repeated(value) if name in lists else value for name, value in values.items()}

    return replace(step, table=expanded(step.table), overrides=expanded(step.overrides))
