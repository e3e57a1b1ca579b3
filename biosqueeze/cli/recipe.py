"""`biosqueeze run RECIPE`: a TOML file, one table per step, each fed by the one before.

A step is skipped when neither its options nor the contents of its inputs have changed since it last succeeded, and an
interrupted one goes on from its last saved training state.
"""

import hashlib
import json
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from click.core import ParameterSource

from biosqueeze import __version__, progress, registry
from biosqueeze.cli.command import (
    answer,
    common_options,
    plan_fields,
    prepare,
    refuse_several,
    show_plan,
    stage_command,
)
from biosqueeze.cli.parameters import Text, read_options
from biosqueeze.cli.streams import STDIN, stdout_kept_clean
from biosqueeze.command_line import option_flags
from biosqueeze.errors import UsageError
from biosqueeze.files import content_hash, write_json
from biosqueeze.options import (
    Argument,
    Hidden,
    OptionField,
    Outcome,
    StageOptions,
    WritingOptions,
    option_fields,
    resolved,
)
from biosqueeze.output import has_state

_STATE_FILE = "recipe-state.json"
_REFERENCE = "@"


@dataclass(frozen=True)
class Step:
    """One table of the recipe: its name, its stage, its keys, and what --set overrides."""

    name: str
    stage: str
    table: dict[str, Any]
    overrides: dict[str, list[str]]

    @property
    def module(self) -> ModuleType:
        """The stage's file."""
        return registry.load("stages", self.stage)

    @property
    def fields(self) -> dict[str, OptionField]:
        """The stage's options by name."""
        return {f.name: f for f in option_fields(self.module.Options) if f.marker(Hidden) is None}


@dataclass
class Run:
    """A recipe under way: where its outputs lie, what is done, and what each step gave."""

    directory: Path
    done: dict[str, dict[str, Any]]
    paths: dict[str, Path] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def remember(self, step: str, **entry: Any) -> None:
        """Write down how far a step is."""
        self.done[step] = entry
        self.write()

    def write(self) -> None:
        """Write down how far all steps are."""
        self.directory.mkdir(parents=True, exist_ok=True)
        write_json(self.directory / _STATE_FILE, self.done)


def read_recipe(path: Path, overrides: tuple[str, ...]) -> list[Step]:
    """Read and check a recipe and its --set overrides.

    Raises:
        UsageError: no TOML, an unknown stage or key (the nearest is named), or no table at all.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"there is no recipe {path}; name a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    for key, value in document.items():
        if not isinstance(value, dict) and key != "description":
            raise UsageError(
                f"{path}: {key!r} stands outside of a table; put it under the step it belongs to, like [shrink]"
            )
    tables = {name: table for name, table in document.items() if isinstance(table, dict)}
    if not tables:
        raise UsageError(f"{path} has no table; a recipe has one for each step, like [shrink]")
    wanted = _read_overrides(overrides, tables)
    return [_read_step(path, name, table, wanted.get(name, {})) for name, table in tables.items()]


def _read_overrides(overrides: tuple[str, ...], tables: dict[str, Any]) -> dict[str, dict[str, list[str]]]:
    wanted: dict[str, dict[str, list[str]]] = {}
    for override in overrides:
        name, equals, value = override.partition("=")
        step, dot, key = name.partition(".")
        if not equals or not dot:
            raise UsageError(f"--set {override!r} does not read STEP.OPTION=VALUE, like student.steps=10")
        if step not in tables:
            raise UsageError(f"--set {override!r}: the recipe has no step {step!r}.{registry.closest(step, tables)}")
        wanted.setdefault(step, {}).setdefault(key.replace("-", "_"), []).append(value)
    return wanted


def _read_step(path: Path, name: str, table: dict[str, Any], overrides: dict[str, list[str]]) -> Step:
    stage = str(table.get("stage", name))
    known = registry.names("stages")
    if stage not in known:
        raise UsageError(
            f"{path}: [{name}] names no stage.{registry.closest(stage, known)} Stages: {', '.join(known)}; "
            'a table with another name says which it is with stage = "..."'
        )
    keys = {key.replace("-", "_"): value for key, value in table.items() if key != "stage"}
    step = Step(name, stage, keys, overrides)
    for key in [*keys, *overrides]:
        if key not in step.fields:
            raise UsageError(f"{path}: [{name}] has an unknown key {key!r}.{registry.closest(key, step.fields)}")
    for key, given in overrides.items():
        if len(given) > 1 and not step.fields[key].repeated:
            raise UsageError(f"--set {name}.{key} is given {len(given)} times, and takes one value")
    return step


def _listed(step: Step, key: str, value: Any) -> Any:
    """One value of a repeatable option may be written without brackets."""
    return [value] if step.fields[key].repeated and not isinstance(value, list) else value


def _context(step: Step, run: Run, previous: Path | None) -> click.Context:
    """A Click context for one step: flag (--set) > environment > recipe > default, exactly as on the command line."""
    values = {key: _listed(step, key, _dereference(step, value, run)) for key, value in step.table.items()}
    positional = next((f for f in step.fields.values() if f.marker(Argument)), None)
    if positional and positional.name not in values and previous is not None:
        marker = positional.marker(Argument)
        if marker is None or marker.unless is None or marker.unless not in {**values, **step.overrides}:
            values[positional.name] = [str(previous)] if positional.repeated else str(previous)
    spoken = [key for key in step.overrides if step.fields[key].marker(Argument)]
    for key in spoken:  # as words of a command line they would be told apart by their order alone
        given = _dereference(step, list(step.overrides[key]), run)
        values[key] = given if step.fields[key].repeated else given[0]
    if "out" in step.fields:
        values.setdefault("out", str(run.directory / step.name))
    command = stage_command(step.stage, step.module)
    environment = f"BIOSQUEEZE_{step.stage.upper()}"
    try:
        words = _as_flags(step, run)
        context = command.make_context(step.name, words, default_map=values, auto_envvar_prefix=environment)
    except click.UsageError as error:
        raise UsageError(f"[{step.name}]: {error.format_message()}") from error
    denied = [key for key, value in step.overrides.items() if step.fields[key].type is bool and value == ["false"]]
    for key in denied:  # which no flag says
        context.params[key] = False
    for key in (*spoken, *denied):
        context.set_parameter_source(key, ParameterSource.COMMANDLINE)
    return context


def _as_flags(step: Step, run: Run) -> list[str]:
    options = {key: given for key, given in step.overrides.items() if not step.fields[key].marker(Argument)}
    values = {key: [_override(step, key, value, run) for value in given] for key, given in options.items()}
    plain = {key: given[-1] if step.fields[key].type is bool else given for key, given in values.items()}
    return option_flags(plain, {name: field.default for name, field in step.fields.items()})


def _override(step: Step, key: str, value: str, run: Run) -> bool | str:
    """Return the value that --set gives to one option."""
    if step.fields[key].type is not bool:
        return str(_dereference(step, value, run))
    if value not in ("true", "false"):
        raise UsageError(f"--set {step.name}.{key}={value}: expected true or false")
    return value == "true"


def _dereference(step: Step, value: Any, run: Run) -> Any:
    """`@name` is the output of the step of that name."""
    if isinstance(value, list):
        return [_dereference(step, item, run) for item in value]
    if not isinstance(value, str) or not value.startswith(_REFERENCE):
        return value
    name = value[len(_REFERENCE) :]
    if name not in run.paths:
        raise UsageError(
            f"[{step.name}] refers to {value}, and no step before it is called {name}."
            f"{registry.closest(name, run.paths)}"
        )
    return str(run.paths[name])


def _key(step: Step, options: StageOptions) -> str:
    """What the result of a step depends on: version, stage, options, and the contents behind every path among them.

    A cache of a teacher's answers is filled by the step itself.
    """
    values = {k: v for k, v in resolved(options).items() if k not in ("out", "force", "resume")}
    if values.get("cache_teacher"):
        values["cache_teacher"] = True
    digest = hashlib.sha256(json.dumps([__version__, step.stage]).encode())
    for name, value in sorted(values.items()):
        for item in value if isinstance(value, list) else [value]:
            digest.update(f"{name}={_content(item)}\n".encode())
    return digest.hexdigest()


def _content(value: Any) -> str:
    path = Path(value).expanduser() if isinstance(value, str) and value else None
    return content_hash(path) if path is not None and path.exists() else repr(value)


def run_steps(steps: list[Step], run: Run) -> Outcome:
    """Run the steps in order, skip what is done, and return the last one's outcome with every step's facts."""
    _check_all(steps, run)
    previous: Path | None = None
    path = run.directory
    for number, step in enumerate(steps, 1):
        context = _context(step, run, previous)
        options = read_options(step.module, context)
        key = _key(step, options)
        if not _is_done(run, step, options, key):
            progress.note(f"[{number}/{len(steps)}] {step.name}")
            _forget_measurements(steps[number:], run)
            _run_step(step, options, key, run)
        else:
            progress.note(f"[{number}/{len(steps)}] {step.name}: unchanged, skipped")
        path = run.paths[step.name] = Path(run.done[step.name]["path"])
        previous = path if (path / "config.json").is_file() else previous
        run.facts[step.name] = run.done[step.name]["facts"]
    return Outcome(path, {"steps": run.facts})


def _forget_measurements(later: list[Step], run: Run) -> None:
    """What measures reads and writes results, which no hash of a checkpoint sees: it is done anew after any change."""
    for step in later:
        if not issubclass(step.module.Options, WritingOptions):
            run.done.pop(step.name, None)
    run.write()


def _check_all(steps: list[Step], run: Run) -> None:
    """Read every step's options before the first runs, so that a mistake in the last costs nothing.

    Raises:
        UsageError: a value is none of its type or out of its range, or refers to no step before it.
    """
    guess = Run(run.directory, {})
    previous: Path | None = None
    for step in steps:
        context = _context(step, guess, previous)
        if STDIN not in _flat(context.params.values()):
            try:
                read_options(step.module, context)
            except UsageError as error:
                raise UsageError(f"[{step.name}]: {error}") from error
        previous = guess.paths[step.name] = run.directory / step.name


def _is_done(run: Run, step: Step, options: StageOptions, key: str) -> bool:
    entry = run.done.get(step.name, {})
    if entry.get("key") != key or "path" not in entry:
        return False
    path = Path(entry["path"])
    if isinstance(options, WritingOptions) and path != Path(str(options.out)):
        return False
    return path.exists() and content_hash(path) == entry["content"]


def _run_step(step: Step, options: StageOptions, key: str, run: Run) -> None:
    if isinstance(options, WritingOptions):
        options = _ready_output(step, options, key, run)
    elif {"out", "force"} <= step.fields.keys() and Path(vars(options)["out"]).parent == run.directory:
        options = replace(options, force=True)  # type: ignore[call-arg]
    # What was done before stays done until this has succeeded: a failure at the start changes nothing.
    run.remember(step.name, **{**run.done.get(step.name, {}), "begun": key})
    try:
        outcome: Outcome = step.module.run(options)
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt("the same command goes on from what is done and saved") from interrupt
    if outcome.lines is not None:
        outcome.lines.close()
        raise UsageError(
            f"[{step.name}] writes to standard output, and nobody reads it in a recipe; name a file with out"
        )
    run.remember(step.name, key=key, path=str(outcome.path), content=content_hash(outcome.path), facts=outcome.facts)


def _ready_output(step: Step, options: WritingOptions, key: str, run: Run) -> WritingOptions:
    """The runner owns its outputs: a stale one is replaced, and an interrupted one of the same key is resumed."""
    out = Path(options.out or run.directory / step.name)
    partial = out.with_name(out.name + ".partial")
    interrupted = has_state(partial)
    if interrupted and run.done.get(step.name, {}).get("begun") == key and "resume" in step.fields:
        return replace(options, resume=True, force=True)  # type: ignore[call-arg]
    return replace(options, force=True) if out.parent == run.directory else options


@contextmanager
def _opened(directory: Path) -> Iterator[Run]:
    path = directory / _STATE_FILE
    done = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    yield Run(directory, done)


def _plan_all(steps: list[Step], run: Run) -> list[dict[str, Any]]:
    """Say what each step would do; a step whose input does not exist yet is named without figures."""
    _check_all(steps, run)
    plans: list[dict[str, Any]] = []
    previous: Path | None = None
    for step in steps:
        options = read_options(step.module, _context(step, run, previous))
        given = {str(value) for value in _flat(resolved(options).values())}
        inputs = [path for path in run.paths.values() if str(path) in given]
        if all(path.exists() for path in inputs):
            plan = step.module.plan(options)
            show_plan(step.name, plan, owned=True)
            plans.append({"step": step.name, **plan_fields(step.stage, plan)})
        else:
            plans.append({"step": step.name, "stage": step.stage})
            click.echo(f"{step.name} would run {step.stage} on what the steps before it write", err=True)
        if isinstance(options, WritingOptions) or previous is None:
            previous = run.directory / step.name
        run.paths[step.name] = previous
    return plans


def _flat(values: Any) -> list[Any]:
    return [item for value in values for item in (value if isinstance(value, list) else [value])]


def _callback(recipe: str, overrides: tuple[str, ...], out: str | None, **flags: bool) -> None:
    prepare(flags)
    refuse_several("run")
    path = Path(recipe).expanduser()
    steps = read_recipe(path, overrides)
    with _opened(Path(out).expanduser() if out else Path(f"{path.stem}-run")) as run, stdout_kept_clean():
        done = _plan_all(steps, run) if flags["dry_run"] else run_steps(steps, run)
    if isinstance(done, Outcome):
        answer(done, as_json=flags["as_json"])
    elif flags["as_json"]:
        click.echo(json.dumps({"steps": done}))


command = click.Command(
    "run",
    params=[
        click.Argument(["recipe"], type=Text()),
        click.Option(
            ["--set", "overrides"],
            multiple=True,
            metavar="STEP.OPTION=VALUE",
            help="Override one key of the recipe.",
        ),
        click.Option(
            ["--out"],
            type=Text(),
            metavar="TEXT",
            help="Directory for the outputs of all steps; NAME-run when left out.",
        ),
        *common_options(),
    ],
    callback=_callback,
    help="Run the steps of a recipe, skipping what is done.\n\nRECIPE: a TOML file, one table per step; see recipes/.",
    short_help="Run the steps of a recipe, skipping what is done.",
    epilog="Example: biosqueeze run recipes/quickstart.toml --set student.steps=10",
)
