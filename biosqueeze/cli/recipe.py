"""`biosqueeze run RECIPE`: run the steps of a recipe, each on the output of the step before.

A step is skipped if neither its options nor the contents of its inputs have changed since it last succeeded. An
interrupted step continues from its last saved training state.
"""

import hashlib
import json
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from biosqueeze import __version__, progress
from biosqueeze.cli.command import (
    general_options,
    plan_as_dict,
    print_outcome,
    print_plan,
    set_up_process,
    stage_command,
    warn_of_unknown_variables,
)
from biosqueeze.cli.help import StageCommand, StageOption
from biosqueeze.cli.parameters import NameOrText, Text, read_options
from biosqueeze.cli.recipe_file import RecipeStep, read_recipe
from biosqueeze.cli.recipe_gradual import check_first_cut, with_repeated_cuts
from biosqueeze.cli.recipe_options import step_context
from biosqueeze.cli.recipe_output import may_replace, with_output, with_replaced_output
from biosqueeze.cli.recipe_state import RecipeRun, locked_run
from biosqueeze.cli.shipped_recipes import find_recipe, shipped_recipes
from biosqueeze.cli.streams import STDIN, clean_stdout, explained_output
from biosqueeze.cli.summary import print_summary
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.files import content_hash
from biosqueeze.hub_names import may_be_on_hub
from biosqueeze.options import Argument, OnDisk, Outcome, Plan, Purpose, StageOptions, WritingOptions, resolved
from biosqueeze.system import processes
from biosqueeze.training.options import TrainingOptions
from biosqueeze.training.resuming.fingerprint import INCIDENTAL

PURPOSE = Purpose.PIPELINE
EXAMPLES = (
    ("Run the quickstart: shrink, distil, quantize and bench, offline", "biosqueeze run quickstart"),
    ("Override one option of a step", "biosqueeze run quickstart --set student.steps=10"),
    ("Run a paper's recipe in minutes, on a small corpus", "biosqueeze run tinybiobert --scale laptop"),
    ("Show what would be done", "biosqueeze run quickstart --dry-run"),
)


def run_steps(steps: list[RecipeStep], run: RecipeRun) -> Outcome:
    """Run the steps in order, skip the unchanged ones, and return the last outcome with the facts of every step."""
    previous: Path | None = None
    path = run.directory
    for number, step in enumerate(steps, 1):
        options = _options(step, run, previous)
        key = step_key(step, options)
        if _is_done(run, steps[number - 1 :], options, key):
            progress.note(f"[{number}/{len(steps)}] {step.name}: unchanged, skipped")
        else:
            progress.note(f"[{number}/{len(steps)}] {step.name}")
            _run_step(step, options, key, run, later=steps[number:])
        path = run.outputs[step.name] = Path(run.entries[step.name]["path"])
        previous = path if _is_of_model(options, path) else previous
        run.facts[step.name] = run.entries[step.name]["facts"]
    return Outcome(path, {"steps": run.facts})


def _is_of_model(options: StageOptions, path: Path) -> bool:
    """Return whether the next step reads what a step returned: a checkpoint, or those of `shrink --family`."""
    return isinstance(options, WritingOptions) or (path / "config.json").is_file()


def _options(step: RecipeStep, run: RecipeRun, previous: Path | None) -> StageOptions:
    return read_options(step.module, step_context(step, run.directory, run.outputs, previous))


def check_steps(steps: list[RecipeStep], directory: Path) -> None:
    """Read the options of all steps before the first one runs.

    Raises:
        UsageError: a value has the wrong type, breaks a rule, or refers to a step that is not before it; or two steps
            have one output.
        SqueezeError: a path does not exist, and no earlier step writes it.
    """
    for stage, module in {step.stage: step.module for step in steps}.items():
        warn_of_unknown_variables(stage, stage_command(stage, module))
    outputs: dict[str, Path] = {}
    writers: dict[Path, str] = {}
    fine_tuned: dict[str, str] = {}
    previous: Path | None = None
    for step in steps:
        context = step_context(step, directory, outputs, previous)
        _check_paths(step, context.params, [*writers, *outputs.values()])
        if "out" in context.params:
            _check_out(step.name, context.params["out"], writers)
        if STDIN not in _flat(context.params.values()):
            try:
                options = read_options(step.module, context)
                if step.stage == "shrink":
                    check_first_cut(options, fine_tuned)
            except UsageError as error:
                raise UsageError(f"[{step.name}]: {error}") from error
        outputs[step.name] = directory / step.name
        if step.stage == "finetune":
            start = str(context.params.get("checkpoint"))
            fine_tuned[str(outputs[step.name])] = fine_tuned.get(start, start)
        if _may_end_with_checkpoint(step):
            previous = outputs[step.name]


def _may_end_with_checkpoint(step: RecipeStep) -> bool:
    """Return whether a step writes a checkpoint or measures one; predictions, text and tables have an `out` alone."""
    return issubclass(step.module.Options, WritingOptions) or "out" not in step.fields


def _check_out(step: str, out: str, writers: dict[Path, str]) -> None:
    """Check that no step before this one has its output, and add it to these."""
    if not out:
        raise UsageError(f"[{step}]: out is empty; give it a name, or leave it out")
    writer = writers.setdefault(Path(out).expanduser().resolve(), step)
    if writer != step:
        raise UsageError(f"[{step}] would replace {out}, which [{writer}] writes; give it another out")


def _check_paths(step: RecipeStep, values: Mapping[str, Any], written: Iterable[Path]) -> None:
    """Check that the paths exist which a step reads, unless an earlier one writes there or the text may be a name."""
    places = list(written)
    for option in step.fields.values():
        on_disk = option.marker(OnDisk)
        for text in _flat([values.get(option.name)]) if option.is_input else ():
            if not text or text == STDIN or ":" in text or (on_disk and on_disk.may_be_name and may_be_on_hub(text)):
                continue
            if not Path(text).expanduser().exists() and not _is_at(text, places):
                raise SqueezeError(
                    f"[{step.name}]: there is no file or directory {text}, which {option.flag} names; "
                    f"another one: --set {step.name}.{option.name}=PATH"
                )


def _is_at(text: str, places: Iterable[Path]) -> bool:
    """Return whether a path is one of these places, or lies in one, or has one in it."""
    path = Path(text).expanduser().resolve()
    return any(path.is_relative_to(place) or place.is_relative_to(path) for place in map(Path.resolve, places))


def step_key(step: RecipeStep, options: StageOptions) -> str:
    """Return a hash of all that the result of a step depends on: version, stage, options, and contents of input paths.

    Options that a resumed training may have otherwise, such as `save_every`, do not count.

    Of other options, such as a method, a number or an output, the text alone counts, also where a file has that name.
    The contents of a teacher cache do not count: the step fills it.
    """
    uncounted = INCIDENTAL if isinstance(options, TrainingOptions) else ("out", "force", "resume")
    values = {k: v for k, v in resolved(options).items() if k not in uncounted}
    if values.get("cache_teacher"):
        values["cache_teacher"] = True
    digest = hashlib.sha256(json.dumps([__version__, step.stage]).encode())
    for name, value in sorted(values.items()):
        described = _content if step.fields[name].is_input else repr
        for item in value if isinstance(value, list) else [value]:
            digest.update(f"{name}={described(item)}\n".encode())
    return digest.hexdigest()


def _content(value: Any) -> str:
    try:
        path = Path(value).expanduser() if isinstance(value, str) and value else None
        return content_hash(path) if path is not None and path.exists() else repr(value)
    except (OSError, ValueError):  # a text that cannot name a file
        return repr(value)


def _is_done(run: RecipeRun, steps: list[RecipeStep], options: StageOptions, key: str) -> bool:
    """Return whether the first of these steps is done; the others come after it."""
    entry = run.entries.get(steps[0].name, {})
    if entry.get("key") != key or "path" not in entry:
        return False
    path = Path(entry["path"])
    out = getattr(options, "out", None)  # of a checkpoint, or of other files such as predictions
    if out and path.absolute() != Path(str(out)).absolute():
        return False
    if not all(_is_of_this_run(run, steps, result) for result in entry.get("results", {})):
        return False
    return path.exists() and content_hash(path) == entry["content"]


def _is_of_this_run(run: RecipeRun, steps: Iterable[RecipeStep], result: str) -> bool:
    """Return whether a file of results, which is in no content hash, is what one of the steps wrote."""
    written = {run.entries.get(step.name, {}).get("results", {}).get(result) for step in steps}
    return Path(result).is_file() and content_hash(Path(result)) in written


def _run_step(step: RecipeStep, options: StageOptions, key: str, run: RecipeRun, later: list[RecipeStep]) -> None:
    """Run a step and record it; those later ones that also read the results of others are then no longer done."""
    options = with_output(step, options, run.directory, run.entries.get(step.name, {}), key)
    run.begin(step.name, key, options)
    started = time.monotonic()
    try:
        outcome: Outcome = step.module.run(options)
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt("the same command continues from the last saved state") from interrupt
    if outcome.lines is not None:
        outcome.lines.close()
        raise UsageError(f"[{step.name}] writes to standard output, which a recipe does not read; give it an out file")
    if outcome.blocks:
        progress.print_blocks(outcome.blocks)
    print_summary(outcome.summary, time.monotonic() - started, with_next=False)
    for reading in later:
        if reading.module.Options.READS_RESULTS:  # which are in no content hash
            run.entries.pop(reading.name, None)
    run.record(
        step.name,
        key=key,
        path=str(outcome.path),
        content=content_hash(outcome.path),
        facts=outcome.facts,
        results={str(path): content_hash(path) for path in outcome.results},
    )


def plan_steps(steps: list[RecipeStep], run: RecipeRun) -> list[dict[str, Any]]:
    """Print what each step would do, or an outline if its input does not exist yet; return the plans as dicts.

    Raises:
        SqueezeError: a step cannot run; the message names it.
    """
    plans: list[dict[str, Any]] = []
    previous: Path | None = None
    written_anew: set[Path] = set()
    for number, step in enumerate(steps):
        options = _options(step, run, previous)
        read = _read_by(step, options)
        if _would_be_skipped(steps[number:], options, run, written_anew):
            click.echo(progress.plain_text(f"{step.name}: unchanged, would be skipped"), err=True)
            plans.append({"step": step.name, "stage": step.stage, "unchanged": True})
            path = run.outputs[step.name] = Path(run.entries[step.name]["path"])
            previous = path if _is_of_model(options, path) else previous
            continue
        replacing = with_replaced_output(step, options, run.directory, run.entries.get(step.name, {}))
        unread = written_anew | {path for path in run.outputs.values() if not path.exists()}
        absent = {text for text in read if _is_at(text, unread)}
        try:
            plan = _outline(step, options, run, absent) if absent else step.module.plan(replacing)
        except SqueezeError as error:
            error.args = (f"[{step.name}]: {error}",)
            raise
        print_plan(step.name, plan, replaces=_replaces(step, options, run))
        plans.append({"step": step.name, **plan_as_dict(step.stage, plan)})
        # Of a step without an output, which adds results alone, this is a path that no step reads.
        written_anew.add(Path(getattr(options, "out", None) or run.directory / step.name))
        path = _planned_output(step, options, run, previous)
        previous = path if _is_of_model(options, path) or path in run.outputs.values() else previous
        run.outputs[step.name] = path
    return plans


def _read_by(step: RecipeStep, options: StageOptions) -> set[str]:
    """Return the values of the options that name what a step reads."""
    values = _flat(value for name, value in resolved(options).items() if step.fields[name].is_input)
    return {str(value) for value in values if value and value != STDIN}


def _replaces(step: RecipeStep, options: StageOptions, run: RecipeRun) -> bool:
    """Return whether a step replaces an existing output; where it may not, those that are no checkpoints are errors."""
    if not isinstance(options, WritingOptions):
        return True
    return may_replace(step, options, run.directory, run.entries.get(step.name, {}))


def _planned_output(step: RecipeStep, options: StageOptions, run: RecipeRun, previous: Path | None) -> Path:
    """Return what a step would write; of a step that measures, the checkpoint that it reads, as `run` returns it."""
    values = resolved(options)
    if values.get("out"):
        return Path(str(values["out"]))
    inputs = (values[name] for name, field in step.fields.items() if field.marker(Argument) and field.is_input)
    for item in reversed(_flat(list(inputs)[:1])):
        if item and (Path(item).exists() or Path(item) in run.outputs.values()):
            return Path(item)
    return previous or run.directory / step.name


def _would_be_skipped(
    steps: list[RecipeStep], options: StageOptions, run: RecipeRun, written_anew: Collection[Path]
) -> bool:
    """Return whether the first of these steps is done, and nothing that it reads would be written by an earlier one."""
    reads_anew = any(_is_at(text, written_anew) for text in _read_by(steps[0], options))
    may_read_results = written_anew and options.READS_RESULTS  # see `_run_step`
    if reads_anew or may_read_results:
        return False
    return steps[0].name in run.entries and _is_done(run, steps, options, step_key(steps[0], options))


def _outline(step: RecipeStep, options: StageOptions, run: RecipeRun, absent: Collection[str]) -> Plan:
    """Describe a step whose inputs do not all exist yet: its options, and what its stage can tell without them."""
    names = {str(path): f"@{name}" for name, path in reversed(run.outputs.items())}
    given = {key: value for key, value in resolved(options).items() if options.is_given(key) and key != "out"}
    shown = {key: " ".join(names.get(str(item), str(item)) for item in _flat([value])) for key, value in given.items()}
    tell = getattr(step.module, "outline", None)
    known: tuple[str, ...] = tell(options, absent) if tell else ()
    listed = ", ".join(f"{key} {text}" for key, text in shown.items())
    out = Path(str(options.out)) if isinstance(options, WritingOptions) else None
    return Plan(out=out, steps=(f"run {step.stage}: {listed}", *known))


def _flat(values: Iterable[Any]) -> list[Any]:
    return [item for value in values for item in (value if isinstance(value, list | tuple) else [value])]


def _run_recipe(
    recipe: str | None, overrides: tuple[str, ...], scale: str | None, out: str | None, **flags: Any
) -> None:
    set_up_process(flags)
    warn_of_unknown_variables("run", click.get_current_context().command)
    processes.check_alone("run")
    path = find_recipe(recipe)
    steps = with_repeated_cuts(path, read_recipe(path, overrides, scale))
    name = f"{path.stem}-{scale}-run" if scale else f"{path.stem}-run"
    directory = Path(out).expanduser() if out else Path(name)
    result: list[dict[str, Any]] | Outcome
    with clean_stdout():
        check_steps(steps, directory)
        if flags["dry_run"]:
            result = plan_steps(steps, RecipeRun.open(directory))
        else:
            with locked_run(directory) as run:
                result = run_steps(steps, run)
    with explained_output():
        if isinstance(result, Outcome):
            print_outcome(result, as_json=flags["as_json"])
        elif flags["as_json"]:
            click.echo(json.dumps({"steps": result}))


command = StageCommand(
    "run",
    params=[
        click.Argument(["recipe"], type=NameOrText(shipped_recipes), required=False),
        StageOption(
            ["--set", "overrides"],
            multiple=True,
            metavar="STEP.OPTION=VALUE",
            help="Override one key of the recipe, repeatable.",
        ),
        StageOption(
            ["--scale"],
            type=Text(),
            metavar="NAME",
            help="Run at a scale of the recipe: most have laptop, which takes minutes.",
        ),
        StageOption(
            ["-o", "--out"],
            type=Text(),
            metavar="PATH",
            help="Directory for the outputs of all steps. Default: the name of the recipe, the scale, and -run.",
        ),
        *general_options(),
    ],
    callback=_run_recipe,
    help="Run the steps of a recipe, skipping unchanged ones.\n\n"
    "Each step reads the output of the step before. An interrupted run continues when the command is repeated.",
    short_help="Run the steps of a recipe, skipping unchanged ones.",
    arguments=[
        (
            "RECIPE",
            f"A TOML file with one table per step, or the name of a shipped one: {', '.join(shipped_recipes())}.",
        )
    ],
    examples=EXAMPLES,
)
