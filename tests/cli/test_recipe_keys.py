"""Recipes: their keys and values are checked before a step runs."""

from pathlib import Path

import pytest

from biosqueeze.cli.parameters import read_options
from biosqueeze.cli.recipe_file import read_recipe
from biosqueeze.cli.recipe_options import step_context
from biosqueeze.errors import UsageError
from tests.cli.recipe_files import write
from tests.cli.run import Shell


@pytest.mark.parametrize(
    ("text", "overrides", "says"),
    [
        ("", (), "has no table"),
        ("[shrink", (), "not valid TOML"),
        ("layers = 3", (), "outside of a table"),
        ("[shirnk]", (), "Did you mean 'shrink'"),
        ("[int8]\nstage = 'quantise'", (), "there is no stage 'quantise'. Did you mean 'quantize'"),
        ("[shrink]\nlayer = 3", (), "Did you mean 'layers'"),
        ("[shrink]", ("shrink=3",), "STEP.OPTION=VALUE"),
        ("[shrink]", ("shrnik.layers=3",), "Did you mean 'shrink'"),
        ("[shrink]", ("shrink.layer=3",), "Did you mean 'layers'"),
        ("x = " + "[" * 5000, (), "not valid TOML: nested too deeply"),
        (f"[a{'.a' * 20_000}]", (), "not valid TOML: nested too deeply"),
        (f"[shrink]\nlayers = {'9' * 5000}", (), r"not valid TOML: .* out of range \(at line 2\)"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, overrides: tuple[str, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_recipe(write(tmp_path / "r.toml", text), overrides)


@pytest.mark.parametrize(
    ("text", "override"),
    [
        (f"layers = {'9' * 4000}", "seed=1"),
        (f"seed = {'9' * 4000}", "force=true"),
        ("layers = [[[3]]]", "seed=1"),
        ("layers = {a = {b = 1}}", "seed=1"),
        ("layers = '1'", f"seed={'9' * 5000}"),
        ("layers = 1979-05-27", "seed=1"),
        ("ffn = [32]", "seed=1"),
        ("width = {a = 1}", "seed=1"),
        ("force = [true]", "seed=1"),
        ("ffn = true", "seed=1"),
        ("ffn = 32.7", "seed=1"),
        ("ffn = inf", "seed=1"),
        ("layers = 2\nout = ''", "seed=1"),
        ("layers = 2\nsteps_of = inf", "seed=1"),
    ],
)
def test_wild_values_of_a_recipe_are_wrong_usage(
    text: str, override: str, shell: Shell, tmp_path: Path, pico_bert: Path
) -> None:
    path = write(tmp_path / "r.toml", f"[shrink]\ncheckpoint = '{pico_bert}'\n{text}")
    said = shell("run", path, "--set", f"shrink.{override}", "--out", tmp_path / "out", "--dry-run")
    assert said.code == 2, said.err
    assert said.err.splitlines()[-1].startswith("error: ")


def test_a_number_may_be_a_text(shell: Shell, tmp_path: Path, pico_bert: Path) -> None:
    path = write(tmp_path / "r.toml", f"[shrink]\ncheckpoint = '{pico_bert}'\nffn = '32'\nseed = 1.0")
    assert shell("run", path, "--out", tmp_path / "out", "--dry-run").code == 0


def test_a_list_of_numbers_may_be_a_list(shell: Shell, tmp_path: Path, pico_bert: Path) -> None:
    path = write(tmp_path / "r.toml", f"[shrink]\ncheckpoint = '{pico_bert}'\nlayers = [0, 2]")
    said = shell("run", path, "--out", tmp_path / "out", "--dry-run")
    assert said.code == 0, said.err
    assert "0, 2" in said.err


@pytest.mark.parametrize(
    "name",
    [
        "..",
        ".",
        "",
        "/tmp/x",
        "../x",
        "a/b",
        r"a\u0000b",
        r"a\nb",
        "recipe-state.json",
        "x.partial",
        "x.runs",
        "x" * 300,
    ],
)
def test_no_step_is_written_outside_of_the_run(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "r.toml", f'["{name}"]\nstage = "shrink"\ncheckpoint = "x"')
    with pytest.raises(UsageError, match="cannot name a step"):
        read_recipe(path, ())


def test_a_recipe_that_has_no_end_is_refused(shell: Shell) -> None:
    said = shell("run /dev/zero")
    assert said.code == 1
    assert "/dev/zero is longer than 64 MB" in said.err


def test_a_missing_recipe_is_exit_2(shell: Shell) -> None:
    said = shell("run nowhere.toml")
    assert said.code == 2
    assert "there is no recipe" in said.err


def test_a_recipe_that_cannot_be_read_is_no_missing_one(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "d.toml").mkdir()
    said = shell("run", tmp_path / "d.toml")
    assert (said.code, "there is no" in said.err, "d.toml" in said.err) == (1, False, True), said.err


def test_a_misspelt_variable_is_told(recipe: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIOSQUEEZE_SHRINK_LAYER", "2")
    said = shell("run", recipe, "--out", "out", "--dry-run")
    assert said.err.count("Did you mean 'BIOSQUEEZE_SHRINK_LAYERS'?") == 1


def test_a_reference_to_no_step_is_explained(tmp_path: Path, shell: Shell) -> None:
    said = shell("run", write(tmp_path / "r.toml", '[shrink]\ncheckpoint = "@teahcer"\nlayers = "2"\n'))
    assert said.code == 2
    assert "@teahcer" in said.err


def test_an_unfit_value_names_the_step(recipe: Path, shell: Shell) -> None:
    said = shell("run", recipe, "--set", "shrink.ffn=many")
    assert said.code == 2
    assert "[shrink]" in said.err


@pytest.mark.parametrize("out", ["r-run/half", "~/x"])
def test_two_steps_have_no_common_output(out: str, recipe: Path, shell: Shell) -> None:
    place = str(Path(out).expanduser())
    said = shell("run", recipe, "--set", f"half.out={place}", "--set", f"shrink.out={out}", "--dry-run")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert f"[shrink] would replace {out}, which [half] writes" in said.err


def test_a_switch_can_be_set_to_false(pico_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIOSQUEEZE_FINETUNE_LABEL_ALL_PIECES", "true")
    text = f'[finetune]\ncheckpoint = "{pico_bert}"\ndata = "tags"\nlabel_all_pieces = true\n'
    path = write(tmp_path / "r.toml", text)
    for value, wanted in (("true", True), ("false", False)):
        (step,) = read_recipe(path, (f"finetune.label_all_pieces={value}",))
        options = read_options(step.module, step_context(step, tmp_path, {}, None))
        assert (options.label_all_pieces, options.sources["label_all_pieces"]) == (wanted, "flag")


def test_a_value_out_of_range_is_told_before_the_first_step(recipe: Path, pico_bert: Path, shell: Shell) -> None:
    recipe.write_text(recipe.read_text() + f'\n[distill]\nteacher = "{pico_bert}"\ntemperature = 0\n')
    said = shell("run", recipe)
    assert (said.code, "[distill]: --temperature must be above 0" in said.err) == (2, True), said.err
    assert not Path("r-run").exists()


def test_overrides_of_arguments_and_of_repeatable_options(pico_bert: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "r.toml", '[predict]\n\n[distill]\nteacher = "t"\nstudent = "tiny"\ncorpus = "a"\n')
    asked = ("predict.input=records.jsonl", "distill.corpus=b", "distill.corpus=c")
    predict, distill = read_recipe(path, asked)
    options = read_options(predict.module, step_context(predict, tmp_path, {}, pico_bert))
    assert (options.checkpoint, options.input, options.sources["input"]) == (str(pico_bert), "records.jsonl", "flag")
    options = read_options(distill.module, step_context(distill, tmp_path, {}, None))
    assert options.corpus == ("b", "c")
    with pytest.raises(UsageError, match=r"--set distill\.steps is given 2 times"):
        read_recipe(path, ("distill.steps=1", "distill.steps=2"))
