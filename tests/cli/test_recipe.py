"""Recipes: steps are chained, what is done is skipped, and what changed is done again."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from biosqueeze.cli.parameters import read_options
from biosqueeze.cli.recipe import _content, step_key
from biosqueeze.cli.recipe_file import read_recipe
from biosqueeze.cli.recipe_options import step_context
from biosqueeze.files import content_hash
from biosqueeze.system.locks import exclusive_lock
from tests.cli.recipe_files import write
from tests.cli.run import Shell


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


@pytest.mark.parametrize("is_copy", [False, True])
def test_a_moved_or_copied_run_is_done(
    is_copy: bool, pico_ner: Path, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "test.tsv", "carcino\tB-Disease\nin\tO\n")
    shrink = f'[shrink]\ncheckpoint = "{pico_ner}"\nlayers = "2"\n'
    write(tmp_path / "a.txt", "One two three.\n")
    corpus = f'[corpus]\ninputs = ["{tmp_path / "a.txt"}"]\nmin_words = 1\n'
    later = f'[evaluate]\ndata = "{tmp_path / "data"}"\n{corpus}[further]\nstage = "shrink"\nffn = 32\n'
    recipe = write(tmp_path / "r.toml", f"{shrink}{later}")
    assert shell("run", recipe).code == 0
    other = tmp_path / "elsewhere" / "run"
    other.parent.mkdir()
    (shutil.copytree if is_copy else shutil.move)("r-run", other)
    absolute = shell("run", recipe, "--out", other)
    assert absolute.err.count("unchanged, skipped") == 4, absolute.err
    assert absolute.path == str(other / "further")
    monkeypatch.chdir(other.parent)
    changed = ("--set", "further.ffn=16")
    assert shell("run", recipe, "--out", "run", *changed).err.count("unchanged, skipped") == 3
    assert shell("run", recipe, "--out", other, *changed).err.count("unchanged, skipped") == 4


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


def test_measurements_are_done_anew_with_what_they_measure(recipe: Path, shell: Shell) -> None:
    recipe.write_text(recipe.read_text() + "\n[inspect]\n")
    assert shell("run", recipe).code == 0
    assert "inspect: unchanged, skipped" in shell("run", recipe).err
    (Path("r-run") / "shrink" / "model.safetensors").unlink()
    again = shell("run", recipe)  # makes the same bytes
    assert "half: unchanged, skipped" in again.err
    assert "inspect: unchanged" not in again.err


def test_predictions_elsewhere_stay_with_what_was_read(recipe: Path, pico_ner: Path, shell: Shell) -> None:
    predict = f'[predict]\ncheckpoint = "{pico_ner}"\ntext = "One."\nout = "found.jsonl"\n'
    recipe.write_text(f'{recipe.read_text()}\n{predict}\n[report]\nhtml = "page.html"\n')
    assert shell("run", recipe).code == 0
    assert shell("run", recipe).err.count("unchanged, skipped") == 4
    said = shell("run", recipe, "--set", "shrink.seed=1")
    assert said.code == 0, said.err
    assert "predict: unchanged, skipped" in said.err
    assert "report: unchanged" not in said.err


@pytest.mark.parametrize("results", ["results/evaluate-torch.json", "results/bench.json"])
@pytest.mark.usefixtures("forked_processes")
def test_a_measurement_without_its_result_is_repeated(
    results: str, pico_ner: Path, copy_of: Callable[[Path], Path], shell: Shell
) -> None:
    checkpoint = copy_of(pico_ner)
    Path("data").mkdir()
    write(Path("data", "test.tsv"), "The\tO\ncarcino\tB-Disease\nmatis\tI-Disease\n")
    path = write(
        Path("m.toml"),
        f'[evaluate]\ncheckpoint = "{checkpoint}"\ndata = "data"\n\n'
        "[bench]\nbatch_size = 1\nlength = 8\nrounds = 1\nseconds = 0\nthreads = 1\n\n[report]\n",
    )
    assert shell("run", path).code == 0
    assert shell("run", path).err.count("unchanged, skipped") == 3
    (checkpoint / results).unlink()
    said = shell("run", path)
    assert (checkpoint / results).is_file(), said.err
    assert "report: unchanged" not in said.err


def test_an_overwritten_result_is_measured_again(pico_ner: Path, copy_of: Callable[[Path], Path], shell: Shell) -> None:
    checkpoint = copy_of(pico_ner)
    for name in ("data", "other"):
        Path(name).mkdir()
        write(Path(name, "test.tsv"), f"{name}\tO\ncarcino\tB-Disease\nmatis\tI-Disease\n")
    steps = "\n".join(
        f'[{split}]\nstage = "evaluate"\ncheckpoint = "{checkpoint}"\ndata = "data"\nbatch_size = {size}\n'
        for split, size in (("first", 1), ("second", 2))
    )
    path = write(Path("m.toml"), steps)
    assert shell("run", path).code == 0
    assert shell("run", path).err.count("unchanged, skipped") == 2  # though the second replaced the first one's
    state = Path("m-run", "recipe-state.json")
    entries = json.loads(state.read_text())
    state.write_text(json.dumps({k: {**entry, "results": list(entry["results"])} for k, entry in entries.items()}))
    assert "unchanged, skipped" not in shell("run", path).err  # of an earlier version, which recorded no hashes
    assert shell("evaluate", checkpoint, "--data", "other").code == 0
    result = checkpoint / "results" / "evaluate-torch.json"
    assert json.loads(result.read_text())["data"] == "other"
    said = shell("run", path)
    assert said.code == 0, said.err
    assert json.loads(result.read_text())["data"] == "data"


def test_a_failed_try_leaves_what_is_done(recipe: Path, shell: Shell) -> None:
    recipe.write_text(recipe.read_text() + "\n[inspect]\n")
    assert shell("run", recipe).code == 0
    assert shell("run", recipe, "--set", "half.layers=99").code == 2
    assert shell("run", recipe).err.count("unchanged, skipped") == 3


def test_a_new_step_does_not_take_the_results_of_a_later_one(
    pico_ner: Path, copy_of: Callable[[Path], Path], shell: Shell
) -> None:
    checkpoint = copy_of(pico_ner)
    Path("data").mkdir()
    for split in ("dev", "test"):
        write(Path("data", f"{split}.tsv"), f"{split}\tO\ncarcino\tB-Disease\nmatis\tI-Disease\n")
    last = f'[last]\nstage = "evaluate"\ncheckpoint = "{checkpoint}"\ndata = "data"\n'
    path = write(Path("m.toml"), last)
    assert shell("run", path).code == 0
    write(path, last.replace("[last]", "[first]") + f'split = "dev"\n{last}')
    assert shell("run", path).code == 0
    result = checkpoint / "results" / "evaluate-torch.json"
    assert json.loads(result.read_text())["split"] == "test"
    assert shell("run", path).err.count("unchanged, skipped") == 2
    write(path, last.replace("[last]", "[first]") + 'split = "dev"\n')
    assert shell("run", path).code == 0
    assert json.loads(result.read_text())["split"] == "dev"


def test_two_runs_do_not_share_a_directory(recipe: Path, shell: Shell) -> None:
    assert shell("run", recipe).code == 0
    with exclusive_lock(Path("r-run/recipe-state.lock"), pytest.fail):
        said = shell("run", recipe)
        assert (said.code, "another biosqueeze is running a recipe in r-run" in said.err) == (1, True), said.err
        assert shell("run", recipe, "--dry-run").code == 0
    assert shell("run", recipe).code == 0


def test_another_output_is_written(recipe: Path, shell: Shell) -> None:
    assert shell("run", recipe).code == 0
    said = shell("run", recipe, "--set", "shrink.out=final")
    assert (said.path, Path("final/config.json").is_file()) == ("final", True), said.err


@pytest.mark.parametrize("out", [".", "r-run"])
def test_a_checkpoint_of_others_is_kept(out: str, recipe: Path, pico_bert: Path, shell: Shell) -> None:
    place = shutil.copytree(pico_bert, Path(out, "half") if out == "." else Path("elsewhere"))
    words = ("run", recipe, "--out", out, "--set", f"half.out={place}")
    before = content_hash(place)
    assert f"{place} (exists: needs --force)" in shell(*words, "--dry-run").err
    said = shell(*words)
    assert (said.code, "give --set half.force=true" in said.err) == (1, True), said.err
    assert content_hash(place) == before
    assert shell(*words, "--set", "half.force=true").code == 0
    assert content_hash(place) != before


def test_outputs_are_replaced_after_their_state_is_deleted(recipe: Path, shell: Shell) -> None:
    shell("run", recipe)
    Path("r-run/recipe-state.json").unlink()
    assert shell("run", recipe, "--dry-run").err.count("(exists)") == 2
    said = shell("run", recipe)
    assert (said.code, "skipped" in said.err) == (0, False), said.err


def test_content_hash_ignores_results_and_sees_weights(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"1")
    before = content_hash(tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "bench.json").write_text("{}")
    assert content_hash(tmp_path) == before
    (tmp_path / "model.safetensors").write_bytes(b"2")
    assert content_hash(tmp_path) != before


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


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ('[report]\nhtml = "there"', "there"),
        ('[inspect]\nimportance = true\nplot = "there"', "there"),
        ('[predict]\ntext = "there"', "there"),
        ("[quantize]", "onnx-dynamic"),
        ("[evaluate]", "test"),
        ("[bench]", "128"),
    ],
)
def test_outputs_and_words_are_no_input(table: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (step,) = read_recipe(write(tmp_path / "r.toml", table), ())
    options = read_options(step.module, step_context(step, tmp_path, {}, tmp_path / "model"))
    before = step_key(step, options)
    (tmp_path / name).mkdir()
    (tmp_path / name / "file").touch()
    assert step_key(step, options) == before


@pytest.mark.parametrize(
    "table",
    [
        '[predict]\ninput = "there"',
        '[evaluate]\ndata = "there"',
        '[quantize]\ncalibration = "there"',
        '[corpus]\ninputs = ["a", "there"]',
        '[distill]\nteacher = "there"\nstudent = "tiny"\ncorpus = "c"',
        '[shrink]\ncheckpoint = "there"\nlayers = "1"',
    ],
)
def test_contents_of_inputs_count(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (step,) = read_recipe(write(tmp_path / "r.toml", table), ())
    options = read_options(step.module, step_context(step, tmp_path, {}, tmp_path / "model"))
    keys = {step_key(step, options)}
    for text in ("one", "two"):
        (tmp_path / "there").write_text(text)
        keys.add(step_key(step, options))
    assert len(keys) == 3


def test_a_long_text_is_no_path(tmp_path: Path) -> None:
    assert _content("word " * 400) == repr("word " * 400)
    assert _content(str(tmp_path)) != repr(str(tmp_path))


def test_predictions_for_nobody_are_refused(pico_ner: Path, tmp_path: Path, shell: Shell) -> None:
    records = write(tmp_path / "records.jsonl", '{"text": "a"}\n')
    path = write(tmp_path / "r.toml", f'[predict]\ncheckpoint = "{pico_ner}"\ninput = "{records}"\nout = "-"\n')
    said = shell("run", path)
    assert (said.code, "which a recipe does not read" in said.err) == (2, True), said.err


@pytest.mark.parametrize("out", ["p-run", "."])
def test_existing_predictions_are_not_replaced(out: str, pico_ner: Path, shell: Shell) -> None:
    write(Path("records.jsonl"), '{"text": "a"}\n')
    path = write(
        Path("p.toml"), f'[predict]\ncheckpoint = "{pico_ner}"\ninput = "records.jsonl"\nout = "found.jsonl"\n'
    )
    write(Path("found.jsonl"), "precious")
    words = ("run", path, "--out", out)
    said = shell(*words)
    assert (said.code, "give --set predict.force=true" in said.err) == (1, True), said.err
    assert Path("found.jsonl").read_text() == "precious"
    assert shell(*words, "--set", "predict.force=true").code == 0
    assert shell(*words).err.count("unchanged, skipped") == 1


def test_predictions_go_to_a_changed_out(pico_ner: Path, shell: Shell) -> None:
    path = write(Path("p.toml"), f'[predict]\ncheckpoint = "{pico_ner}"\ntext = "One."\nout = "a.jsonl"\n')
    assert shell("run", path).code == 0
    said = shell("run", path, "--set", "predict.out=b.jsonl")
    assert (said.path, Path("b.jsonl").is_file()) == ("b.jsonl", True), said.err
    assert shell("run", path, "--set", "predict.out=b.jsonl").err.count("unchanged, skipped") == 1


def test_a_missing_input_is_found_before_the_start(pico_ner: Path, shell: Shell) -> None:
    predict = f'[predict]\ncheckpoint = "{pico_ner}"\ntext = "One."\nout = "a.jsonl"\n'
    said = shell("run", write(Path("p.toml"), f"{predict}[shrink]\nlayers = 2\n"))
    assert (said.code, "[shrink]" in said.err, Path("a.jsonl").exists()) == (2, True, False), said.err
