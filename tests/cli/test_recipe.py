"""Recipes: keys are checked, steps are chained, what is done is skipped, what changed is done again."""

import json
import signal
import tomllib
from pathlib import Path

import pytest

from biosqueeze import registry
from biosqueeze.cli.parameters import read_options
from biosqueeze.cli.recipe import RecipeRun, _content, step_key
from biosqueeze.cli.recipe_file import read_recipe
from biosqueeze.cli.recipe_options import step_context
from biosqueeze.cli.shipped_recipes import shipped_recipes
from biosqueeze.errors import UsageError
from biosqueeze.files import content_hash
from tests import pico
from tests.cli.run import Shell, start
from tests.kills import Touches, killed, removes, renames_to

FOLDER = Path(__file__).parents[2] / "recipes"
RECIPES = sorted(FOLDER.glob("*.toml"))


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_every_recipe_file_is_valid(path: Path) -> None:
    steps = read_recipe(path, ())
    assert all(step.stage in registry.names("stages") for step in steps)


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
    path = write(tmp_path / "r.toml", f"[shrink]\ncheckpoint = '{pico_bert}'\nffn = '32'\nseed = '1'")
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


@pytest.fixture
def recipe(tmp_path: Path, pico_bert: Path) -> Path:
    return write(
        tmp_path / "r.toml",
        f'[half]\nstage = "shrink"\ncheckpoint = "{pico_bert}"\nlayers = "2"\n\n[shrink]\nffn = 32\n',
    )


def test_steps_feed_each_other_and_are_skipped_when_done(recipe: Path, shell: Shell) -> None:
    said = shell("run", recipe)
    assert said.code == 0, said.err
    assert said.path == "r-run/shrink"
    history = json.loads(Path(said.path, "biosqueeze.json").read_text())["history"]
    assert [(e["stage"], e["options"]["layers"], e["options"]["ffn"]) for e in history] == [
        ("shrink", "2", None),
        ("shrink", None, 32),
    ]
    assert history[0]["sources"]["layers"] == "recipe"
    again = shell("run", recipe)
    assert again.err.count("unchanged, skipped") == 2
    assert again.out == said.out


def test_a_changed_option_runs_that_step_and_those_after(recipe: Path, shell: Shell) -> None:
    shell("run", recipe)
    changed = shell("run", recipe, "--set", "shrink.ffn=16")
    assert changed.err.count("skipped") == 1
    assert json.loads(Path(changed.path, "config.json").read_text())["intermediate_size"] == 16
    changed = shell("run", recipe, "--set", "half.layers=1")
    assert changed.code == 0, changed.err
    assert "skipped" not in changed.err
    assert json.loads(Path(changed.path, "config.json").read_text())["num_hidden_layers"] == 1


def test_a_damaged_output_is_made_again(recipe: Path, shell: Shell) -> None:
    path = Path(shell("run", recipe).path)
    (path / "model.safetensors").write_bytes(b"")
    assert shell("run", recipe).err.count("skipped") == 1
    assert (path / "model.safetensors").stat().st_size > 0


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


def test_a_switch_can_be_set_to_false(pico_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIOSQUEEZE_FINETUNE_LABEL_ALL_PIECES", "true")
    text = f'[finetune]\ncheckpoint = "{pico_bert}"\ndata = "tags"\nlabel_all_pieces = true\n'
    path = write(tmp_path / "r.toml", text)
    for value, wanted in (("true", True), ("false", False)):
        (step,) = read_recipe(path, (f"finetune.label_all_pieces={value}",))
        options = read_options(step.module, step_context(step, tmp_path, {}, None))
        assert (options.label_all_pieces, options.sources["label_all_pieces"]) == (wanted, "flag")


def test_a_dry_run_writes_nothing(recipe: Path, shell: Shell) -> None:
    said = shell("run", recipe, "--dry-run")
    assert (said.code, said.out) == (0, "")
    assert "parameters after" in said.err
    assert not Path("r-run").exists()


def test_a_dry_run_tells_what_would_be_skipped(recipe: Path, shell: Shell) -> None:
    command = ("run", recipe, "--out", "run")
    assert shell(*command).code == 0
    said = shell(*command, "--dry-run", "--json")
    assert [step.get("unchanged") for step in json.loads(said.out)["steps"]] == [True, True]
    assert said.err.count("unchanged, would be skipped") == 2
    changed = [(("--set", "half.seed=1"), [None, None]), (("--set", "shrink.seed=1"), [True, None])]
    for words, unchanged in changed:
        said = shell(*command, *words, "--dry-run", "--json")
        assert [step.get("unchanged") for step in json.loads(said.out)["steps"]] == unchanged


def test_a_dry_run_as_json_is_one_object(recipe: Path, shell: Shell) -> None:
    plans = json.loads(shell("run", recipe, "--dry-run", "--json").out)["steps"]
    assert [plan["step"] for plan in plans] == ["half", "shrink"]
    assert plans[0]["stage"] == "shrink"
    assert plans[0]["parameters_after"] < plans[0]["parameters_before"]


def test_a_dry_run_names_the_step_that_cannot_run(shell: Shell) -> None:
    said = shell("run bioformer_8l --dry-run")
    assert (said.code, "[corpus]: there is no file or directory baseline" in said.err) == (1, True)


def test_a_dry_run_outlines_steps_without_inputs(tmp_path: Path, pico_bert: Path, shell: Shell) -> None:
    (tmp_path / "a.txt").write_text("One two.\n")
    path = write(
        tmp_path / "r.toml",
        f'[corpus]\ninputs = ["{tmp_path / "a.txt"}"]\n[vocab]\ninputs = ["@corpus"]\n'
        f'[tiny]\nstage = "distill"\nteacher = "{pico_bert}"\nstudent = "tiny"\ncorpus = "@corpus"\nlr = 1e-3\n'
        '[second]\nstage = "distill"\nteacher = "@tiny"\nloss = ["compact", "mlm=2"]\ncorpus = "@corpus"\n',
    )
    said = shell("run", path, "--dry-run", "--json")
    assert said.code == 0, said.err
    _, vocab, tiny, second = (plan["steps"] for plan in json.loads(said.out)["steps"])
    assert vocab == ["run vocab: inputs @corpus"]
    assert tiny[0] == f"run distill: teacher {pico_bert}, student tiny, corpus @corpus, lr 0.001"
    # Without the attention of the preset: the teacher has another number of heads.
    assert tiny[1] == "losses: 1 embedding + 1 hidden + 1 soft, temperature 1"
    assert second[0] == "run distill: checkpoint @tiny, teacher @tiny, corpus @corpus, loss compact mlm=2"
    assert second[1].startswith("losses: 3 mlm + 3 hidden-cosine + 3 attention-kl-mean + 5 kl, temperature 1, unless")


def test_a_dry_run_does_not_ask_for_force(recipe: Path, shell: Shell) -> None:
    shell("run", recipe)
    assert "force" not in shell("run", recipe, "--dry-run").err


def test_content_hash_ignores_results_and_sees_weights(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"1")
    before = content_hash(tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "bench.json").write_text("{}")
    assert content_hash(tmp_path) == before
    (tmp_path / "model.safetensors").write_bytes(b"2")
    assert content_hash(tmp_path) != before


def test_the_state_survives_a_kill_between_steps(tmp_path: Path) -> None:
    run = RecipeRun(tmp_path / "out", {})
    run.record("a", key="k", path="p", content="c", facts={})
    assert json.loads((tmp_path / "out" / "recipe-state.json").read_text())["a"]["key"] == "k"


def test_a_killed_recipe_goes_on_where_it_was(pico_bert: Path, tmp_path: Path, shell: Shell) -> None:
    text = tmp_path / "corpus.txt"
    text.write_text("\n".join(pico.sentences(100)))
    path = write(
        tmp_path / "r.toml",
        f'[shrink]\ncheckpoint = "{pico_bert}"\nlayers = "2"\n\n'
        f'[distill]\nteacher = "{pico_bert}"\ncorpus = ["{text}"]\nsteps = 60\nsave_every = 5\nprecision = "fp32"\n',
    )
    running = start("run", path, log=tmp_path / "log")
    running.wait_for(lambda: list(tmp_path.glob("r-run/distill.partial/state-*")))
    running.end(signal.SIGKILL)
    said = shell("run", path)
    assert said.code == 0, said.err
    assert "shrink: unchanged, skipped" in said.err
    assert "going on from step" in said.err
    steps = [json.loads(line)["step"] for line in Path(said.path, "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 61))


def test_a_failed_try_leaves_what_is_done(recipe: Path, shell: Shell) -> None:
    assert shell("run", recipe).code == 0
    assert shell("run", recipe, "--set", "half.layers=99").code == 2
    assert shell("run", recipe).err.count("unchanged, skipped") == 2


def test_another_output_is_written(recipe: Path, shell: Shell) -> None:
    assert shell("run", recipe).code == 0
    said = shell("run", recipe, "--set", "shrink.out=final")
    assert (said.path, Path("final/config.json").is_file()) == ("final", True), said.err


def test_measurements_are_done_anew_with_what_they_measure(recipe: Path, shell: Shell) -> None:
    recipe.write_text(recipe.read_text() + "\n[inspect]\n")
    assert shell("run", recipe).code == 0
    assert "inspect: unchanged, skipped" in shell("run", recipe).err
    (Path("r-run") / "shrink" / "model.safetensors").unlink()
    again = shell("run", recipe)  # makes the same bytes
    assert "half: unchanged, skipped" in again.err
    assert "inspect: unchanged" not in again.err


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


def test_a_cache_that_a_step_fills_does_not_change_it(tmp_path: Path) -> None:
    path = write(
        tmp_path / "r.toml", f'[distill]\nteacher = "t"\nstudent = "tiny"\ncache_teacher = "{tmp_path}/kept"\n'
    )
    (step,) = read_recipe(path, ())
    options = read_options(step.module, step_context(step, tmp_path, {}, None))
    before = step_key(step, options)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "answers").touch()
    assert step_key(step, options) == before


def test_a_long_text_is_no_path(tmp_path: Path) -> None:
    assert _content("word " * 400) == repr("word " * 400)
    assert _content(str(tmp_path)) != repr(str(tmp_path))


def test_predictions_for_nobody_are_refused(pico_ner: Path, tmp_path: Path, shell: Shell) -> None:
    records = write(tmp_path / "records.jsonl", '{"text": "a"}\n')
    path = write(tmp_path / "r.toml", f'[predict]\ncheckpoint = "{pico_ner}"\ninput = "{records}"\nout = "-"\n')
    said = shell("run", path)
    assert (said.code, "which a recipe does not read" in said.err) == (2, True), said.err


@pytest.fixture
def own_output(pico_bert: Path, tmp_path: Path) -> Path:
    """A recipe of a training and a shrinking, each with an output outside of the run's directory."""
    Path(tmp_path, "text").write_text("\n".join(pico.sentences(60)))
    return write(
        tmp_path / "own.toml",
        f'[distill]\nteacher = "{pico_bert}"\nstudent = "distil"\ncorpus = ["text"]\nsteps = 5\nsave_every = 2\n'
        'precision = "fp32"\nout = "trained"\n\n[shrink]\nlayers = "1"\nout = "small"\n',
    )


@pytest.mark.parametrize("when", [renames_to("trained"), removes("trained/state-*/progress.json")], ids=["in", "after"])
def test_a_killed_step_is_taken_over(when: Touches, own_output: Path, shell: Shell) -> None:
    killed("run", own_output, at=when, log=Path("log"))
    said = shell("run", own_output)
    assert said.code == 0, said.err
    assert "by an earlier run" in said.err or "finished already" in said.err
    assert not list(Path("trained").glob("state-*"))
    assert shell("run", own_output).err.count("unchanged, skipped") == 2


@pytest.mark.parametrize("out", ["trained", "small"])
def test_an_unrecorded_output_is_taken_over(out: str, own_output: Path, shell: Shell) -> None:
    seen: list[str] = []

    def records(event: str, target: str) -> bool:
        seen.append(f"{event} {Path(target).name}")
        return seen[-1] == "os.rename recipe-state.json" and f"os.rename {out}" in seen

    killed("run", own_output, at=records, log=Path("log"))
    written = Path(out, "model.safetensors").read_bytes()
    said = shell("run", own_output)
    assert said.code == 0, said.err
    assert Path(out, "model.safetensors").read_bytes() == written
    assert ("finished already" in said.err) == (out == "trained")
    assert shell("run", own_output).err.count("unchanged, skipped") == 2


def test_the_output_of_a_stranger_is_kept(own_output: Path, pico_bert: Path, shell: Shell) -> None:
    killed("run", own_output, at=renames_to("small"), log=Path("log"))
    assert shell("shrink", pico_bert, "--layers", 2, "--out", "small").code == 0
    before = content_hash(Path("small"))
    said = shell("run", own_output)
    assert (said.code, "give --set shrink.force=true" in said.err) == (1, True), said.err
    assert content_hash(Path("small")) == before
    assert shell("run", own_output, "--set", "shrink.force=true").code == 0
    assert content_hash(Path("small")) != before


def test_an_older_output_is_not_taken_over(own_output: Path, shell: Shell) -> None:
    assert shell("run", own_output, "--set", "distill.out=own-run/distill").code == 0
    Path("text").write_text("\n".join(pico.sentences(70, seed=1)))
    arguments = ("run", own_output, "--set", "distill.out=own-run/distill")
    killed(*arguments, at=lambda event, target: target.endswith("distill.partial/.lock"), log=Path("log"))
    said = shell(*arguments, "--set", "shrink.force=true")
    assert said.code == 0, said.err
    assert "finished already" not in said.err


def test_a_training_of_another_request_makes_room(own_output: Path, shell: Shell) -> None:
    killed("run", own_output, at=renames_to("trained.partial/state-00000004"), log=Path("log"))
    said = shell("run", own_output, "--set", "distill.lr=1e-3")
    assert (said.code, "give --set distill.force=true" in said.err) == (1, True), said.err
    said = shell("run", own_output)
    assert (said.code, "going on from step 2" in said.err) == (0, True), said.err
    Path("trained").rename("elsewhere")
    killed("run", own_output, at=renames_to("trained.partial/state-00000004"), log=Path("log"))
    said = shell(
        "run", own_output, "--set", "distill.lr=1e-3", "--set", "distill.force=true", "--set", "shrink.force=true"
    )
    assert (said.code, "going on" in said.err) == (0, False), said.err


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"distill": 1}', '{"distill": {"path": 1}}', '{"distill": {"path": "x"}}']
)
def test_a_damaged_state_file_is_explained(text: str, own_output: Path, shell: Shell) -> None:
    Path("own-run").mkdir()
    write(Path("own-run/recipe-state.json"), text)
    said = shell("run", own_output)
    assert (said.code, "recipe-state.json" in said.err) == (1, True), said.err
    assert len(said.err.splitlines()) == 1


def test_shipped_recipes_run_by_name(shell: Shell) -> None:
    assert {path.name for path in shipped_recipes().values()} == {path.name for path in RECIPES}
    planned = shell("run quickstart --dry-run --json")
    assert planned.code == 0, planned.err
    assert json.loads(planned.out)["steps"][0]["step"] == "teacher"


def test_a_directory_does_not_hide_a_shipped_recipe(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "quickstart").mkdir()
    assert shell("run quickstart --out quickstart --dry-run").code == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("quikstart", "Did you mean 'quickstart'?"),
        ("absent.toml", "there is no recipe absent.toml"),
        ("x", "tinybiobert"),
    ],
)
def test_unknown_recipes_are_explained(shell: Shell, name: str, message: str) -> None:
    refused = shell("run", name)
    assert refused.code == 2
    assert message in refused.err


def test_a_file_precedes_a_shipped_recipe(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "quickstart").write_text('[shrunk]\nstage = "shrunk"\n')
    assert "is no stage" in shell("run", "quickstart").err


def test_wheels_contain_the_recipes() -> None:
    package_data = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert "recipes/*.toml" in package_data["biosqueeze"]
    assert (FOLDER.parent / "biosqueeze" / "recipes").resolve() == FOLDER


def test_run_without_a_recipe_lists_those_that_are_shipped(shell: Shell) -> None:
    said = shell("run")
    assert said.code == 2
    assert "a recipe that comes with biosqueeze: biodistilbert, " in said.err


def test_existing_predictions_are_not_replaced(pico_ner: Path, shell: Shell) -> None:
    write(Path("records.jsonl"), '{"text": "a"}\n')
    path = write(
        Path("p.toml"), f'[predict]\ncheckpoint = "{pico_ner}"\ninput = "records.jsonl"\nout = "found.jsonl"\n'
    )
    write(Path("found.jsonl"), "precious")
    said = shell("run", path)
    assert (said.code, "give --set predict.force=true" in said.err) == (1, True), said.err
    assert Path("found.jsonl").read_text() == "precious"
    assert shell("run", path, "--set", "predict.force=true").code == 0
    assert shell("run", path).err.count("unchanged, skipped") == 1
