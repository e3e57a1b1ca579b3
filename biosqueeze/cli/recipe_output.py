"""Decide what a step of a recipe may replace, resume and take over: its own outputs, and never those of others."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from biosqueeze import manifest
from biosqueeze.cli.recipe_file import RecipeStep
from biosqueeze.errors import SqueezeError
from biosqueeze.files import read_json
from biosqueeze.files.saved_states import PROGRESS_FILE, complete_states, has_state
from biosqueeze.options import StageOptions, WritingOptions
from biosqueeze.options.rules import is_set
from biosqueeze.output import discard, partial_of
from biosqueeze.training.resuming.finished import differences, finished


def with_output(
    step: RecipeStep, options: StageOptions, directory: Path, entry: Mapping[str, Any], key: str
) -> StageOptions:
    """Return the options with which a step goes on where it was ended, or starts over.

    Args:
        step: of the recipe.
        options: of the step.
        directory: of the run; what the step wrote in it before is replaced.
        entry: of the step in the state file. `begun` is the key of the step that was begun last, and `replaces` marks
            the output that was there before.
        key: of the step now.

    Raises:
        SqueezeError: something that the step has not written is in its place.
    """
    if not isinstance(options, WritingOptions):
        return _with_other_output(step, options, directory, entry)
    out, force = Path(str(options.out)), may_replace(step, options, directory, entry)
    is_begun = entry.get("begun") == key
    is_written = is_begun and mark(out) not in (None, entry.get("replaces"))
    if "resume" in step.fields and not _is_search(step, options):
        partial = partial_of(out)
        may_go_on = is_begun or (_has_failed(partial) and not options.force)
        if is_written or (may_go_on and _holds_training(partial)):
            return replace(options, resume="auto", force=force)  # type: ignore[call-arg]
        _make_room(step, partial, force=options.force)
    elif is_written and (written := finished(out)) and not differences(written, step.stage, options):
        force = True  # the step ended before it was recorded; it is repeated, and writes the same
    if out.exists() and not force:
        raise _existing(step, out)
    return replace(options, force=force)


def may_replace(step: RecipeStep, options: WritingOptions, directory: Path, entry: Mapping[str, Any]) -> bool:
    """Return whether a step replaces a checkpoint at its output: with force, or one of its own in the run's directory.

    Its own is what the state file has, or, where that was deleted, what its command wrote.
    """
    out = Path(str(options.out))
    if options.force or out.parent != directory:
        return options.force
    return bool(entry) or not (out.exists() or partial_of(out).exists()) or _stage_of(out) == step.stage


def _is_search(step: RecipeStep, options: WritingOptions) -> bool:
    """Return whether a fine-tuning consists of several runs: it continues by itself, and takes no --resume."""
    return any(is_set(options, name) for name in ("grid", "seeds", "folds") if name in step.fields)


def _stage_of(directory: Path) -> str | None:
    """Return the command that wrote a checkpoint; None for any other directory."""
    try:
        written = manifest.read_manifest(directory)
    except SqueezeError:  # damaged
        return None
    return written.history[-1].stage if written else None


def _with_other_output(
    step: RecipeStep, options: StageOptions, directory: Path, entry: Mapping[str, Any]
) -> StageOptions:
    """Let a step replace or continue what is no checkpoint, such as predictions, in the run's directory."""
    replacing = with_replaced_output(step, options, directory, entry)
    is_own = replacing is not options
    if not is_own or "resume" not in step.fields:
        return replacing
    return replace(replacing, resume=step.module.can_continue(replacing))  # type: ignore[call-arg]


def with_replaced_output(
    step: RecipeStep, options: StageOptions, directory: Path, entry: Mapping[str, Any]
) -> StageOptions:
    """Let a step replace what is no checkpoint and its own in the run's directory: what the state file has.

    The plan of a checkpoint needs no such option.

    Raises:
        SqueezeError: something else exists at the output.
    """
    if isinstance(options, WritingOptions) or not {"out", "force"} <= step.fields.keys():
        return options
    out = Path(str(vars(options)["out"]))
    exists = out.is_file() or out.is_dir()
    is_own = bool(entry) and Path(entry.get("path", out)).absolute() == out.absolute()
    if out.parent == directory and (is_own or not exists):
        return replace(options, force=True)  # type: ignore[call-arg]
    if exists and not vars(options)["force"]:
        raise _existing(step, out)
    return options


def _existing(step: RecipeStep, out: Path) -> SqueezeError:
    return SqueezeError(
        f"[{step.name}] {out} exists already; give --set {step.name}.force=true to replace it, or another name with "
        f"--set {step.name}.out=NAME"
    )


def mark(out: Path) -> str | None:
    """Return the SHA-256 of the manifest in a directory, which no two runs of a stage share; None without one."""
    path = out / manifest.FILE_NAME
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _holds_training(partial: Path) -> bool:
    return has_state(partial) or (partial / manifest.FILE_NAME).is_file()


def _has_failed(partial: Path) -> bool:
    """Return whether a training ended with an error, after which some options may change; the stage compares them."""
    states = complete_states(partial)
    return bool(states) and read_json(states[-1] / PROGRESS_FILE).get("failed") is True


def _make_room(step: RecipeStep, partial: Path, *, force: bool) -> None:
    """Remove what another request has left in OUT.partial, before the step is recorded as begun."""
    if not _holds_training(partial):
        return
    if not force:
        raise SqueezeError(
            f"[{step.name}] {partial} holds an interrupted training with other options or inputs, or of another "
            f"version; give --set {step.name}.force=true to start over, or rename it to keep it"
        )
    discard(partial)
