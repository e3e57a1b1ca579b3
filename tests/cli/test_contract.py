"""What holds for every command: derived options, streams, exit codes, nothing heavy before a stage runs."""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, ClassVar

import click
import pytest

from biosqueeze import progress, registry
from biosqueeze.cli import main
from biosqueeze.cli.command import stage_command
from biosqueeze.cli.help import words_of
from biosqueeze.cli.parameters import read_options
from biosqueeze.errors import SqueezeError
from biosqueeze.options import Argument, Hidden, OnlyWith, Outcome, Plan, Purpose, StageOptions, option_fields
from biosqueeze.text_table import TextTable
from tests.cli.run import Shell

STAGES = registry.names("stages")
EXAMPLES = [(name, command) for name in STAGES for _, command in registry.load("stages", name).EXAMPLES]
FLOATS = [
    (stage, f"--{field.name.replace('_', '-')}")
    for stage in STAGES
    for field in option_fields(registry.load("stages", stage).Options)
    if field.type is float and not field.marker(Hidden)
]


def test_the_chain_is_complete() -> None:
    wanted = {"bench", "distill", "evaluate", "export", "finetune", "inspect", "quantize", "shrink"}
    assert wanted <= set(STAGES)


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_has_the_shape_of_a_stage(name: str) -> None:
    stage = registry.load("stages", name)
    assert issubclass(stage.Options, StageOptions)
    assert stage.Options.__dataclass_params__.frozen
    assert isinstance(stage.PURPOSE, Purpose)
    assert list(inspect.signature(stage.plan).parameters) == ["options"]
    assert list(inspect.signature(stage.run).parameters) == ["options"]
    assert all(field.help.endswith(".") for field in option_fields(stage.Options))
    assert any(field.marker(Argument) for field in option_fields(stage.Options))


@pytest.mark.parametrize("name", ["finetune", "pretrain"])
def test_help_speaks_of_teachers_where_there_are_some(name: str) -> None:
    helps = {field.name: field.help for field in option_fields(registry.load("stages", name).Options)}
    of_distill = {field.name: field.help for field in option_fields(registry.load("stages", "distill").Options)}
    for option in ("precision", "patience"):
        assert "teacher" in of_distill[option] and "teacher" not in helps[option]


@pytest.mark.parametrize("name", STAGES)
def test_help_shows_every_option_and_an_example(name: str, shell: Shell) -> None:
    said = shell(name, "--help")
    assert said.code == 0
    stage = registry.load("stages", name)
    for field in option_fields(stage.Options):
        shown = field.name.upper() if field.marker(Argument) else f"--{field.name.replace('_', '-')}"
        assert (shown in said.out) != bool(field.marker(Hidden)), shown
    assert "Examples:" in said.out
    assert all(len(line) <= 80 for line in said.out.splitlines())


@pytest.mark.parametrize("name", [*STAGES, "run"])
def test_summaries_fit_on_one_line(name: str) -> None:
    command = main.cli.get_command(click.Context(main.cli), name)
    assert len(command.short_help) <= 63
    assert command.short_help.endswith(".")


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_examples_follow_the_rules(name: str, example: str) -> None:
    last = example.split("|")[-1].split()
    assert last[:2] == ["biosqueeze", name]
    stage = registry.load("stages", name)
    context = stage_command(name, stage).make_context(name, words_of(example))
    context.params.update({key: "piped" for key, value in context.params.items() if value == "-"})
    assert read_options(stage, context)


@pytest.mark.parametrize("name", STAGES)
def test_rules_name_options_of_the_stage(name: str) -> None:
    fields = {field.name: field for field in option_fields(registry.load("stages", name).Options)}
    for field in fields.values():
        for marker in field.markers:
            assert set(getattr(marker, "names", ())) <= fields.keys()
            if isinstance(marker, OnlyWith):
                assert set(marker.values) <= set(fields[marker.name].literals)


@pytest.mark.parametrize("name", ["distill", "finetune"])
def test_common_options_come_first(name: str, shell: Shell) -> None:
    text = shell(name, "--help").out
    common = text[text.index("Common options:") : text.index("\n\n", text.index("Common options:"))]
    assert "--epochs" in common
    assert "--out" in common
    assert 8 <= common.count("\n  -") <= 11


def test_nothing_heavy_is_imported_for_help() -> None:
    code = (
        "import sys; from biosqueeze.cli import main; main.run(['--help']); main.run(['distill', '--help']);"
        "heavy = {'torch', 'transformers', 'onnxruntime', 'onnx', 'numpy', 'rich', 'huggingface_hub', 'accelerate'};"
        "sys.exit(','.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_unknown_words_get_a_suggestion(shell: Shell, tmp_path: Path) -> None:
    said = shell("shirnk")
    assert said.code == 2
    assert "Did you mean 'shrink'?" in said.err
    assert shell("shrink", tmp_path, "--layer", "2").code == 2


@pytest.mark.parametrize(
    ("stdin", "says"), [("", "got nothing"), ("a\nb\n", "got 2 lines"), ('{"path": "a"}\n', "leave --json out")]
)
def test_a_dash_wants_exactly_one_path(shell: Shell, stdin: str, says: str) -> None:
    said = shell("inspect -", stdin=stdin)
    assert said.code == 2
    assert said.out == ""
    assert says in said.err
    assert len(said.err.splitlines()) == 1


def test_only_one_dash(shell: Shell) -> None:
    said = shell("distill - --teacher -", stdin="x\n")
    assert said.code == 2
    assert "only once" in said.err


@dataclass(frozen=True, kw_only=True)
class FakeOptions(StageOptions):
    """A stage of our own, to see what the command line makes of what a stage does."""

    word: Annotated[str, "A word."] = "none"


@dataclass(frozen=True, kw_only=True)
class FakeTableOptions(FakeOptions):
    """A stage with rows."""

    HAS_TABLE: ClassVar[bool] = True


def fake(monkeypatch: pytest.MonkeyPatch, act: Callable[[FakeOptions], Outcome]) -> None:
    plan = Plan(out=Path("out"), steps=("do it",), parameters_before=200, parameters_after=100)
    stage = SimpleNamespace(
        EXAMPLES=(("Run it", "biosqueeze fake"),), Options=FakeTableOptions, plan=lambda _: plan, run=act
    )
    monkeypatch.setattr(main.Squeeze, "get_command", lambda *_: stage_command("fake", stage))


def test_stdout_stays_clean_whatever_a_library_prints(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def act(_options: object) -> Outcome:
        print("chatter from python")  # noqa: T201
        os.write(1, b"chatter from C\n")
        subprocess.run(["echo", "chatter from a child"], check=True)
        return Outcome(Path("there"))

    fake(monkeypatch, act)
    said = shell("fake")
    assert (said.code, said.out) == (0, "there\n")
    assert said.err.count("chatter") == 3


def raising(error: BaseException) -> Callable[[FakeOptions], Outcome]:
    def act(_options: FakeOptions) -> Outcome:
        raise error

    return act


def test_an_explained_failure_is_one_line(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, raising(SqueezeError("it broke; mend it")))
    said = shell("fake")
    assert (said.code, said.out, said.err) == (1, "", "error: it broke; mend it\n")


def test_a_bug_names_its_log(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, raising(RuntimeError("oops")))
    said = shell("fake")
    assert said.code == 3
    assert "Traceback" not in said.err
    log = Path(next(word for word in said.err.split() if word.endswith(".log;")).rstrip(";"))
    assert "RuntimeError: oops" in log.read_text()
    log.unlink()
    monkeypatch.setenv("BIOSQUEEZE_DEBUG", "1")
    assert "Traceback" in shell("fake").err


@pytest.mark.parametrize(
    "error", [MemoryError("os error 12"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_exhausted_memory_is_no_bug(error: Exception, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, raising(error))
    said = shell("fake")
    assert said.code == 1
    assert said.err.startswith("error: the memory is exhausted; lower --batch-size")


def test_an_interrupt_is_130(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, raising(KeyboardInterrupt("saved at step 3")))
    said = shell("fake")
    assert said.code == 130
    assert "saved at step 3" in said.err


def test_json_prints_one_object(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, lambda _: Outcome(Path("there"), {"f1": 0.5}))
    assert json.loads(shell("fake --json").out) == {"path": "there", "f1": 0.5}


def showing_a_table(_options: object) -> Outcome:
    progress.table("scores", ["name", "f1"], [["a|b", "0.1235"]])
    progress.note("measured")
    rows = ({"name": "a|b", "f1": 0.123456, "runs": None}, {"name": 'c,"d"', "f1": 12345.6, "runs": 3})
    return Outcome(Path("there"), {"f1": 0.5}, rows=rows)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("md", '| name | f1 | runs |\n| --- | ---: | ---: |\n| a\\|b | 0.1235 |  |\n| c,"d" | 12346 | 3 |\n'),
        ("csv", 'name,f1,runs\na|b,0.123456,\n"c,""d""",12345.6,3\n'),
        (
            "json",
            '[{"name": "a|b", "f1": 0.123456, "runs": null}, {"name": "c,\\"d\\"", "f1": 12345.6, "runs": 3}]',
        ),
    ],
)
def test_table_is_printed_in_place_of_the_path(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, form: str, text: str
) -> None:
    fake(monkeypatch, showing_a_table)
    said = shell("fake --table", form)
    assert (said.code, said.out.strip(), said.err) == (0, text.strip(), "measured\n")
    assert "scores" in shell("fake").err


def test_json_draws_no_table(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, showing_a_table)
    assert shell("fake --json").err == "measured\n"
    said = shell("fake --json --table md")
    assert (said.code, said.out) == (2, "") and "give one of them" in said.err


def test_answer_is_printed_in_place_of_the_path(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    table = TextTable("scores", ("name", "f1"), (("[/red]", "0.5"),))
    fake(monkeypatch, lambda _: Outcome(Path("there"), {"f1": 0.5}, blocks=("first", table)))
    said = shell("fake --quiet")
    assert said.out.splitlines()[:2] == ["first", "scores"] and "[/red]" in said.out and said.err == ""
    assert json.loads(shell("fake --json").out) == {"path": "there", "f1": 0.5}


def test_dry_run_prints_the_plan_and_runs_nothing(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, raising(AssertionError("ran")))
    said = shell("fake --dry-run")
    assert (said.code, said.out) == (0, "")
    assert "200" in said.err
    assert "100  (50%)" in said.err
    assert '"parameters_after": 100' in shell("fake --dry-run --json").out


def test_flag_beats_environment_beats_default(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    fake(monkeypatch, lambda options: seen.append(options) or Outcome(Path("x")))
    shell("fake")
    monkeypatch.setenv("BIOSQUEEZE_FAKE_WORD", "environment")
    shell("fake")
    shell("fake --word flag")
    assert [(o.word, o.sources["word"]) for o in seen] == [
        ("none", "default"),
        ("environment", "environment"),
        ("flag", "flag"),
    ]


def test_a_misspelt_variable_is_named(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, lambda _: Outcome(Path("x")))
    monkeypatch.setenv("BIOSQUEEZE_FAKE_WROD", "lost")
    said = shell("fake")
    assert said.code == 0
    assert "Did you mean 'BIOSQUEEZE_FAKE_WORD'?" in said.err


def test_variables_have_the_names_of_the_flags(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, lambda _: Outcome(Path("x"), {"fact": 1}))
    monkeypatch.setenv("BIOSQUEEZE_FAKE_JSON", "1")
    monkeypatch.setenv("BIOSQUEEZE_FAKE_AS_JSON", "1")
    said = shell("fake")
    assert json.loads(said.out)["fact"] == 1
    assert "BIOSQUEEZE_FAKE_AS_JSON is no option of fake" in said.err


def test_variables_that_no_command_reads_are_named(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIOSQUEEZE_INSPECT_CHECKPOINT", "x")
    monkeypatch.setenv("BIOSQUEEZE_RUN_FOO", "1")
    assert "BIOSQUEEZE_INSPECT_CHECKPOINT is no option of inspect" in shell("inspect nowhere").err
    assert "BIOSQUEEZE_RUN_FOO is no option of run" in shell("run nowhere").err


def test_colour_is_left_out_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    from biosqueeze.progress import _console

    monkeypatch.setenv("FORCE_COLOR", "1")
    assert _console().is_terminal
    monkeypatch.setenv("NO_COLOR", "1")
    assert _console().no_color


def test_shell_completion_knows_commands_and_choices() -> None:
    from click.shell_completion import BashComplete

    complete = BashComplete(main.cli, {}, "biosqueeze", "_BIOSQUEEZE_COMPLETE")
    assert [item.value for item in complete.get_completions([], "shr")] == ["shrink"]
    methods = [item.value for item in complete.get_completions(["quantize", "x", "--method"], "")]
    assert methods == list(registry.names("quantizers"))


@pytest.mark.parametrize(
    ("words", "begun", "completed"),
    [
        ("distill x --loss", "minilm", ["minilm", "minilmv2"]),
        ("distill x --student", "ti", ["tiny"]),
        ("shrink x --student", "dist", ["distil"]),
        ("finetune x --task", "ne", ["ner"]),
        ("finetune x --task", "blurb/bc5", ["blurb/bc5-chem", "blurb/bc5-disease"]),
        ("evaluate x --task", "blurb/ho", ["blurb/hoc"]),
        ("predict x --task", "q", ["qa"]),
        ("tasks", "b", ["bioformer", "biolm", "biom", "blurb"]),
        ("benchmark x --suite", "biof", ["bioformer"]),
        ("run", "quick", ["quickstart"]),
        ("run", "my/rec", ["my/rec"]),  # as a file
    ],
)
def test_shell_completion_knows_names(words: str, begun: str, completed: list[str]) -> None:
    from click.shell_completion import BashComplete

    complete = BashComplete(main.cli, {}, "biosqueeze", "_BIOSQUEEZE_COMPLETE")
    assert sorted({item.value for item in complete.get_completions(words.split(), begun)}) == completed


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_completion_script_of_every_shell(shell_name: str) -> None:
    environment = {**os.environ, "_BIOSQUEEZE_COMPLETE": f"{shell_name}_source"}
    command = [sys.executable, "-m", "biosqueeze"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and f"{shell_name}_complete" in done.stdout, done.stderr


def test_shell_completion_leaves_paths_to_the_shell() -> None:
    from click.shell_completion import BashComplete

    complete = BashComplete(main.cli, {}, "biosqueeze", "_BIOSQUEEZE_COMPLETE")
    for words in (["shrink"], ["bench"], ["run"], ["distill", "--corpus"], ["finetune", "x", "--data"]):
        assert [(item.type, item.value) for item in complete.get_completions(words, "te")] == [("file", "te")], words


def test_a_tilde_that_no_shell_expanded(pico_bert: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(Path.cwd() / "home"))
    assert shell("shrink", pico_bert, "--layers", "2", "--out", "~/small").path == str(Path.cwd() / "home" / "small")
    assert not Path("~").exists()


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(("stage", "option"), FLOATS)
def test_numbers_are_finite(stage: str, option: str, value: str, shell: Shell) -> None:
    said = shell(stage, f"{option}={value}")
    assert (said.code, f"{value!r} is not a finite number" in said.err) == (2, True), said.err


def test_help_gives_options_in_the_order_of_the_stage() -> None:
    names = [field.name for field in option_fields(registry.load("stages", "distill").Options)]
    assert names[:3] == ["checkpoint", "teacher", "student"]
    assert names.index("lr") > names.index("data")


def test_every_error_class_has_its_exit_code() -> None:
    from biosqueeze import errors

    classes = [c for c in vars(errors).values() if inspect.isclass(c) and issubclass(c, SqueezeError)]
    assert {c.__name__: c.exit_code for c in classes} == {
        "SqueezeError": 1,
        "UsageError": 2,
        "QualityGateMissedError": 4,
    }
    assert issubclass(click.UsageError, click.ClickException)
