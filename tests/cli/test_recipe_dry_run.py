"""Recipes that are planned and not run."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from biosqueeze.cli.recipe import _is_of_model, _options
from biosqueeze.cli.recipe_file import read_recipe
from biosqueeze.cli.recipe_state import RecipeRun
from tests.cli.recipe_files import write
from tests.cli.run import Shell

Copy = Callable[[Path], Path]


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


def test_a_dry_run_reads_no_output_that_is_replaced(recipe: Path, shell: Shell) -> None:
    assert shell("run", recipe).code == 0
    said = shell("run", recipe, "--set", "half.layers=1", "--dry-run", "--json")
    assert said.code == 0, said.err
    half, shrunk = json.loads(said.out)["steps"]
    assert half["parameters_after"] < half["parameters_before"]
    assert shrunk["steps"] == ["run shrink: checkpoint @half, ffn 32"]
    assert shrunk.get("parameters_before") is None


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


def test_a_dry_run_replaces_what_the_run_replaces(pico_ner: Path, shell: Shell) -> None:
    write(Path("a.txt"), "One two.\n")
    path = write(
        Path("p.toml"), f'[corpus]\ninputs = ["a.txt"]\n\n[predict]\ncheckpoint = "{pico_ner}"\ntext = "One."\n'
    )
    assert shell("run", path).code == 0
    changed = ("run", path, "--set", "corpus.seed=1", "--set", "predict.text=Two.")
    said = shell(*changed, "--dry-run")
    assert (said.code, said.err.count("(exists)")) == (0, 2), said.err
    assert shell(*changed).code == 0
    write(Path("precious"), "precious")
    said = shell(*changed, "--set", "predict.out=precious", "--set", "predict.text=Three.", "--dry-run")
    assert said.code == 1
    assert said.err.splitlines()[-1].startswith("error: [predict] precious exists already; give --set predict.force=")


def test_a_dry_run_skips_what_reads_a_measured_model(pico_ner: Path, copy_of: Copy, shell: Shell) -> None:
    Path("data").mkdir()
    write(Path("data", "test.tsv"), "The\tO\ncarcino\tB-Disease\nmatis\tI-Disease\n")
    path = write(
        Path("m.toml"),
        f'[evaluate]\ncheckpoint = "{copy_of(pico_ner)}"\ndata = "data"\n\n'
        f'[predict]\ncheckpoint = "@evaluate"\ntext = "One."\n\n[report]\n',
    )
    assert shell("run", path).code == 0
    changed = ("run", path, "--set", "evaluate.batch-size=2")
    planned = json.loads(shell(*changed, "--dry-run", "--json").out)["steps"]
    assert [step.get("unchanged") for step in planned] == [None, True, None]
    assert shell("run", path, "--dry-run").err.count("unchanged, would be skipped") == 3
    said = shell(*changed)
    assert ("predict: unchanged" in said.err, "report: unchanged" in said.err) == (True, False), said.err


def test_paths_of_later_steps_are_checked_first(tmp_path: Path, pico_bert: Path, shell: Shell) -> None:
    """A wrong path in the last step is named before the first one runs; what a step writes need not exist yet."""
    (tmp_path / "a.txt").write_text("One two.\n")
    first = f'[corpus]\ninputs = ["{tmp_path / "a.txt"}"]\n[tiny]\nstage = "distill"\nteacher = "{pico_bert}"\n'
    last = 'student = "tiny"\nsteps = 1\ncorpus = "{}"\n'
    wrong = write(tmp_path / "wrong.toml", first + last.format(tmp_path / "none.txt.gz"))
    for more in ((), ("--dry-run",)):
        said = shell("run", wrong, "--out", "run", *more)
        assert (said.code, Path("run/corpus").exists()) == (1, False)
        assert f"[tiny]: there is no file or directory {tmp_path / 'none.txt.gz'}, which --corpus names" in said.err
    right = write(tmp_path / "right.toml", first + last.format("./run/corpus"))
    assert shell("run", right, "--out", "run", "--dry-run").code == 0


@pytest.mark.parametrize(
    "last", ['stage = "evaluate"\ndata = "benchmarks"', 'stage = "quantize"\ncalibration = "none.txt"']
)
def test_data_have_no_name_on_the_hub(last: str, recipe: Path, shell: Shell) -> None:
    """A name without a slash may be a model on the Hub, and never data."""
    recipe.write_text(f"{recipe.read_text()}\n[last]\n{last}\n")
    said = shell("run", recipe)
    assert (said.code, "[last]: there is no file or directory" in said.err) == (1, True), said.err
    assert not Path("r-run").exists()


def test_a_dry_run_knows_what_lies_in_an_output(tmp_path: Path, shell: Shell) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join(f"Text {'word ' * n}." for n in range(9)))
    path = write(
        tmp_path / "s.toml",
        f'[text]\nstage = "corpus"\ninputs = ["{tmp_path / "a.txt"}"]\nheld_out = 0.5\nmin_words = 1\n\n'
        '[vocab]\ninputs = ["s-run/text/held-out"]\nsize = 60\n',
    )
    assert shell("run", path, "--dry-run").code == 0
    said = shell("run", path)
    assert said.code == 0, said.err
    said = shell("run", path, "--set", "text.held_out=0.4", "--dry-run")
    assert (said.code, "unchanged" in said.err) == (0, False), said.err


def test_a_family_is_read_by_the_next_step(tmp_path: Path, pico_bert: Path, shell: Shell) -> None:
    first = f'[first]\nstage = "shrink"\ncheckpoint = "{pico_bert}"\nlayers = "3"\n'
    path = write(tmp_path / "f.toml", f'{first}[cuts]\nstage = "shrink"\nfamily = "1.2,1.5"\n[inspect]\n')
    planned = json.loads(shell("run", path, "--dry-run", "--json").out)["steps"]
    assert planned[-1]["steps"] == ["run inspect: checkpoint @cuts"]
    steps = read_recipe(path, ())
    run = RecipeRun(tmp_path / "f-run", {}, {"cuts": tmp_path / "f-run" / "cuts"})
    assert _is_of_model(_options(steps[1], run, pico_bert), run.outputs["cuts"])
